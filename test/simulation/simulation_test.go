package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
	"github.com/waterclock/waterclock/test/witness"
)

var (
	seedsFlag    = flag.Int("seeds", 4, "how many fresh seeds TestSimulation runs at least")
	forFlag      = flag.Duration("for", 0, "for how long it goes on with fresh seeds")
	seedFlag     = flag.Uint64("seed", 0, "the one seed that TestSimulation runs")
	planFlag     = flag.String("plan", "", "the plan.json of a violation, to run it again")
	minimiseFlag = flag.Bool("minimise", false, "look for the least faults and requests that show a violation")
	keepFlag     = flag.String("keep", os.TempDir(), "where the histories of violations are kept")
	totalsFlag   = flag.String("totals", "",
		"run each seed in a process of its own, and add totals to those of earlier runs in this file")
	workersFlag = flag.Int("workers", workers(), "how many seeds run at a time")
	resultFlag  = flag.String("result", "", "a file for the totals of this run alone")
	runsFlag    = flag.Int("runs", 400, "how often -minimise runs a plan at most")
	verboseFlag = flag.Bool("log", false, "print what instances log")
)

const (
	// inCI is for how long CI goes on.
	inCI = 2 * time.Minute
	// stuck is how long a seed may take by the machine's clock. In a bubble no time passes while a goroutine waits for
	// a mutex, and so a seed can hang.
	stuck     = 10 * time.Minute
	stuckText = "this seed is stuck"
)

// TestMain lets the heap grow more between collections than a service does: most of a seed's garbage is frames.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}

// TestSimulation runs seeds: nothing is lost, duplicated, early or altered, cancels and firings keep their order, what
// is pending is what the log leads to, and everything is settled once faults have ended.
func TestSimulation(t *testing.T) {
	total := readTotals(t, *totalsFlag)
	began := time.Now()
	goOn := *forFlag
	seeds := int64(*seedsFlag)
	switch {
	case testing.Short():
		seeds = 1
	case goOn == 0 && runs.Slow():
		goOn = inCI
	}
	switch {
	case *planFlag != "":
		one(t, readPlan(t, *planFlag), total)
	case *seedFlag != 0:
		one(t, draw(*seedFlag), total)
	case *totalsFlag != "":
		campaign(t, total, seeds, goOn)
		total.complain(t)
	default:
		var left atomic.Int64
		left.Store(seeds)
		var workers sync.WaitGroup
		for range *workersFlag {
			workers.Go(func() {
				for (left.Add(-1) >= 0 || time.Since(began) < goOn) && !t.Failed() {
					one(t, draw(1+rand.Uint64()>>16), total)
				}
			})
		}
		workers.Wait()
	}
	if *resultFlag != "" {
		if err := total.write(*resultFlag); err != nil {
			t.Error(err)
		}
		return
	}
	t.Log(total)
}

// one runs a plan.
func one(t *testing.T, p *plan, total *totals) {
	t.Run(fmt.Sprint("seed=", p.Seed), func(t *testing.T) {
		began := time.Now()
		res, wrong := simulate(t, p)
		total.add(res, time.Since(began))
		if *verboseFlag {
			t.Log(res.log)
		}
		t.Logf("%d requests, %d emissions, %d answers, %d acquisitions, %s in the cluster; faults: %s",
			len(res.history.Requests), len(res.history.Emissions), len(res.history.Answers), res.acquisitions, res.took,
			faultsOf(res.history))
		if len(wrong) == 0 {
			return
		}
		kafkatest.Inexact(t, "%d violations with -seed %d, %v; see %s\n%s", len(wrong), p.Seed, p.Settings,
			keep(t, p, res, wrong), texts(wrong))
		if *minimiseFlag {
			p = minimise(t, p, wrong[0].Rule)
			res, wrong := simulate(t, p)
			t.Logf("%d faults and %d requests are left, see %s:\n%v\n%s", len(p.Troubles), len(p.Asks),
				keep(t, p, res, wrong), p.Troubles, texts(wrong))
		}
	})
}

// simulate runs a plan and returns what is wrong.
func simulate(t *testing.T, p *plan) (res *result, wrong []history.Violation) {
	debug.SetTraceback("all")
	log := new(logBuffer)
	watchdog := time.AfterFunc(stuck, func() {
		panic(fmt.Sprintf("%s: %d; see %s", stuckText, p.Seed,
			keep(t, p, &result{history: new(witness.History), log: log.String()}, nil)))
	})
	defer watchdog.Stop()
	synctest.Test(t, func(t *testing.T) { res = run(t, p, log) })
	wrong = witness.Check(*res.history)
	for _, why := range res.refused {
		wrong = append(wrong, history.Violation{Rule: "liveness", Text: why})
	}
	return res, wrong
}

// minimise returns a smaller plan that still breaks a rule: faults are dropped first, then requests.
func minimise(t *testing.T, p *plan, rule string) *plan {
	runs := 0
	breaks := func(p *plan) bool {
		if runs++; runs > *runsFlag {
			return false
		}
		_, wrong := simulate(t, p)
		return slices.ContainsFunc(wrong, func(v history.Violation) bool { return v.Rule == rule })
	}
	small := *p
	small.Troubles = shrink(p.Troubles, func(left []trouble) bool { q := small; q.Troubles = left; return breaks(&q) })
	small.Asks = shrink(p.Asks, func(left []ask) bool { q := small; q.Asks = left; return breaks(&q) })
	return &small
}

// shrink drops parts of a list, halves first and then less, as long as is holds of what is left.
func shrink[T any](all []T, is func([]T) bool) []T {
	for size := (len(all) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(all); {
			left := slices.Concat(all[:at], all[min(len(all), at+size):])
			if is(left) {
				all = left
			} else {
				at += size
			}
		}
	}
	return all
}

func readPlan(t *testing.T, path string) *plan {
	p := new(plan)
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// keep writes what there is of a violation to a new directory in one, whose name it returns.
func keep(t *testing.T, p *plan, res *result, wrong []history.Violation) string {
	dir := filepath.Join(*keepFlag, fmt.Sprintf("simulation-%d-%d-%d", p.Seed, len(p.Troubles), len(p.Asks)))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Log(err)
	}
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		t.Log(err)
	}
	rig.Keep(t, dir, res.history, wrong, map[string]string{"plan.json": string(text), "log.txt": res.log})
	return dir
}

func texts(wrong []history.Violation) string {
	var b strings.Builder
	for _, v := range wrong[:min(10, len(wrong))] {
		fmt.Fprintln(&b, v)
	}
	return b.String()
}

func faultsOf(h *witness.History) string {
	var all []string
	for _, f := range h.Faults {
		all = append(all, fmt.Sprintf("%s on %s (%s)", f.Kind, f.On, f.Note))
	}
	return strings.Join(all, ", ")
}

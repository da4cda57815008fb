package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// campaign runs seeds, each in a process of its own: one that violates a rule, panics or is stuck is kept and counted,
// and the others go on. Totals are written after each seed.
func campaign(t *testing.T, total *totals, seeds int64, goOn time.Duration) {
	began := time.Now()
	var left atomic.Int64
	left.Store(seeds)
	var workers sync.WaitGroup
	for range *workersFlag {
		workers.Go(func() {
			for left.Add(-1) >= 0 || time.Since(began) < goOn {
				seed := 1 + rand.Uint64()>>16
				of, why := apart(t, seed)
				if why != "" {
					t.Errorf("-seed %d %s; see %s", seed, why, outputOf(seed))
					of.Failed = map[string]int{why: 1}
				}
				total.merge(of)
				if err := total.write(*totalsFlag); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
}

// apart runs a seed in another process, and returns its totals, and why it failed; "": it did not.
func apart(t *testing.T, seed uint64) (of *totals, why string) {
	of = newTotals()
	path := filepath.Join(t.TempDir(), fmt.Sprint(seed, ".json"))
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], "-test.run=^TestSimulation$", "-test.v",
		"-seed", fmt.Sprint(seed), "-result", path, "-keep", *keepFlag, "-fault", *faultFlag)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if text, missing := os.ReadFile(path); missing == nil {
		if broken := json.Unmarshal(text, of); broken != nil {
			t.Error(broken)
		}
	}
	of.Took = time.Since(began)
	if cmd.ProcessState != nil {
		of.Core = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err == nil {
		return of, ""
	}
	if err := os.WriteFile(outputOf(seed), out, 0o600); err != nil {
		t.Error(err)
	}
	switch {
	case bytes.Contains(out, []byte(stuckText)):
		return of, "is stuck"
	case of.Seeds == 0:
		return of, "panics"
	}
	return of, "fails"
}

func outputOf(seed uint64) string {
	return filepath.Join(*keepFlag, fmt.Sprint("simulation-", seed, ".txt"))
}

// workers is how many seeds run at a time, if nothing else is said. Each uses more than one core now and then.
func workers() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// readTotals returns those of earlier runs, if there are any.
func readTotals(t *testing.T, path string) *totals {
	s := newTotals()
	if path == "" {
		return s
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write writes the totals to a file, all or nothing.
func (to *totals) write(path string) error {
	to.mu.Lock()
	defer to.mu.Unlock()
	text, err := json.MarshalIndent(to, "", " ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path+".new", append(text, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

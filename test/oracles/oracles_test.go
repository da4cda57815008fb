package oracles

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
	"github.com/waterclock/waterclock/internal/timer/calendar"
	"github.com/waterclock/waterclock/test/rig"
)

var (
	expressions = flag.Int("expressions", 200, "how many cron expressions are drawn, and as many periods")
	starts      = flag.Int("starts", 1, "how many instants each is asked about in each zone")
	seedFlag    = flag.Uint64("seed", 0, "draw the same again; 0 draws another seed")
)

// occurrences is how many each case asks for.
const occurrences = 6

func drawn(t *testing.T) *rand.Rand {
	runs.NeedSlow(t)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%d expressions or periods, -seed %d", *expressions, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func python(t *testing.T, library string) *exec.Cmd {
	return exec.Command(rig.Python(t, "croniter==7.0.0", "cronsim==2.8", "python-dateutil==4.0.0", "tzdata==2026.6"),
		"testdata/oracle.py", library)
}

// java runs Oracle.java. Quartz 2.5.0 to 2.5.2 miss days of W and of L-3.
func java(t *testing.T, library string) *exec.Cmd {
	t.Helper()
	jar, err := localkafka.Jar(t.Context(), "org.quartz-scheduler", "quartz", "2.4.1")
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command("java", "-cp", jar, "testdata/Oracle.java", library)
}

// ask has a program answer queries, a line each.
func ask(t *testing.T, cmd *exec.Cmd, queries []string) []string {
	t.Helper()
	var out, failed bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(queries, "\n")+"\n"), &out, &failed
	err := cmd.Run()
	answers := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if err != nil || len(answers) != len(queries) {
		t.Fatalf("%s: %v, %d answers to %d queries\n%s", cmd, err, len(answers), len(queries), &failed)
	}
	return answers
}

// one is a case: an expression in a zone, from a start.
type one struct {
	expression
	loc   *time.Location
	start int64
}

// TestCron compares the occurrences of random expressions with those of other implementations.
func TestCron(t *testing.T) {
	rng := drawn(t)
	var cases []one
	relative := 0
	for range *expressions {
		x := draw(rng)
		if x.has(placed) {
			relative++
		}
		for _, name := range zones {
			loc, err := calendar.LoadZone(name)
			if err != nil {
				t.Fatal(err)
			}
			for range *starts {
				cases = append(cases, one{x, loc, start(rng, loc)})
			}
		}
	}
	t.Logf("%d expressions have L, W or #", relative)
	oracles := map[string]struct {
		cmd       *exec.Cmd
		translate func(expression) string
	}{
		"quartz":   {java(t, "quartz"), expression.quartz},
		"cronsim":  {python(t, "cronsim"), expression.cronsim},
		"croniter": {python(t, "croniter"), expression.croniter},
	}
	for name, o := range oracles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []one
			var queries []string
			for _, c := range cases {
				if q := o.translate(c.expression); q != "" {
					asked = append(asked, c)
					queries = append(queries, fmt.Sprintf("%s\t%d\t%d\t%s", c.loc, c.start, occurrences, q))
				}
			}
			compare(t, name, asked, ask(t, o.cmd, queries))
		})
	}
}

// compare explains each difference between an oracle and ours by a rule, up to where the shorter answer ends.
func compare(t *testing.T, oracle string, cases []one, answers []string) {
	var same, unexplained int
	var reported string
	differences := make([]int, len(rules))
	for i, c := range cases {
		ours, theirs := c.occurrences(), numbers(t, answers[i])
		for _, d := range differ(c, oracle, ours, theirs) {
			if n := slices.IndexFunc(rules, d.decidedBy); n >= 0 {
				differences[n]++
			} else if unexplained++; reported != c.text {
				reported = c.text
				t.Errorf("%s\nours %v\ntheirs %v", d, show(ours, c.loc), show(theirs, c.loc))
			}
		}
		for _, at := range theirs {
			if slices.Contains(ours, at) {
				same++
			}
		}
	}
	t.Logf("%s: %d cases, %d occurrences agree, %d unexplained differences", oracle, len(cases), same, unexplained)
	for n, count := range differences {
		if count > 0 {
			t.Logf("%s: %d differences: %s", oracle, count, rules[n].text)
		}
	}
}

func (o one) occurrences() (list []int64) {
	s, at := o.In(o.loc), o.start
	for range occurrences {
		at, _ = s.Next(at)
		list = append(list, at)
	}
	return list
}

// numbers reads an answer. An oracle that does not come to an end says so at the end.
func numbers(t *testing.T, answer string) (list []int64) {
	for text := range strings.FieldsSeq(answer) {
		n, err := strconv.ParseInt(text, 10, 64)
		if text == "endless" {
			n = endless
		} else if err != nil {
			t.Error(err)
		}
		list = append(list, n)
	}
	return list
}

// endless stands for an occurrence that an oracle searched forever.
const endless = -1

// differ returns what is only in one list, up to where the shorter one ends.
func differ(c one, oracle string, ours, theirs []int64) (list []difference) {
	end := min(ours[len(ours)-1], slices.Max(theirs), horizon)
	for _, at := range ours {
		if at <= end && !slices.Contains(theirs, at) {
			list = append(list, difference{c, oracle, at, true})
		}
	}
	for _, at := range theirs {
		if at <= end && !slices.Contains(ours, at) {
			list = append(list, difference{c, oracle, at, false})
		}
	}
	return list
}

func show(list []int64, loc *time.Location) (texts []string) {
	for _, at := range list {
		texts = append(texts, time.Unix(at, 0).In(loc).Format("Mon 2006-01-02T15:04:05-07"))
	}
	return texts
}

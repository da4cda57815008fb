package tracker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// Scenarios are transcripts: run with -rewrite after a change, and read what has changed.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var tr *Tracker
		var workers int
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var worker, position int
			switch d.Cmd {
			case "new":
				d.ScanArgs(t, "workers", &workers)
				d.ScanArgs(t, "position", &position)
				tr = New(workers, int64(position))
			case "hand":
				runs := make([]Run, workers)
				for _, line := range strings.Split(d.Input, "\n") {
					var w int
					var r Run
					if _, err := fmt.Sscanf(line, "%d: %d to %d", &w, &r.First, &r.Behind); err != nil {
						t.Fatal(err)
					}
					runs[w] = r
				}
				tr.Hand(runs)
			case "planned":
				d.ScanArgs(t, "worker", &worker)
				d.ScanArgs(t, "position", &position)
				tr.Planned(worker, int64(position))
			default:
				t.Fatalf("unknown command %q", d.Cmd)
			}
			return fmt.Sprintln("bound", tr.Bound())
		})
	})
}

// Whatever the order in which workers finish, the bound is that of a model that remembers every
// request: just behind the last one that was handed out, or the first one that is not planned.
func TestBoundAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 8).Draw(t, "workers")
		start := rapid.Int64Range(0, 100).Draw(t, "start")
		tr := New(workers, start)
		queues := make([][]int64, workers) // offsets that were handed to each and are not planned
		end, bound := start, start
		check := func() {
			want := end
			for _, q := range queues {
				if len(q) > 0 {
					want = min(want, q[0])
				}
			}
			got := tr.Bound()
			if got < bound {
				t.Fatalf("the bound went back from %d to %d", bound, got)
			}
			bound = got
			// A run of one worker may begin between requests of others: the bound is one that
			// is as good, with no request between the two.
			if got > want {
				t.Fatalf("bound %d, the first request that is not planned is %d", got, want)
			}
			for _, q := range queues {
				if slices.ContainsFunc(q, func(at int64) bool { return at < got }) {
					t.Fatalf("bound %d, but %d is not planned", got, q)
				}
			}
			if !slices.ContainsFunc(queues, func(q []int64) bool { return len(q) > 0 }) && got != end {
				t.Fatalf("bound %d when all below %d is planned", got, end)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"fetch": func(t *rapid.T) { // a fetch is handed out as runs, one for each worker that has some
				mine, runs := make([][]int64, workers), make([]Run, workers)
				for range rapid.IntRange(1, 10).Draw(t, "requests") {
					end += rapid.Int64Range(0, 2).Draw(t, "gap")
					w := rapid.IntRange(0, workers-1).Draw(t, "worker")
					mine[w] = append(mine[w], end)
					end++
				}
				for w, r := range mine {
					if len(r) > 0 {
						runs[w] = Run{r[0], r[len(r)-1] + 1}
						queues[w] = append(queues[w], r...)
					}
				}
				tr.Hand(runs)
			},
			"plan": func(t *rapid.T) {
				w := rapid.IntRange(0, workers-1).Draw(t, "worker")
				n := rapid.IntRange(0, len(queues[w])).Draw(t, "requests")
				if n == 0 {
					return
				}
				tr.Planned(w, queues[w][n-1]+1)
				queues[w] = queues[w][n:]
			},
			"plan all": func(t *rapid.T) { // in every order of finishing
				for _, w := range rapid.Permutation(seq(workers)).Draw(t, "order") {
					if n := len(queues[w]); n > 0 {
						tr.Planned(w, queues[w][n-1]+1)
						queues[w] = nil
					}
					check()
				}
				if tr.Bound() != end {
					t.Fatalf("bound %d when all below %d is planned", tr.Bound(), end)
				}
			},
		})
	})
}

func seq(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

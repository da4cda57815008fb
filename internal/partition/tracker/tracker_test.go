package tracker

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// Scenarios are transcripts. After a change, run with -rewrite and read the differences.
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
				end := int64(0)
				for _, line := range strings.Split(d.Input, "\n") {
					var w int
					var r run
					if _, err := fmt.Sscanf(line, "%d: %d to %d", &w, &r.first, &r.behind); err != nil {
						t.Fatal(err)
					}
					tr.Hand(w, r.first, r.behind)
					end = max(end, r.behind)
				}
				tr.Reach(end)
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

// handed is the requests of one fetch for one worker. A worker reports its progress as the position after a batch.
type handed struct {
	offsets []int64
	planned int // how many of them are planned
	said    int64
}

// In whatever order the workers finish, the bound passes no unplanned request. It is also not too low: it reaches the
// last position that each worker with requests left has reported, or the first of its requests if it has reported
// nothing yet. If no requests are left, it is the end of the requests that were handed out.
func TestBoundAgainstModel(t *testing.T) {
	runs.Checks(t, 2000)
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 8).Draw(t, "workers")
		start := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Just(int64(math.MaxInt64-1_000_000))).Draw(t, "start")
		tr := New(workers, start)
		queues := make([][]handed, workers)
		end, bound := start, start
		check := func() {
			want, first := end, end
			for _, q := range queues {
				if len(q) == 0 {
					continue
				}
				if h := q[0]; h.planned == 0 {
					want = min(want, h.offsets[0])
				} else {
					want = min(want, h.said)
				}
				first = min(first, q[0].offsets[q[0].planned])
			}
			got := tr.Bound()
			if got < bound {
				t.Fatalf("the bound went back from %d to %d", bound, got)
			}
			if bound = got; got > first || got < want {
				t.Fatalf("bound %d, the first request that is not planned is %d, and %d is said to be planned", got,
					first, want)
			}
		}
		plan := func(w, n int) {
			for n > 0 && len(queues[w]) > 0 {
				h := &queues[w][0]
				some := min(n, len(h.offsets)-h.planned)
				h.planned, n = h.planned+some, n-some
				h.said = h.offsets[h.planned-1] + 1
				tr.Planned(w, h.said)
				if h.planned == len(h.offsets) {
					queues[w] = queues[w][1:]
				}
				check()
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			// handed out as one run for each worker that has requests; or there are only markers
			"fetch": func(t *rapid.T) {
				mine := make([][]int64, workers)
				for range rapid.IntRange(0, 10).Draw(t, "requests") {
					end += rapid.SampledFrom([]int64{0, 0, 1, 2, 1000}).Draw(t, "gap")
					w := rapid.IntRange(0, workers-1).Draw(t, "worker")
					mine[w] = append(mine[w], end)
					end++
				}
				for w, r := range mine {
					if len(r) > 0 {
						tr.Hand(w, r[0], r[len(r)-1]+1)
						queues[w] = append(queues[w], handed{offsets: r})
					}
				}
				tr.Reach(end)
				check()
				end += rapid.SampledFrom([]int64{0, 0, 1, 5}).Draw(t, "markers")
				tr.Reach(end)
			},
			"plan": func(t *rapid.T) {
				plan(rapid.IntRange(0, workers-1).Draw(t, "worker"), rapid.IntRange(1, 12).Draw(t, "requests"))
			},
			"plan all": func(t *rapid.T) { // in any order of finishing
				for _, w := range rapid.Permutation(seq(workers)).Draw(t, "order") {
					plan(w, math.MaxInt)
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

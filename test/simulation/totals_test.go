package simulation

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/test/witness"
)

// totals are those of all seeds.
type totals struct {
	mu sync.Mutex // guards what follows

	Seeds, Count int            // how many ended with a verdict, and how many of them had enough of everything
	Failed       map[string]int // seeds, by what they did
	// Near is how many requests cancelled or replaced a timer within nearDue of its due time.
	Requests, Near, Emissions, Answers, Faults, Acquisitions int
	// Told is how many IDs answers told of, Excused how many of those were not judged: see withoutExcused.
	Told, Excused int
	// Simulated is time in clusters, Took that of workers, Core that of processors.
	Simulated, Took, Core time.Duration
	// Coverage is how often each fault hit while an instance had a partition in each state.
	Coverage map[string]map[string]int
}

func newTotals() *totals {
	return &totals{Failed: make(map[string]int), Coverage: make(map[string]map[string]int)}
}

// add adds a seed, which took some time.
func (to *totals) add(r *result, took time.Duration) {
	h := r.history
	one := newTotals()
	one.Seeds, one.Requests, one.Near, one.Emissions, one.Answers = 1, len(h.Requests), near(h), len(h.Emissions),
		len(h.Answers)
	one.Told, one.Excused = r.told, r.excused
	one.Faults, one.Acquisitions, one.Simulated, one.Took = len(h.Faults), r.acquisitions, r.took, took
	if one.Faults >= leastFaults && one.Requests >= leastRequests && one.Near >= leastNear &&
		one.Acquisitions >= partitions+leastAcquisitions {
		one.Count = 1
	}
	for c, n := range r.coverage {
		one.cover(c, n)
	}
	to.merge(one)
}

func (to *totals) cover(c cell, n int) {
	if to.Coverage[c.fault] == nil {
		to.Coverage[c.fault] = make(map[string]int)
	}
	to.Coverage[c.fault][c.state] += n
}

// merge adds those of others.
func (to *totals) merge(o *totals) {
	to.mu.Lock()
	defer to.mu.Unlock()
	to.Seeds, to.Count = to.Seeds+o.Seeds, to.Count+o.Count
	to.Requests, to.Near, to.Emissions, to.Answers = to.Requests+o.Requests, to.Near+o.Near, to.Emissions+o.Emissions,
		to.Answers+o.Answers
	to.Told, to.Excused = to.Told+o.Told, to.Excused+o.Excused
	to.Faults, to.Acquisitions = to.Faults+o.Faults, to.Acquisitions+o.Acquisitions
	to.Simulated, to.Took, to.Core = to.Simulated+o.Simulated, to.Took+o.Took, to.Core+o.Core
	for why, n := range o.Failed {
		to.Failed[why] += n
	}
	for fault, states := range o.Coverage {
		for state, n := range states {
			to.cover(cell{fault, state}, n)
		}
	}
}

// near is how many requests cancelled or replaced a timer within nearDue of when it was due, by the time when they were
// sent.
func near(h *witness.History) (n int) {
	type sent struct {
		at  int64
		due int64 // -1: of none that schedules
	}
	of := make(map[string][]sent)
	for i := range h.Requests {
		switch r := &h.Requests[i]; r.Action {
		case history.Schedules:
			of[r.ID] = append(of[r.ID], sent{r.Timestamp, r.Due})
		case history.Cancels:
			of[r.ID] = append(of[r.ID], sent{r.Timestamp, -1})
		case history.Triggers, history.Pauses, history.Resumes, history.Moves, history.Poison:
		}
	}
	for _, all := range of {
		slices.SortStableFunc(all, func(a, b sent) int { return int(a.at - b.at) })
		due := int64(-1)
		for _, x := range all {
			if due >= 0 && time.Duration(max(x.at-due, due-x.at))*time.Millisecond <= nearDue {
				n++
			}
			if x.due >= 0 {
				due = x.due
			}
		}
	}
	return n
}

// String is a sentence, and a table of how often each fault hit in each state.
func (to *totals) String() string {
	to.mu.Lock()
	defer to.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds, %d of which count: %d requests, %d of which cancelled or replaced a timer within %d "+
		"ms of when it was due, %d emissions, %d answers, %d faults that hit, %d acquisitions, %.0f simulated hours",
		to.Seeds, to.Count, to.Requests, to.Near, nearDue.Milliseconds(), to.Emissions, to.Answers, to.Faults,
		to.Acquisitions, to.Simulated.Hours())
	if hours := to.Took.Hours(); hours > 0 {
		fmt.Fprintf(&b, "; one worker runs %.0f seeds and %.0f simulated hours an hour", float64(to.Seeds)/hours,
			to.Simulated.Hours()/hours)
	}
	if to.Core > 0 {
		fmt.Fprintf(&b, "; a seed takes a core %.1f s", to.Core.Seconds()/float64(max(1, to.Seeds)))
	}
	fmt.Fprintf(&b, "; %d of %d IDs that answers told of were not judged; failed: %v\n\n", to.Excused,
		to.Told, to.Failed)
	fmt.Fprintf(&b, "| fault | %s |\n|---%s|\n", strings.Join(states(), " | "), strings.Repeat("|---", len(states())))
	for _, k := range kinds() {
		fmt.Fprintf(&b, "| %s |", k.name)
		for _, state := range states() {
			if n := to.Coverage[k.name][state]; n > 0 {
				fmt.Fprintf(&b, " %d |", n)
			} else {
				fmt.Fprintf(&b, " none: %s |", whyEmpty(cell{k.name, state}))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

package simulation

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
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
func (s *totals) add(r *result, took time.Duration) {
	h := r.history
	one := newTotals()
	one.Seeds, one.Requests, one.Near, one.Emissions, one.Answers = 1, len(h.Requests), near(h), len(h.Emissions), len(h.Answers)
	one.Told, one.Excused = r.told, r.excused
	one.Faults, one.Acquisitions, one.Simulated, one.Took = len(h.Faults), r.acquisitions, r.took, took
	if one.Faults >= leastFaults && one.Requests >= leastRequests && one.Near >= leastNear && one.Acquisitions >= partitions+leastAcquisitions {
		one.Count = 1
	}
	for c, n := range r.coverage {
		one.cover(c, n)
	}
	s.merge(one)
}

func (s *totals) cover(c cell, n int) {
	if s.Coverage[c.fault] == nil {
		s.Coverage[c.fault] = make(map[string]int)
	}
	s.Coverage[c.fault][c.state] += n
}

// merge adds those of others.
func (s *totals) merge(o *totals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Seeds, s.Count = s.Seeds+o.Seeds, s.Count+o.Count
	s.Requests, s.Near, s.Emissions, s.Answers = s.Requests+o.Requests, s.Near+o.Near, s.Emissions+o.Emissions, s.Answers+o.Answers
	s.Told, s.Excused = s.Told+o.Told, s.Excused+o.Excused
	s.Faults, s.Acquisitions = s.Faults+o.Faults, s.Acquisitions+o.Acquisitions
	s.Simulated, s.Took, s.Core = s.Simulated+o.Simulated, s.Took+o.Took, s.Core+o.Core
	for why, n := range o.Failed {
		s.Failed[why] += n
	}
	for fault, states := range o.Coverage {
		for state, n := range states {
			s.cover(cell{fault, state}, n)
		}
	}
}

// near is how many requests cancelled or replaced a timer within nearDue of when it was due, by the time when they were sent.
func near(h *history.History) (n int) {
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
		case history.Triggers, history.Pauses, history.Resumes, history.Poison:
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
func (s *totals) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds, %d of which count: %d requests, %d of which cancelled or replaced a timer within %d ms of when it was due, %d emissions, %d answers, %d faults that hit, %d acquisitions, %.0f simulated hours",
		s.Seeds, s.Count, s.Requests, s.Near, nearDue.Milliseconds(), s.Emissions, s.Answers, s.Faults, s.Acquisitions, s.Simulated.Hours())
	if hours := s.Took.Hours(); hours > 0 {
		fmt.Fprintf(&b, "; one worker runs %.0f seeds and %.0f simulated hours an hour", float64(s.Seeds)/hours, s.Simulated.Hours()/hours)
	}
	if s.Core > 0 {
		fmt.Fprintf(&b, "; a seed takes a core %.1f s", s.Core.Seconds()/float64(max(1, s.Seeds)))
	}
	fmt.Fprintf(&b, "; %d of %d IDs that answers told of were not judged; failed: %v\n\n", s.Excused, s.Told, s.Failed)
	fmt.Fprintf(&b, "| fault | %s |\n|---%s|\n", strings.Join(states(), " | "), strings.Repeat("|---", len(states())))
	for _, k := range kinds() {
		fmt.Fprintf(&b, "| %s |", k.name)
		for _, state := range states() {
			if n := s.Coverage[k.name][state]; n > 0 {
				fmt.Fprintf(&b, " %d |", n)
			} else {
				fmt.Fprintf(&b, " none: %s |", whyEmpty(cell{k.name, state}))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

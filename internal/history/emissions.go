package history

import (
	"fmt"

	"github.com/waterclock/waterclock"
)

// Violation is a promise that was broken, in a sentence.
type Violation string

// Emissions returns the emissions by timer ID, in order of receipt, and what is wrong with
// them whatever was scheduled: headers are missing, they came early, or twice.
func Emissions(received []Received) (byID map[string][]Received, wrong []Violation) {
	byID = make(map[string][]Received)
	events := make(map[string]Received)
	for _, r := range received {
		id, event := r.Header(waterclock.HeaderID), r.Header(waterclock.HeaderEvent)
		due, err := r.Due()
		if err != nil || event == "" || id == "" {
			wrong = append(wrong, violation("altered: the emission on %s lacks headers: %v", r.where(), r.Headers))
			continue
		}
		if r.early(due) {
			wrong = append(wrong, violation("early: %s due %d, timestamp %d, received %d", id, due, r.Timestamp.UnixMilli(), r.At.UnixMilli()))
		}
		if first, twice := events[event]; twice {
			wrong = append(wrong, violation("duplicated: %s, event %s: %s and %s", id, event, first.where(), r.where()))
		}
		events[event] = r
		byID[id] = append(byID[id], r)
	}
	return byID, wrong
}

// Once returns what is wrong with emissions of timers that fire once each: whatever
// Emissions finds, and IDs that came more than once.
func Once(received []Received) (byID map[string][]Received, wrong []Violation) {
	byID, wrong = Emissions(received)
	for id, rs := range byID {
		if len(rs) > 1 {
			wrong = append(wrong, violation("duplicated: %s was emitted %d times", id, len(rs)))
		}
	}
	return byID, wrong
}

// Exactly compares emissions with the IDs that must have come.
func Exactly(byID map[string][]Received, want []string) (wrong []Violation) {
	wanted := make(map[string]bool, len(want))
	for _, id := range want {
		wanted[id] = true
		if len(byID[id]) == 0 {
			wrong = append(wrong, violation("lost: %s was not emitted", id))
		}
	}
	for id := range byID {
		if !wanted[id] {
			wrong = append(wrong, violation("unwanted: %s was emitted and must not be", id))
		}
	}
	return wrong
}

func violation(format string, args ...any) Violation { return Violation(fmt.Sprintf(format, args...)) }

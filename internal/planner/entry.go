package planner

import "github.com/waterclock/waterclock/internal/timer"

// Entry is a planned decision and what the caller needs to carry it out.
type Entry struct {
	timer.Entry
	Value []byte // the bytes of After; nil where the request depends on what it found, and has not scheduled
	// Refusal is why the request, or the emission, becomes a dead letter.
	Refusal *Refusal
	// Tag is the caller's: of a refused request its record, of a firing its permit.
	Tag any
	// Partition and Suspect are the caller's, who notes where an emission goes, and
	// that its target refused a batch with it.
	Partition int32
	Suspect   bool

	item    *Item    // nil for a refused request
	firing  bool     // what is due decided it, no request
	missed  int64    // of a firing: by when its item's timer was
	leaves  bool     // its timer counts as pending until it is committed: see note
	request *request // that decided it, of one that depends on what it finds
	chunk   *chunk   // that it is part of
	next    *Entry   // the entry of the same ID that was planned on this one
}

// Refusal is why something became a dead letter: a code from the documented list, and
// a sentence.
type Refusal struct{ Reason, Detail string }

// Refused reports whether this is a request that changes nothing: it becomes a dead
// letter.
func (e *Entry) Refused() bool { return e.Refusal != nil && e.Emit == nil }

// Firing reports whether what is due decided this, and no request.
func (e *Entry) Firing() bool { return e.firing }

// adds is by how many e changes the number of pending timers.
func (e *Entry) adds() int64 { return adds(e.Before, e.After) }

func adds(before timer.Ref, after *timer.Timer) int64 {
	switch before := !before.IsAbsent(); {
	case !before && after != nil:
		return 1
	case before && after == nil:
		return -1
	}
	return 0
}

// follow links e to the entry of its ID before it.
func (e *Entry) follow() {
	if e.item.last != nil {
		e.item.last.next = e
	}
	e.item.last = e
}

// Result is what became of the request or of the occurrence.
func (e *Entry) Result() timer.Outcome {
	switch {
	case e.Refusal == nil:
		return e.Outcome
	case e.Emit != nil:
		return timer.Undeliverable
	}
	return timer.Refused
}

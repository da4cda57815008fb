package planner

import "github.com/waterclock/waterclock/internal/timer"

// Entry is a planned decision and what the caller needs to carry it out.
type Entry struct {
	timer.Entry
	Value []byte // the bytes of After; nil if the request depends on what it found and does not schedule
	// Refusal is why the request, or the emission, becomes a dead letter.
	Refusal *Refusal
	// Tag belongs to the caller: the record of a rejected request, or the permit of a firing.
	Tag any
	// Partition and Suspect belong to the caller, which records in them where an emission goes, and whether its target
	// has rejected a batch that contained it.
	Partition int32
	Suspect   bool

	item   *Item // nil for a rejected request
	firing bool  // it was planned because a timer was due, not for a request
	// the occurrence that was pending at Before; 0 if it is not known, and then After comes from another request
	found   int64
	missed  int64    // for a firing: Item.missed of its item
	leaves  bool     // its timer counts as pending until it is committed: see note
	request *request // of the entry, if its result depends on what the request finds
	chunk   *chunk   // the chunk that it is part of
	next    *Entry   // the entry of the same ID that was planned on this one
}

// Refusal is why a request or an emission becomes a dead letter: a code from the documented list, and a sentence.
type Refusal struct{ Reason, Detail string }

// Refused reports whether this is a rejected request, which changes nothing and becomes a dead letter.
func (e *Entry) Refused() bool { return e.Refusal != nil && e.Emit == nil }

// Expire removes the emission of a firing in the segment that is out, because it has become too late while its step was
// tried. It does nothing if the firing was rolled back.
func (e *Entry) Expire() {
	if e.Emit != nil {
		e.Entry.Expire()
	}
}

// Firing reports whether this entry was planned because a timer was due, and not for a request.
func (e *Entry) Firing() bool { return e.firing }

// adds returns by how much e changes the number of pending timers.
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

// Result returns the outcome of the request or of the occurrence.
func (e *Entry) Result() timer.Outcome {
	switch {
	case e.Refusal == nil:
		return e.Outcome
	case e.Emit != nil:
		return timer.Undeliverable
	}
	return timer.Refused
}

package partition

import (
	"time"

	"github.com/waterclock/waterclock/emitter"
)

// flow decides how much of a step is for firings and how much for requests, and whether intake reads on. It
// is arithmetic: it asks no clock and holds no lock, and its caller is one at a time.
//
// # What is to hold
//
// What does not go through waits in Kafka's log, where it costs nothing. What is read costs memory, and later
// more: it is planned, waits in a queue and, when it is due meanwhile, has a firing wait behind it. Timers
// that are read faster than they fire overflow to the store, which makes each of them dearer, and so all of
// them later.
//
// # The law
//
//  1. Firings go first. A step takes what is due before any request. While requests wait, firings have half
//     of its room; four fifths of it while due timers are late by our own doing. The rest is the floor of
//     taking in, so that cancels are read whatever is late.
//  2. Intake reads for the next step and no further. limit is how many requests may wait to be sealed. The
//     step says what it ought to be: if the partition filled its part of the step and left a fifth of what waited,
//     or the step took longer than longStep, less; if intake was held back, more; and if it was not for
//     firingsFor, it goes down to what is used of it. So a request that was read waits for about one step, and
//     what it makes due goes into the same step or the next one.
//  3. Without firings nothing can be late for what is taken in. Then intake reads two steps ahead.
//
// # Why this is stable
//
// Less is a quarter less, more an eighth more, both of them at most once in a step. That is the way of TCP's
// congestion control (additive is replaced by an eighth, for steps differ in size by a hundred times): limit
// hovers about what fits, the partitions of a lane see the same long steps and come to even parts, and one
// that reads little is not touched, for its limit does not bind. limit is never below a fifth of the
// partition's part of the step, nor below leastReadAhead. So nobody's taking in ends because somebody else is hot,
// and it grows back when it is held back in steps with room. Nothing is remembered but limit, so whatever made
// it small is forgotten in some twenty steps.
//
// Intake that was held back is slow to come back: the fetch that is under way without the partition waits for
// data of others, for intake.fetchMaxWait, 100 ms, if they have none. Then steps have firings alone, or nothing.
// They say nothing of what limit ought to be, hence firingsFor: a partition that caught up while the others had
// nothing hovered about a fifth of a step else, and went at half its pace beside idle processors.
//
// # Its premises
//
// What is late means late by our own doing: since a timer was due or, if its request was read later than that,
// since then, or since the gate opened. So what was missed while nobody ran has its four fifths, too: what falls
// due meanwhile waits behind it. Parked and paused timers push nobody aside: they are in no wheel. That firings
// come first rests on the planner, which has them before all requests but those of their own IDs. That a held
// intake goes on rests on each seal, and each fold, having it looked at.
type flow struct {
	limit int           // requests that may wait to be sealed; 0: no step has said
	held  bool          // intake was held back for it since the last seal
	bound int64         // when intake was last held back for it, Unix ms, at a seal
	late  bool          // the last seal left timers that are late by our own doing
	fired int64         // when a step last had firings, Unix ms
	took  time.Duration // from the seal of the last step that was committed to its commit
}

const (
	// maxReadAhead is how many requests may wait at most.
	maxReadAhead = 2 * emitter.MaxStepEntries
	// leastReadAhead is how many may wait always.
	leastReadAhead = 100
	// longStep is how long a step may take in which timers fire, before less is taken in.
	longStep = 100 * time.Millisecond
	// firingsFor is for how long after a firing others are reckoned with, in ms.
	firingsFor = 1000
)

// share is how many of so many entries of a step, or bytes, are for firings where requests wait.
func (f *flow) share(room int64) int64 {
	if f.late {
		return (4*room + 4) / 5
	}
	return (room + 1) / 2
}

// sealed takes what a seal has come to: the room that the partition had in the step, in entries, how much of
// that is filled, from 0 to 1, how many requests waited, how many of them and how many firings it took, and
// whether it left timers that are late by our own doing.
func (f *flow) sealed(now int64, room int, filled float64, waited, requests, firings int, late bool) {
	held := f.held
	f.held, f.late = false, late
	if held {
		f.bound = now
	}
	if firings > 0 {
		f.fired = now
	}
	if now-f.fired > firingsFor {
		f.limit = min(max(2*room, leastReadAhead), maxReadAhead)
		return
	}
	limit := f.readAhead()
	switch {
	case late, filled >= 0.75 && 4*waited > 5*requests, f.took > longStep:
		limit -= limit / 4
	case held:
		limit += limit/8 + 1
	case limit > 4*requests && now-f.bound > firingsFor:
		limit -= limit / 8
	}
	f.limit = max(min(limit, room), room/5, leastReadAhead)
}

// readAhead is how many requests may wait to be sealed.
func (f *flow) readAhead() int {
	if f.limit == 0 {
		return maxReadAhead
	}
	return f.limit
}

// full reports whether intake has enough, of which so many wait to be sealed: from the limit on, down to half
// of it.
func (f *flow) full(waiting int, paused bool) bool {
	limit := f.readAhead()
	f.held = f.held || waiting >= limit
	return waiting >= limit || paused && waiting > limit/2
}

package history

import (
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// Request is one record of a request topic. It schedules a timer, or cancels the one that
// has the source Cancels.
type Request struct {
	ID, Source string
	Due        int64 // Unix ms
	Cancels    string
}

// RequestOf reads a request with an absolute due time in milliseconds, or a condition.
func RequestOf(r *kgo.Record) Request {
	q := Request{ID: string(r.Key), Source: fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)}
	for _, h := range r.Headers {
		switch h.Key {
		case waterclock.HeaderAt:
			q.Due, _ = strconv.ParseInt(string(h.Value), 10, 64) // whoever reads the history has written it
		case waterclock.HeaderIf:
			q.Cancels = string(h.Value)
		}
	}
	return q
}

// Timer is what the log says of one ID.
type Timer struct {
	Source   string // of the request that scheduled it last
	Due      int64
	Pending  bool
	Replaced bool // it was scheduled more than once
}

// Fold is what must have become of timers that are replaced, and cancelled by their source.
//
// A cancel counts if the timer with its source is pending at the cancel's place in the log.
// Whether that timer had fired by then its emission tells: a timer either fires or is cancelled.
type Fold struct {
	timers                  map[string]*Timer
	fired                   map[string]int // by source
	Cancelled, NotCancelled int            // cancels that counted, and that did not
}

// NewFold replays the log, each partition in its order. Fired is how often the timer of each source was emitted.
func NewFold(log []Request, fired map[string]int) *Fold {
	f := &Fold{timers: make(map[string]*Timer), fired: fired}
	for _, q := range log {
		t := f.timers[q.ID]
		switch {
		case q.Cancels == "":
			f.timers[q.ID] = &Timer{Source: q.Source, Due: q.Due, Pending: true, Replaced: t != nil}
		case t != nil && t.Pending && t.Source == q.Cancels && fired[q.Cancels] == 0:
			t.Pending = false
			f.Cancelled++
		default:
			f.NotCancelled++
		}
	}
	return f
}

// Judge compares the log with the sources of what is pending now, by ID: what the log leaves
// pending must be pending, or have fired once if it was due by now (Unix ms). A timer for
// which mustGo is true must not be pending.
func (f *Fold) Judge(pending map[string]string, now int64, mustGo func(id string, t *Timer) bool) (c Counts) {
	scheduled := make(map[string]bool, len(f.timers)) // sources that were not replaced
	stray := len(pending)
	for id, t := range f.timers {
		c.Scheduled++
		scheduled[t.Source] = true
		fired, overdue := f.fired[t.Source], t.Due < now
		source, there := pending[id]
		if there {
			stray--
		}
		switch {
		case !t.Pending && there, t.Pending && mustGo(id, t):
			c.Uncancelled++
		case t.Pending && fired > 0 && t.Due > now:
			c.Early++
		case t.Pending && fired == 0 && (overdue || !there):
			c.Lost++
		case there && (source != t.Source || overdue):
			c.Altered++
		}
		if !t.Pending {
			c.Cancelled++
		}
		c.Duplicated += max(0, fired-1)
		c.Received += min(1, fired)
	}
	c.Altered += stray // nobody has scheduled them
	for source := range f.fired {
		if !scheduled[source] {
			c.Uncancelled++ // it was replaced before, or cancelled
		}
	}
	return c
}

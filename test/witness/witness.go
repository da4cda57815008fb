// Package witness judges what only tests ask for, besides the records that package history judges: what instances say
// of themselves, the contents of their local stores, and the answers of their API.
//
//	rig.Violations(t, witness.Check(h))
//
// The reference is the committed changelog, so a history needs its changes.
package witness

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
)

// History is a history and what instances were asked.
type History struct {
	history.History

	Stores  []StoreContents // contents of local stores
	Answers []Answer        // of the API
	Gauges  []Gauge         // of bounded quantities
	Lags    []Lag
	Ledgers []Ledger
}

// StoreContents are the timers of a partition in the local store of an instance.
type StoreContents struct {
	Instance  string
	Requests  string
	Partition int32
	Position  int64 // of the changelog: the next record that the view lacks
	Timers    []history.Timer
}

// Answer is an answer of the API about pending timers. It was true at some moment from Asked to Given.
type Answer struct {
	Instance     string
	Asked, Given time.Time
	Requests     string
	// IDs are the requested ones; nil: all of the topic.
	IDs    []string
	Timers []history.Timer
	// Count, if not negative, is the whole answer.
	Count int64
}

// Gauge is a quantity with a limit.
type Gauge struct {
	Instance, Name string
	At             time.Time
	Value          float64
	Limit          float64
}

// Lag is the answer of Kafka's tools about a request partition: the group's offset, and the log's end.
type Lag struct {
	Asked, Given time.Time
	Requests     string
	Partition    int32
	Position     int64 // of the group
	End          int64 // of the log, for a read_committed reader
	Reported     int64 // the lag by the instance; -1: it was not asked
}

// Ledger has an instance's counts of a request topic: accepted requests, their fates, and pending timers.
type Ledger struct {
	Instance, Requests string
	At                 time.Time
	AtRest             bool // nothing was in flight
	Off                int64
}

// Check returns the violations that a history shows.
func Check(h History) []history.Violation {
	x := newIndex(&h)
	x.found, x.fates = history.Judge(h.History)
	for _, rule := range []func(*index){ledgers, views, stale, lag, bounds, liveness, rate} {
		rule(x)
	}
	return x.found
}

// ledgers: each accepted timer is pending or has an outcome. Instances count this (waterclock_ledger).
func ledgers(x *index) {
	for _, l := range x.Ledgers {
		if l.AtRest && l.Off != 0 {
			x.broken("ledger", "", nil, "the ledger of %s for %s is %d at rest, at %s", l.Instance, l.Requests, l.Off,
				l.At)
		}
	}
}

// bounds: a gauge with a limit stays within it.
func bounds(x *index) {
	for _, g := range x.Gauges {
		if g.Value > g.Limit {
			x.broken("bounds", "", nil, "%s of %s is %g at %s, above the limit of %g", g.Name, g.Instance, g.Value,
				g.At, g.Limit)
		}
	}
}

// index has the changes of a history, in order, without those of IDs whose records a log has lost.
type index struct {
	*History
	changes map[history.Log][]*history.ChangelogRecord // nil: none of that partition
	lives   []*changed                                 // in the order of their first changes
	fates   []history.Fate                             // by request
	found   []history.Violation
}

// life names an ID of a request partition.
type life struct {
	history.Log
	id string
}

func lifeOf(r *history.Request) life {
	return life{history.Log{Topic: r.Topic, Partition: r.Partition}, r.ID}
}

// changed has the changes of one ID, at least one.
type changed struct {
	life
	changes []*history.ChangelogRecord
}

func newIndex(h *History) *index {
	x := &index{History: h, changes: make(map[history.Log][]*history.ChangelogRecord)}
	inOrder := make([]*history.ChangelogRecord, len(h.Changes))
	for i := range h.Changes {
		inOrder[i] = &h.Changes[i]
	}
	slices.SortStableFunc(inOrder, func(a, b *history.ChangelogRecord) int {
		return cmp.Or(cmp.Compare(a.Requests, b.Requests), cmp.Compare(a.Partition, b.Partition),
			cmp.Compare(a.Offset, b.Offset))
	})
	byID := make(map[life]*changed)
	for _, c := range inOrder {
		log := history.Log{Topic: c.Requests, Partition: c.Partition}
		if x.changes[log] == nil {
			x.changes[log] = []*history.ChangelogRecord{}
		}
		if c.Kind == history.TimerChange && x.cut(c.Requests, c.ID) {
			continue
		}
		x.changes[log] = append(x.changes[log], c)
		if c.Kind != history.TimerChange {
			continue
		}
		id := life{log, c.ID}
		if byID[id] == nil {
			byID[id] = &changed{life: id}
			x.lives = append(x.lives, byID[id])
		}
		byID[id].changes = append(byID[id].changes, c)
	}
	return x
}

// cut reports whether a log has lost records of an ID.
func (in *index) cut(requests, id string) bool {
	return in.Scope.Cut[requests][id] || in.Scope.Undone[requests][id]
}

// broken notes a violation.
func (in *index) broken(rule, id string, where []history.Place, format string, args ...any) {
	in.found = append(in.found,
		history.Violation{Rule: rule, ID: id, Where: where, Text: fmt.Sprintf(format, args...)})
}

package history

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// index is a history, sorted.
type index struct {
	*History
	of     map[life]*facts
	byID   []*facts // in a fixed order
	undone []*facts // of IDs with records that a log has lost: see Scope.Cut
	steps  map[Log]*changelog
	logs   []*changelog // in a fixed order
	sent   map[Place]*Request
	moved  map[topicID]bool // see facts
	ended  time.Time        // the last moment
	found  []Violation
}

type topicID struct{ topic, id string }

// life names a timer ID of a request partition.
type life struct {
	Log
	id string
}

// facts are all facts about a life. Lists are in the order of offsets, except emissions, which may be on several
// partitions and are in the order of timestamps.
type facts struct {
	life
	requests  []*Request
	emissions []*Emission
	letters   []*Letter
	events    []*Event
	changes   []*ChangelogRecord
	pending   *Timer // at the end; nil: nothing
	moves     bool   // see Scope.Moving
	fates     fates  // of requests, by explain

	fired    bySource[*Emission]
	refused  bySource[*Letter] // dead letters of emissions
	triggers triggers
	origins  map[Place]origins // of requests that move
	moved    map[Place][]Place // the requests that move a timer which only one may have scheduled, by that one
}

// changelog has the changes of one request partition, in order.
type changelog struct {
	Log
	changes []*ChangelogRecord
	settled int64 // the last position
}

// The suffixes of a request topic's own topics (docs/internals/FORMAT.md). [Scope] uses the usual name for dead
// letters, whatever their topic is called.
const (
	changelogSuffix = ".waterclock.changelog"
	lettersSuffix   = ".waterclock.dead-letters"
	eventsSuffix    = ".waterclock.events"
)

// requestLog returns the request partition of a timer by its source, which may be a record of the changelog.
func requestLog(source Place) Log {
	return Log{strings.TrimSuffix(source.Topic, changelogSuffix), source.Partition}
}

// fromMove reports whether a source is that of a timer that was moved between partitions.
func fromMove(source Place) bool { return strings.HasSuffix(source.Topic, changelogSuffix) }

func newIndex(h *History) *index {
	x := &index{
		History: h, sent: make(map[Place]*Request, len(h.Requests)), of: make(map[life]*facts),
		steps: make(map[Log]*changelog), moved: make(map[topicID]bool), ended: h.Scope.Ended,
	}
	x.records()
	for _, f := range x.of {
		if x.cut(f.Topic, f.id) {
			x.undone = append(x.undone, f)
		} else {
			x.byID = append(x.byID, f)
		}
		slices.SortFunc(f.requests, func(a, b *Request) int { return cmp.Compare(a.Offset, b.Offset) })
		slices.SortFunc(f.emissions, func(a, b *Emission) int {
			return cmp.Or(cmp.Compare(a.Timestamp, b.Timestamp), comparePlaces(a.Place, b.Place))
		})
		slices.SortFunc(f.letters, byPlace)
		slices.SortFunc(f.events, byPlace)
		slices.SortFunc(f.changes, byPlace)
		f.lookUp(x.Scope.From[f.Log] == 0)
	}
	for _, l := range x.steps {
		x.logs = append(x.logs, l)
		slices.SortFunc(l.changes, byPlace)
		for _, c := range l.changes {
			if c.Kind == Checkpoint {
				l.settled = c.Position
			}
		}
	}
	for _, lives := range [][]*facts{x.byID, x.undone} {
		slices.SortFunc(lives,
			func(a, b *facts) int { return cmp.Or(compareLogs(a.Log, b.Log), cmp.Compare(a.id, b.id)) })
	}
	slices.SortFunc(x.logs, func(a, b *changelog) int { return compareLogs(a.Log, b.Log) })
	for _, f := range x.byID {
		if n := len(f.changes); n > 0 && !x.Scope.Pending {
			f.pending = f.changes[n-1].Timer
		}
		f.moves = x.Scope.Moving[f.Topic][f.id]
		f.fates = explain(x, f)
	}
	return x
}

// records sorts records by the life that they belong to.
func (in *index) records() {
	for i := range in.Requests {
		r := &in.Requests[i]
		in.sent[r.Place] = r
		f := in.facts(Log{r.Topic, r.Partition}, r.ID, r.Place, r.Seen, r.Acked)
		f.requests = append(f.requests, r)
	}
	for i := range in.Emissions {
		e := &in.Emissions[i]
		f := in.facts(requestLog(e.Source), e.ID, e.Source, e.Seen)
		f.emissions = append(f.emissions, e)
	}
	for i := range in.Letters {
		l := &in.Letters[i]
		id := l.ID
		if r := in.sent[l.Source]; r != nil { // a key that is too long is cut
			id = r.ID
		}
		f := in.facts(requestLog(l.Source), id, l.Source, l.Seen)
		f.letters = append(f.letters, l)
	}
	for i := range in.Events {
		e := &in.Events[i]
		about := e.about()
		id := e.Event.ID
		if r := in.sent[about]; r != nil { // a rejected request without a valid ID
			id = r.ID
		}
		f := in.facts(requestLog(about), id, e.Source, e.Seen)
		f.events = append(f.events, e)
	}
	for i := range in.Changes {
		c := &in.Changes[i]
		log := Log{c.Requests, c.Partition}
		if in.steps[log] == nil {
			in.steps[log] = &changelog{Log: log}
		}
		in.saw(c.Seen)
		if c.Kind != TimerChange || !in.cut(c.Requests, c.ID) {
			in.steps[log].changes = append(in.steps[log].changes, c)
		}
		if c.Kind != TimerChange {
			continue
		}
		source := Place{}
		if c.Timer != nil {
			source = c.Timer.Source
		}
		f := in.facts(log, c.ID, source)
		f.changes = append(f.changes, c)
	}
	for i := range in.Pending {
		t := &in.Pending[i]
		in.facts(requestLog(t.Source), t.ID, t.Source).pending = t
	}
}

// about returns a record of the request partition, or of its changelog, that the event is about.
func (e *Event) about() Place {
	if e.Source.Topic != "" {
		return e.Source
	}
	return e.Request
}

// facts returns the facts about an ID of a request partition. The caller adds one: it has a source, and was seen at
// some times. If the source is that of a timer that was moved between partitions, the fate of its request cannot be
// known, because no record names it.
func (in *index) facts(log Log, id string, source Place, seen ...time.Time) *facts {
	key := life{log, id}
	f := in.of[key]
	if f == nil {
		f = &facts{life: key}
		in.of[key] = f
	}
	if fromMove(source) && !in.cut(log.Topic, id) {
		in.moved[topicID{log.Topic, id}] = true
	}
	in.saw(seen...)
	return f
}

func (in *index) saw(moments ...time.Time) {
	for _, at := range moments {
		if at.After(in.ended) && in.Scope.Ended.IsZero() {
			in.ended = at
		}
	}
}

// settled reports whether the position has passed an offset; known says whether the history tells.
func (in *index) settled(log Log, offset int64) (settled, known bool) {
	if p, ok := in.Scope.Settled[log]; ok {
		return offset < p, true
	}
	if l := in.steps[log]; l != nil && in.Scope.Settled == nil {
		return offset < l.settled, true
	}
	return false, false
}

// endKnown reports whether the timers that are pending at the end are known for a request partition.
func (in *index) endKnown(log Log) bool { return in.Scope.Pending || in.steps[log] != nil }

// log returns the changes of a request partition.
func (in *index) log(partition Log) []*ChangelogRecord {
	if l := in.steps[partition]; l != nil {
		return l.changes
	}
	return nil
}

func (r *Record) where() Place { return r.Place }

func byPlace[T interface{ where() Place }](a, b T) int { return comparePlaces(a.where(), b.where()) }

func comparePlaces(a, b Place) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

func compareLogs(a, b Log) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

package planner

import (
	"iter"
	"time"

	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// Batch is consecutive requests of a log, or some firings, that enter the sequence together. A step takes it as a
// whole, unless [Take] cuts it.
//
// A batch of requests begins as their records ([Batch.Append]). [Batch.Set] or [Batch.Refuse] turns each of them into a
// request or a refusal. After [Planner.Prepare] the caller looks up IDs and Whole, and [Planner.Resolve] takes the
// answers. [Planner.Plan] leaves the entries alone.
type Batch struct {
	// Position is just behind the last request; for firings it is -1. Bytes is about how much memory the entries hold.
	Position int64
	Bytes    int64
	// Handed belongs to the caller: the time at which the batch was handed to its sub-partition.
	Handed time.Time
	// Full returns why no timer may be added if the given number are pending, or nil. A nil Full means no limit. A
	// timer that replaces another one adds none.
	Full func(pending int64) *timer.Refusal
	// IDs and Whole are unknown. For IDs the planner needs the place of the pending timer. For Whole it needs the timer
	// itself, because the requests may change it.
	IDs, Whole [][]byte
	// Labels are those of the timers that are pending under IDs and that a request of the batch cancels, by ID. The
	// caller sets them before Resolve if events are to have them. IDs without labels may be left out.
	Labels map[string]timer.Labels

	entries []Entry
	due     int64 // the earliest due time of its firings that are to be emitted; Never: there is none

	requests []timer.Request
	cancels  []bool  // by ID
	items    []*Item // by request, from Prepare on; nil: it is refused
}

// NewBatch returns a batch with room for n records.
func NewBatch(n int) *Batch { return &Batch{entries: make([]Entry, 0, n), due: Never} }

// Append adds the record of a request.
func (b *Batch) Append(record any, offset int64) {
	b.entries = append(b.entries, Entry{Entry: timer.Entry{Request: offset}, Tag: record})
	b.Position = offset + 1
}

// Records returns the records that are not refused.
func (b *Batch) Records() iter.Seq2[int, any] {
	return func(yield func(int, any) bool) {
		for i := range b.entries {
			if e := &b.entries[i]; e.Refusal == nil && !yield(i, e.Tag) {
				return
			}
		}
	}
}

// Use gives the batch memory for the requests of its records. The caller may use the memory again when the batch, and
// the batches that Split has returned, are planned.
func (b *Batch) Use(room []timer.Request) { b.requests = room[:len(b.entries)] }

// Set says which request a record is.
func (b *Batch) Set(i int, r timer.Request) { b.requests[i] = r }

// Refuse makes a record a dead letter.
func (b *Batch) Refuse(i int, why *timer.Refusal) {
	b.entries[i].Outcome, b.entries[i].Refusal = timer.Refused, why
}

// Cancels reports whether the request for which the n-th of IDs is looked up cancels.
func (b *Batch) Cancels(n int) bool { return b.cancels[n] }

// Split leaves the first n requests, which hold that many bytes, in the batch. It returns the rest, nil for none.
func (b *Batch) Split(n int, bytes int64) (rest *Batch) {
	if n == len(b.entries) {
		return nil
	}
	rest = &Batch{Position: b.Position, Bytes: b.Bytes - bytes, Handed: b.Handed, entries: b.entries[n:], due: Never}
	if b.requests != nil {
		rest.requests = b.requests[n:]
	}
	b.Position, b.Bytes, b.entries = b.entries[n-1].Request+1, bytes, b.entries[:n:n]
	return rest
}

// Prepare finds the IDs of a batch in memory, and keeps them there until the batch is planned.
func (p *Planner) Prepare(b *Batch) {
	b.items = make([]*Item, len(b.entries))
	for i := range b.entries {
		if b.entries[i].Refusal != nil {
			continue
		}
		r := &b.requests[i]
		it := p.known.find(r.ID)
		if it == nil {
			it = p.known.newItem(idOf(r), timer.Absent, nil)
			it.unknown = true
			if r.Depends() { // later requests of the batch find the timer that this one leaves
				b.Whole = append(b.Whole, r.ID)
			} else {
				if b.IDs == nil { // if one ID is unknown, most are
					b.IDs, b.cancels = make([][]byte, 0, len(b.entries)-i), make([]bool, 0, len(b.entries)-i)
				}
				b.IDs, b.cancels = append(b.IDs, r.ID), append(b.cancels, r.Schedule == nil)
			}
		}
		it.pins++
		b.items[i] = it
	}
}

// idOf returns the ID of a request for an item. If the request schedules a small timer, the ID is part of the timer's
// bytes. Otherwise it is a copy: an item may outlive a large timer (see memtable.IDIn), and the ID of a request that
// schedules nothing is part of a whole page of records. An item must not keep either alive.
func idOf(r *timer.Request) string {
	if len(r.Bytes) == 0 {
		return string(r.ID)
	}
	return memtable.IDIn(r.Bytes, r.ID)
}

// Resolve takes the answers of the store: the places of the timers that are pending under IDs, the timers that are
// pending under Whole (nil for none), and whether the store has them parked. Nothing can have happened in between,
// because an unknown ID neither fires nor is loaded. So a timer that is found here is treated as a load would treat it.
// Occurrences of a parked timer that are due by now count as missed, even if its target is healthy again before it
// comes back. That holds wherever the horizon is, because full memory may lower it below timers that were parked. A
// timer below the horizon that has no item is parked, or on its way back.
func (p *Planner) Resolve(b *Batch, refs []timer.Ref, timers []*timer.Timer, parked []bool, now int64) {
	for i, it := range b.items {
		if it == nil || !it.unknown {
			continue
		}
		if it.unknown = false; !b.requests[i].Depends() {
			it.ref, refs = refs[0], refs[1:]
			b.requests[i].Found = b.Labels[it.id]
			continue
		}
		p.known.set(it, timers[0])
		if it.soon || parked[0] {
			p.known.miss(it, now)
		}
		p.again(it)
		timers, parked = timers[1:], parked[1:]
	}
}

// Plan decides the requests of a batch, in order, and adds them to the sequence. It returns by how many bytes their
// memory exceeds that of the batch, because a request that steers holds the timer.
func (p *Planner) Plan(b *Batch) (more int64) {
	for i, it := range b.items {
		if it == nil {
			continue
		}
		if it.unknown {
			panic("planner: a batch is planned before its IDs are looked up")
		}
		if b.Full != nil {
			p.tally.count.mu.Lock()
		}
		r, e := &b.requests[i], &b.entries[i]
		why := b.tooMany(r, it, p.tally.others(it))
		if why == nil {
			more += p.decide(e, r, it)
		}
		if b.Full != nil {
			p.tally.count.mu.Unlock()
		}
		if why != nil {
			b.Refuse(i, why)
			it.pins--
			p.known.release(it, nil)
		}
	}
	b.Bytes += more
	b.Full, b.IDs, b.Whole, b.Labels, b.requests, b.cancels, b.items = nil, nil, nil, nil, nil, nil, nil
	p.sequence.rest = append(p.sequence.rest, b)
	p.known.evict() // not earlier, because it forgets items
	return more
}

// decide plans one request.
//
// If a request steers or has a condition, its result depends on the pending timer. So the whole timer is looked up and
// not only its place, and it is decided again if a firing before it is rolled back.
//
// A trigger makes the timer fire immediately, by an entry of its own. That firing may wait for its target and be rolled
// back, and until then the committed state is that the timer is triggered. So a trigger fires once, however the steps
// in between end.
func (p *Planner) decide(e *Entry, r *timer.Request, it *Item) (more int64) {
	e.item, e.Tag = it, nil
	if r.Depends() || r.Schedule != nil && r.Schedule.IsSkipped() {
		own := *r
		e.request = &own
	}
	p.recurrences.decide(e, r, it.ref, it.timer)
	if e.request != nil && e.After != nil && e.Value == nil {
		more = Held(e.After)
	}
	p.tally.note(e)
	it.pins--
	if e.After != it.timer || e.After == nil { // otherwise it stays in its place
		missed := it.missed
		p.known.set(it, e.After)
		if e.continues(r) {
			p.known.miss(it, missed)
		}
	}
	if e.Outcome == timer.Resumed { // if it is also triggered, it fires first, and missed occurrences are decided then
		p.known.miss(it, r.At)
	}
	return more
}

// continues reports whether the request has replaced the timer that it found except its schedule.
func (e *Entry) continues(r *timer.Request) bool {
	return e.Outcome == timer.Replaced && e.After != r.Schedule
}

// decide fills in the entry of a request. pending is the timer that the request finds, and before its place.
func (re recurrences) decide(e *Entry, r *timer.Request, before timer.Ref, pending *timer.Timer) {
	e.Entry, e.Value = r.Apply(before, pending), nil
	switch e.Outcome {
	case timer.Scheduled, timer.Replaced:
		switch {
		case e.After != r.Schedule:
		case e.Outcome == timer.Scheduled && e.After.IsSkipped():
			re.end(&e.Entry, e.After, max(r.At, e.After.Due)) // now, as if it were late
		default:
			e.Value = r.Bytes
		}
	case timer.Resumed:
		re.resume(&e.Entry, r.At)
	}
}

// tooMany returns why a request may not add a timer to the pending ones; nil if it may.
func (b *Batch) tooMany(r *timer.Request, it *Item, pending int64) *timer.Refusal {
	if b.Full == nil || r.Schedule == nil || !it.ref.IsAbsent() || !r.If.Holds(it.ref) {
		return nil
	}
	return b.Full(pending)
}

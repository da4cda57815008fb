package planner

import "github.com/waterclock/waterclock/internal/timer"

// Batch is some consecutive requests of a log, which enter the sequence together.
type Batch struct {
	// Position is just behind the last request, and Bytes is about how much memory all of them hold.
	Position int64
	Bytes    int64
	// Full returns why no timer may be added if the given number are pending, or nil. A nil Full means no limit. A
	// timer that replaces another one adds none.
	Full func(pending int64) *timer.Refusal

	requests []request
	items    []*Item // that Meet has found, by request
}

// request is a request to be planned, or rejected.
type request struct {
	timer.Request
	value   []byte
	record  any // set if the request is rejected, or may be
	refusal *timer.Refusal
}

// NewBatch returns a batch with room for n requests.
func NewBatch(n int) *Batch { return &Batch{requests: make([]request, 0, n)} }

// Add adds the request of a record; value is the bytes of the timer that it schedules.
func (b *Batch) Add(record any, r timer.Request, value []byte) {
	b.requests = append(b.requests, request{Request: r, value: value, record: record})
}

// Refuse adds a request that becomes a dead letter.
func (b *Batch) Refuse(record any, offset int64, why *timer.Refusal) {
	b.requests = append(b.requests, request{Request: timer.Request{Offset: offset}, record: record, refusal: why})
}

// Lookup is what the caller has to look up in the store. For IDs it needs the place of the pending timer. For Whole it
// needs the timer itself, because the requests may change it.
type Lookup struct {
	IDs, Whole   [][]byte
	items, whole []*Item
	p            *Planner
}

// Empty reports whether everything is known.
func (l *Lookup) Empty() bool { return len(l.items)+len(l.whole) == 0 }

// Meet finds out what is known of the IDs of a batch, and keeps that in memory until the batch is planned. It returns
// the IDs that the caller has to look up.
func (p *Planner) Meet(b *Batch) (unknown Lookup) {
	n := len(b.requests)
	b.items, unknown.p = make([]*Item, n), p
	for i := range b.requests {
		r := &b.requests[i]
		if r.refusal != nil {
			continue
		}
		it := p.known.find(r.ID)
		if it == nil {
			it = p.known.newItem(string(r.ID), timer.Absent, nil)
			it.unknown = true
			if r.Depends() { // later requests of the batch find the timer that this one leaves
				unknown.Whole, unknown.whole = append(unknown.Whole, r.ID), append(unknown.whole, it)
			} else {
				if unknown.IDs == nil { // if one ID is unknown, most are
					unknown.IDs, unknown.items = make([][]byte, 0, n-i), make([]*Item, 0, n-i)
				}
				unknown.IDs, unknown.items = append(unknown.IDs, r.ID), append(unknown.items, it)
			}
		}
		it.pins++
		b.items[i] = it
	}
	return unknown
}

// Found takes the answers of the store: what is pending under each of the IDs, the timers under each of Whole (nil for
// none), and whether the store has them parked. Nothing can have happened in between, because an unknown ID neither
// fires nor is loaded. So a timer that is found here is treated as a load would treat it. Occurrences of a parked timer
// that are due by now count as missed, even if its target is healthy again before it comes back. That holds wherever
// the horizon is, because full memory may lower it below timers that were parked. A timer below the horizon that has no
// item is parked, or on its way back.
func (l *Lookup) Found(refs []timer.Ref, timers []*timer.Timer, parked []bool, now int64) {
	for i, it := range l.items {
		it.ref, it.unknown = refs[i], false
	}
	for i, it := range l.whole {
		t := timers[i]
		it.unknown = false
		l.p.known.set(it, t)
		if it.near || parked[i] {
			l.p.known.miss(it, now)
		}
		l.p.again(it)
	}
}

// Plan decides the requests of a batch, in order, and adds them to the sequence. It returns by how many bytes their
// memory exceeds that of the batch, because a request that steers holds the timer.
func (p *Planner) Plan(b *Batch) (more int64) {
	c := &chunk{entries: make([]Entry, len(b.requests)), bytes: b.Bytes, position: b.Position, due: Never}
	for i := range b.requests {
		r, it, e := &b.requests[i], b.items[i], &c.entries[i]
		if r.refusal != nil {
			e.Request, e.Outcome, e.Refusal, e.Tag = r.Offset, timer.Refused, r.refusal, r.record
			continue
		}
		if it.unknown {
			panic("planner: a batch is planned before its IDs are looked up")
		}
		if b.Full != nil {
			p.tally.count.mu.Lock()
		}
		why := b.tooMany(r, it, p.tally.others(it))
		if why == nil {
			more += p.decide(e, r, it)
		}
		if b.Full != nil {
			p.tally.count.mu.Unlock()
		}
		if why != nil {
			e.Request, e.Outcome, e.Refusal, e.Tag = r.Offset, timer.Refused, why, r.record
			it.pins--
			p.known.release(it)
		}
	}
	c.bytes += more
	p.sequence.rest = append(p.sequence.rest, c)
	p.known.evict() // not earlier, because it forgets items
	return more
}

// decide plans one request.
//
// If a request steers or has a condition, its result depends on what it finds. So the whole timer is looked up for it
// and not only its place, and it is decided again if a firing before it is rolled back.
//
// A trigger makes the timer fire at once, by an entry of its own. That firing may wait for its target and be rolled
// back, and until then the committed state is that the timer is triggered. So a trigger fires once, whatever happens to
// the steps in between.
func (p *Planner) decide(e *Entry, r *request, it *Item) (more int64) {
	e.item = it
	if r.Depends() {
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
		p.known.set(it, e.After)
	}
	if e.Outcome == timer.Resumed { // if it is also triggered, it fires first, and missed occurrences are decided then
		p.known.miss(it, r.At)
	}
	return more
}

// decide fills in the entry of a request. pending is the timer that the request finds, and before its place.
func (re recurrences) decide(e *Entry, r *request, before timer.Ref, pending *timer.Timer) {
	e.Entry, e.Value = r.Apply(before, pending), nil
	switch e.Outcome {
	case timer.Scheduled, timer.Replaced:
		e.Value = r.value
	case timer.Resumed:
		re.resume(&e.Entry, r.At)
	}
}

// tooMany returns why a request may not add a timer to the pending ones; nil if it may.
func (b *Batch) tooMany(r *request, it *Item, pending int64) *timer.Refusal {
	if b.Full == nil || r.Schedule == nil || !it.ref.IsAbsent() || !r.If.Holds(it.ref) {
		return nil
	}
	return b.Full(pending)
}

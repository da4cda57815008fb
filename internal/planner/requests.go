package planner

import "github.com/waterclock/waterclock/internal/timer"

// Batch is a run of requests in the order of their log, which enter the sequence as
// one.
type Batch struct {
	// Position is just behind the last request, and Bytes about what all of them hold
	// in memory.
	Position int64
	Bytes    int64
	// Full returns why another timer may not be added to so many pending ones, or nil. A nil Full
	// means no limit. A timer that takes another's place adds none.
	Full func(pending int64) *Refusal

	requests []request
	items    []*Item // that Meet has found, by request
}

// request is one that is to be planned, or refused.
type request struct {
	timer.Request
	value   []byte
	record  any // of one that is refused, or may be
	refusal *Refusal
}

// NewBatch returns a batch with room for n requests.
func NewBatch(n int) *Batch { return &Batch{requests: make([]request, 0, n)} }

// Add adds the request of a record; value is the bytes of the timer that it schedules.
func (b *Batch) Add(record any, r timer.Request, value []byte) {
	b.requests = append(b.requests, request{Request: r, value: value, record: record})
}

// Refuse adds a request, at an offset, that becomes a dead letter.
func (b *Batch) Refuse(record any, offset int64, why *Refusal) {
	b.requests = append(b.requests, request{Request: timer.Request{Offset: offset}, record: record, refusal: why})
}

// Len is how many requests there are.
func (b *Batch) Len() int { return len(b.requests) }

// Lookup is what the store is to be asked for: of IDs for the place of what is pending,
// of Whole, whose requests may leave something of it, for the timer.
type Lookup struct {
	IDs, Whole   [][]byte
	items, whole []*Item
	p            *Planner
}

// Empty reports whether everything is known.
func (l *Lookup) Empty() bool { return len(l.items)+len(l.whole) == 0 }

// Meet finds out what is known of the IDs of a batch, and has nothing of it forgotten
// until the batch is planned. What is unknown is to be looked up.
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
			if r.Depends() { // what comes behind another request of the batch knows the timer by that
				unknown.Whole, unknown.whole = append(unknown.Whole, r.ID), append(unknown.whole, it)
			} else {
				if unknown.IDs == nil { // most are, where one is
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

// Found takes what is pending in the store under each of the IDs, the timers that are under each of Whole (nil for
// none), and whether the store has them parked. Nothing can have happened in between, because an unknown ID neither
// fires nor is loaded. So a timer that is found here is treated as a load would treat it. Occurrences of a parked timer
// that are due by now count as missed, even if its target is healthy again before it comes back, and wherever the
// horizon is: memory that is full lowers it below timers that were parked. A timer below the horizon that has no item
// is parked, or on its way back.
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
		if !it.near {
			continue
		}
		if again := l.p.rescheduled(t); again != t {
			l.p.reschedule(it, again)
		}
	}
}

// Plan decides the requests of a batch, in order, and adds them to the sequence. It
// returns how many bytes of memory they hold beyond those of the batch: a request that
// steers holds the timer.
func (p *Planner) Plan(b *Batch) (more int64) {
	c := &chunk{entries: make([]Entry, len(b.requests)), bytes: b.Bytes, position: b.Position, due: never}
	for i := range b.requests {
		r, it, e := &b.requests[i], b.items[i], &c.entries[i]
		e.chunk = c
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
	p.known.evict() // not before: it forgets items, and those of the batch have been met
	return more
}

// decide plans one request.
//
// If a request steers or has a condition, its result depends on what it finds. So the whole timer is looked up for it
// and not its place alone, and it is decided again if a firing before it is rolled back.
//
// A trigger has the timer fire at once, by an entry of its own. That firing may wait for its target
// and be rolled back, and until then it is committed that the timer is triggered. So a trigger fires
// once, whatever becomes of the steps in between.
func (p *Planner) decide(e *Entry, r *request, it *Item) (more int64) {
	e.item = it
	if r.Depends() {
		own := *r
		e.request = &own
	}
	p.decideOn(e, r, it.ref, it.timer)
	if e.request != nil && e.After != nil && e.Value == nil {
		more = Held(e.After)
	}
	p.tally.note(e)
	it.pins--
	if e.After != it.timer || e.After == nil { // else it is where it is
		p.known.set(it, e.After)
	}
	if e.Outcome == timer.Resumed { // one that is triggered as well fires first: what it has missed is decided then
		p.known.miss(it, r.At)
	}
	return more
}

// decideOn fills in the entry of a request. is is what the request finds pending, at before.
func (p *Planner) decideOn(e *Entry, r *request, before timer.Ref, is *timer.Timer) {
	e.Entry, e.Value = r.Apply(before, is), nil
	switch e.Outcome {
	case timer.Scheduled, timer.Replaced:
		e.Value = r.value
	case timer.Resumed:
		p.resume(&e.Entry, r.At)
	}
}

// tooMany is why a request may not add a timer to those that are pending.
func (b *Batch) tooMany(r *request, it *Item, pending int64) *Refusal {
	if b.Full == nil || r.Schedule == nil || !it.ref.IsAbsent() || !r.If.Holds(it.ref) {
		return nil
	}
	return b.Full(pending)
}

package planner

import "github.com/waterclock/waterclock/internal/timer"

// While a target is unhealthy its due timers stay pending and are parked: moved, in
// the store alone, from the rows by due time to rows by target, so that no scan steps
// over them.

// Parkings are timers to be parked, by what they wait for.
type Parkings map[timer.TopicPartition]*Parking

// Parking is the timers that are to be parked for one target.
type Parking struct {
	Timers []*timer.Timer
	Bytes  int64 // that they hold in memory
	items  []*Item
}

// hold keeps a due item from firing. If the store has its row, the item is to be parked. Otherwise it waits until the
// store has the row, and a flush is wanted.
func (p *Planner) hold(it *Item, by timer.TopicPartition, now int64, out *Parkings) {
	it.permit = nil
	p.known.miss(it, now)
	if it.kept() {
		it.waiting = true
		p.wanted = true
		return
	}
	it.parking = true
	if *out == nil {
		*out = make(Parkings)
	}
	l := (*out)[by]
	if l == nil {
		l = &Parking{}
		(*out)[by] = l
	}
	l.items, l.Timers, l.Bytes = append(l.items, it), append(l.Timers, it.timer), l.Bytes+Held(it.timer)
}

// Parked forgets the timers that the store has parked. It leaves alone items that have changed meanwhile, which may be on
// their way to be parked again as another timer. An item that a request has met waits for the request, and is looked at
// again after that.
func (p *Planner) Parked(l *Parking) {
	for i, it := range l.items {
		switch {
		case !it.parking || it.timer != l.Timers[i]:
		case it.kept():
			it.parking = false
			it.waiting = true
		default:
			p.known.drop(it)
			p.known.forget(it)
		}
	}
}

// Admit takes in timers that are no longer parked: they fire soon. With a permit, which is passed to Hold, they may fire
// although their target is unhealthy. If an item says otherwise, the timer has been replaced or cancelled meanwhile.
// Occurrences that were due by now were missed.
func (p *Planner) Admit(timers []*timer.Timer, permit any, now int64) {
	for _, t := range timers {
		it := p.known.find(t.ID)
		switch {
		case it == nil:
			it = p.known.newItem(string(t.ID), t.Ref(), t)
		case it.unknown || it.ref != t.Ref() || it.near:
			p.known.encode(it)
			continue
		}
		p.known.table.Remove(it.number)
		p.known.unmiss(it)
		it.timer, it.permit, it.waiting, it.parking = t, permit, false, false
		p.known.miss(it, now)
		p.known.insert(it)
	}
	p.known.evict() // the store has what is forgotten, by due time again
}

// Crowded reports whether missed timers take so much memory that no more are to be admitted. It ends when they have
// fired or were let go.
func (p *Planner) Crowded() bool { return p.known.missed > p.known.limit/2 }

// Wanted reports whether a timer waits for a flush so that it can be parked.
func (p *Planner) Wanted() bool { return p.wanted }

package planner

import "github.com/waterclock/waterclock/internal/timer"

// While a target is unhealthy, its due timers stay pending and are parked: they are moved, in the store only, from the
// rows by due time to rows by target, so that no scan steps over them.

// Parkings has the timers to be parked, by the target that they wait for.
type Parkings map[timer.TopicPartition]*Parking

// Parking is the timers to be parked for one target.
type Parking struct {
	Timers []*timer.Timer
	Bytes  int64 // how much memory they hold
	items  []*Item
}

// hold keeps a due item from firing. If the store has its row, hold adds it to out, to be parked. Otherwise the item
// waits until the store has the row, and a flush is wanted. The occurrence was missed, unless a rate defers it.
func (k *known) hold(it *Item, by timer.TopicPartition, now int64, out *Parkings) {
	it.permit = nil
	if by.Partition != timer.Deferred {
		k.miss(it, now)
	}
	if it.kept() {
		it.waiting = true
		k.dirty.wanted = true
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

// Parked forgets the timers that the store has parked. It leaves items alone that have changed since Fire, which may be
// about to be parked again as another timer. An item of a prepared batch waits for its request, and is released after
// that.
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

// Admit adds timers that are no longer parked: they fire soon. With a permit, which is passed to Hold, they may fire
// although their target is unhealthy. If an item disagrees, the timer has been replaced or cancelled since it was read.
// Occurrences that were due by missed were missed; 0: none.
func (p *Planner) Admit(timers []*timer.Timer, permit any, missed int64) {
	for _, t := range timers {
		it := p.known.find(t.ID)
		switch {
		case it == nil:
			it = p.known.newItem(string(t.ID), t.Ref(), t)
		case it.unknown || it.ref != t.Ref() || it.soon || it.timer != nil && it.timer.Occurrence != t.Occurrence:
			p.known.encode(it, nil)
			continue
		}
		p.known.table.Remove(it.number)
		p.known.miss(it, 0)
		it.timer, it.permit, it.waiting, it.parking = t, permit, false, false
		p.known.miss(it, missed)
		p.known.insert(it)
		if p.again(it); it.soon {
			it.permit = permit
		}
	}
	p.known.evict() // evicted timers are in the store, in rows by due time
}

package planner

import "github.com/waterclock/waterclock/internal/timer"

// While a target is unhealthy its due timers stay pending and are parked: moved, in
// the store alone, from the rows by due time to rows by target, so that no scan steps
// over them.

// Parkings are timers to be parked, by what they wait for.
type Parkings map[timer.TopicPartition]*Parking

// Parking is what is to be parked for one target.
type Parking struct {
	Timers []*timer.Timer
	Bytes  int64 // that they hold in memory
	items  []*Item
}

// hold keeps a due item from firing: for good if the store has its row, else
// until it has, for which a checkpoint is wanted.
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

// Parked forgets what the store has parked, but for what has changed meanwhile: it may be
// on its way to be parked again, as another timer. What a request has met that may leave
// it as it is waits for that, and is looked at again.
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

// Admit puts timers that were parked, and are not any more, among those that fire soon; with a
// permit, which Hold is shown, they may fire although their target is unhealthy. An ID
// with an item that says otherwise has been replaced or cancelled. What was due by now
// was missed.
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

// Crowded reports whether so much is kept in memory of what was missed that no more is to be
// admitted. It ends when that has fired, or was let go.
func (p *Planner) Crowded() bool { return p.known.missed > p.known.limit/2 }

// Wanted reports whether a timer waits to be parked until a checkpoint has brought
// it into the store.
func (p *Planner) Wanted() bool { return p.wanted }

package planner

import (
	"github.com/waterclock/waterclock/internal/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// maxFirings is how many firings a chunk holds at most, and maxFiringBytes
	// at how many bytes it is full.
	maxFirings     = 512
	maxFiringBytes = 1 << 20
	// maxOverdue is how many occurrences may follow others of the same timer at once. So timers that catch up do not
	// take all of a step.
	maxOverdue = 500
	// setBack is by how much the clock must have gone back before slots are closed, so that timers due then are
	// encoded again.
	setBack = 60_000 // ms
	// ahead is by how much what was missed must lie ahead of the clock for all items to be looked
	// through: some callers come with a time that is a little older than that of others.
	ahead = 1000 // ms
)

// Hold says of a due timer what it waits for, if it must not be emitted now. permit
// is what Admit was given with it, nil for most. It must not call the planner.
type Hold func(t *timer.Timer, permit any) (by timer.TopicPartition, held bool)

// dueItems are items that are due; the lists are used again, unless they are long.
type dueItems struct{ free, behind []*Item }

// Fire plans the firings of timers that are due now: at most limit, and at most bytes in all, except that the
// last may exceed it. A timer that hold holds does not fire. It is to be parked, or waits until it can be. But a timer that is too late does not
// wait. fired includes what was planned since the last call for timers that come at another time by the rules of their
// zones.
func (p *Planner) Fire(now int64, limit int, bytes int64, hold Hold) (fired timer.Size, parkings Parkings) {
	fired, p.moved = p.moved, timer.Size{}
	p.opened = min(p.opened, now)
	p.known.notAhead(now, p.ahead)
	p.known.table.SetBack(now + setBack) // else nothing is encoded until it is there again
	overdue, behind := maxOverdue, p.roomBehind()
	for first := true; p.open && limit > 0 && bytes > 0; first = false {
		if !first { // each pass fires one occurrence of a timer
			limit = min(limit, overdue)
		}
		n := limit
		for limit > 0 && bytes > 0 {
			it, decoded := p.popDue(now)
			if it == nil {
				break
			}
			if it.unsettled() && behind.IsUsedUp() && it.permit == nil {
				if decoded {
					it.own()
				}
				it.waiting = true
				continue
			}
			bytes -= Held(it.timer) + EntryMemory
			limit--
			by, held := hold(it.timer, it.permit)
			held = held && !Expires(it.timer, now)
			if !held && !p.Reckons(it.timer) {
				by, held = Unreckoned, true
			}
			if held {
				if decoded {
					it.own()
				}
				p.hold(it, by, now, &parkings)
			} else if p.due.add(it); it.unsettled() {
				behind = behind.Minus(timer.Size{Entries: 1, Bytes: Held(it.timer) + EntryMemory})
			}
		}
		if n == limit {
			break
		}
		if !first {
			overdue -= n - limit
		}
		q := &p.sequence
		q.first = p.fireAll(q.first, p.due.free, now, &fired)
		q.rest = p.fireAll(q.rest, p.due.behind, now, &fired)
		p.due.clear()
	}
	p.known.evict() // what recurs takes more as an item than as a record
	return fired, parkings
}

// Behind bounds the firings that stand behind requests which are not settled. Further ones wait until their own
// requests are applied. While one planner of a partition waits for a look-up, requests that others have planned are not
// settled, and firings behind these must leave room for firings that could go. A sole planner needs no bound; the
// default is none.
func (p *Planner) Behind(room timer.Size) { p.behind = room }

// roomBehind is how much of that bound is unused.
func (p *Planner) roomBehind() timer.Size {
	left := p.behind
	for _, c := range p.sequence.rest {
		if c.fires() {
			left = left.Minus(c.size())
		}
	}
	return left
}

// unsettled reports whether an earlier entry of the item is not committed.
func (it *Item) unsettled() bool { return it.last != nil && !it.last.chunk.committed }

// popDue takes out what is due first, nil if nothing is. One that was just decoded has its
// bytes in a chunk of many.
func (p *Planner) popDue(now int64) (it *Item, decoded bool) {
	at := p.known.table.Pop(now)
	switch at.Kind() {
	case memtable.None:
		return nil, false
	case memtable.Object:
		it = p.known.items[at.Number()]
		p.known.left(it)
		return it, false
	}
	return p.known.decode(at, false), true
}

// add adds an item by where its firing has its place: before all requests, or behind
// them because an earlier entry of it is there.
func (d *dueItems) add(it *Item) {
	if it.unsettled() {
		d.behind = append(d.behind, it)
	} else {
		d.free = append(d.free, it)
	}
}

func (d *dueItems) clear() {
	clear(d.free)
	clear(d.behind)
	d.free, d.behind = d.free[:0], d.behind[:0]
	if cap(d.free) > maxFirings {
		d.free = nil
	}
	if cap(d.behind) > maxFirings {
		d.behind = nil
	}
}

// fireAll adds chunks of firings to a list. An entry keeps its whole chunk in memory
// until it is applied: so a chunk is as long as what it holds.
func (p *Planner) fireAll(list []*chunk, items []*Item, now int64, fired *timer.Size) []*chunk {
	for len(items) > 0 {
		n, bytes := 0, int64(0)
		for n < min(len(items), maxFirings) && (n == 0 || bytes < maxFiringBytes) {
			bytes += Held(items[n].timer) + EntryMemory
			n++
		}
		c := &chunk{entries: make([]Entry, n), bytes: bytes, position: -1, due: never}
		for i, it := range items[:n] {
			p.fireOne(it, &c.entries[i], c, now)
			if t := c.entries[i].Emit; t != nil {
				c.due = min(c.due, t.FiresAt())
			}
		}
		list, items = append(list, c), items[n:]
		*fired = fired.Plus(c.size())
	}
	return list
}

// fireOne plans the firing of an item that is due. What follows of the
// same timer and is due too has its turn behind what is due for the first time.
func (p *Planner) fireOne(it *Item, e *Entry, c *chunk, now int64) {
	e.item, e.chunk, e.firing = it, c, true
	if it.missed > now {
		p.known.miss(it, now) // what comes behind this was not missed
	}
	e.missed = it.missed
	e.Entry = p.occur(it, now)
	e.Tag = it.permit
	if e.After != nil {
		e.Value = e.After.AppendTo(nil)
	}
	p.tally.note(e)
	permit := it.permit
	p.known.set(it, e.After)
	if e.Emit == nil && e.After != nil {
		it.permit = permit // nothing was emitted with it: it is for what follows
	}
	if it.near && it.ref.Due < now {
		p.known.table.Remove(it.number)
		p.known.table.Put(it.number, memtable.Soon, memtable.Key{Due: now, Seq: it.ref.Offset})
	}
}

package planner

import (
	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// maxFirings is how many firings a batch holds at most. It is also full at maxFiringBytes.
	maxFirings     = 512
	maxFiringBytes = 1 << 20
	// maxOverdue is how many occurrences may follow others of the same timer in one call of Fire. So timers that catch
	// up do not take all of a step.
	maxOverdue = 500
	// setBack is by how much the clock must have gone back before slots are closed again, so that timers of that time
	// can be encoded.
	setBack = 60_000 // ms
	// ahead is how far a missed occurrence must lie ahead of the clock before all items are checked. Some callers have
	// a time that is a little older than that of others.
	ahead = 1000 // ms
)

// Hold reports whether a due timer must not be emitted now, and for which target it waits. permit is the permit that
// Admit was called with, nil for most timers. Unless fires is set, nothing is emitted even if it is not held: it is too
// late, or skipped. A Hold must not call the planner.
type Hold func(t *timer.Timer, permit any, fires bool) (by timer.TopicPartition, held bool)

// dueItems are items that are due. The lists are reused unless they are long.
type dueItems struct{ free, behind []*Item }

// Fire plans the firings of timers that are due now, in Unix ms: as many as there is room for, except that the last one
// may exceed the bytes. A timer does not fire if hold holds it. It is among parkings, or waits until it can be parked.
// But hold does not delay a timer that is too late, or for which calendars leave no time. fired includes the entries of
// timers that new rules of their zones have moved to another time since the last call.
//
// behind bounds the firings that stand behind uncommitted requests of their own IDs. Further ones wait until those
// requests are committed. While one planner of a partition waits for a look-up, requests of the other planners cannot
// be committed, and firings behind them must leave room for firings that could be committed. A timer with a permit is
// exempt, and a sole planner needs no bound.
func (p *Planner) Fire(now int64, room, behind timer.Size, hold Hold) (fired timer.Size, parkings Parkings) {
	fired, p.rescheduled = p.rescheduled, timer.Size{}
	p.opened = min(p.opened, now)
	p.known.notAhead(now, p.ahead)
	p.known.table.SetBack(now + setBack) // otherwise no timer is encoded until the clock has caught up
	overdue, limit, bytes := maxOverdue, room.Entries, room.Bytes
	behind = p.sequence.roomBehind(behind)
	for first := true; p.open && limit > 0 && bytes > 0; first = false {
		if !first { // each pass fires one occurrence of a timer
			limit = min(limit, overdue)
		}
		n := limit
		for limit > 0 && bytes > 0 {
			it, decoded := p.known.popDue(now)
			if it == nil {
				break
			}
			if it.unsettled() && behind.IsUsedUp() && it.permit == nil { // never one that was just decoded
				it.waiting = true
				continue
			}
			bytes -= Held(it.timer) + EntryMemory
			limit--
			ends := Expires(it.timer, now) || p.recurrences.isOver(it.timer)
			by, held := hold(it.timer, it.permit, !ends && !it.timer.SkipsMissed(max(p.opened, it.missed)))
			held = held && !ends
			if !held && !KnowsZone(p.recurrences.schedules, it.timer) {
				by, held = UnknownZone, true
			}
			if held {
				if decoded {
					p.known.own(it)
				}
				p.known.hold(it, by, now, &parkings)
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
		one := func(it *Item, e *Entry) { p.fireOne(it, e, now) }
		q.first = appendFirings(q.first, p.due.free, one, &fired)
		q.rest = appendFirings(q.rest, p.due.behind, one, &fired)
		p.due.clear()
	}
	p.known.evict() // recurring timers take more memory as items than as records
	return fired, parkings
}

// roomBehind returns how much of a bound for firings behind requests is unused.
func (s *sequence) roomBehind(left timer.Size) timer.Size {
	for _, b := range s.rest {
		if b.fires() {
			left = left.Minus(b.Size())
		}
	}
	return left
}

// unsettled reports whether an earlier entry of the item is not committed.
func (it *Item) unsettled() bool { return it.last != nil }

// popDue takes out the first due timer, nil if none is due. If it was just decoded, its bytes are in a chunk with
// others.
func (k *known) popDue(now int64) (it *Item, decoded bool) {
	at := k.table.Pop(now)
	if at.Kind() == memtable.None {
		return nil, false
	}
	k.retried = false
	if at.Kind() != memtable.Object {
		return k.decode(at, false), true
	}
	it = k.items[at.Number()]
	k.left(it)
	return it, false
}

// add adds an item to one of the lists. Its firing stands before all requests, or behind them if an earlier entry of
// the item is there.
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

// appendFirings adds batches of firings to a list. They have no spare entries, because they stay in memory until all
// their entries are committed.
func appendFirings(list []*Batch, items []*Item, one func(*Item, *Entry), fired *timer.Size) []*Batch {
	for len(items) > 0 {
		n, bytes := 0, int64(0)
		for n < min(len(items), maxFirings) && (n == 0 || bytes < maxFiringBytes) {
			bytes += Held(items[n].timer) + EntryMemory
			n++
		}
		b := &Batch{entries: make([]Entry, n), Bytes: bytes, Position: -1, due: Never}
		for i, it := range items[:n] {
			one(it, &b.entries[i])
			if t := b.entries[i].Emit; t != nil {
				b.due = min(b.due, t.FiresAt())
			}
		}
		list, items = append(list, b), items[n:]
		*fired = fired.Plus(b.Size())
	}
	return list
}

// fireOne plans the firing of a due item. If the timer's next occurrence is due too, it has its turn after timers that
// are due for the first time.
func (p *Planner) fireOne(it *Item, e *Entry, now int64) {
	e.item, e.firing = it, true
	if it.missed > now {
		p.known.miss(it, now) // later occurrences were not missed
	}
	e.missed = it.missed
	e.Entry = p.recurrences.occur(it.timer, now, max(p.opened, it.missed))
	e.Tag = it.permit
	if e.After != nil {
		e.Value = e.After.AppendTo(nil)
	}
	p.tally.note(e)
	permit := it.permit
	p.known.set(it, e.After)
	if e.Emit == nil && e.After != nil {
		it.permit = permit // it was not used for an emission, so the next occurrence gets it
	}
	if it.soon && it.ref.Due < now {
		p.known.table.Remove(it.number)
		p.known.table.Put(it.number, memtable.Soon, timer.Ref{Due: now, Offset: it.ref.Offset})
	}
}

package planner

import (
	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// dirty lists the items that committed steps have changed since the last flush began. Changes of records and tombstones
// are in the table. Together they are the difference between the memtable and the store.
//
// A committed step is durable in the changelog, so writing each one to disk would gain nothing: after a crash the store
// replays from its position in any case. Changes wait in memory instead, and the store never sees a timer that comes
// and goes between two flushes. A flush writes everything that has changed, together with the position behind the last
// committed step. So after each flush the store holds the result of a prefix of the changelog.
//
// A large flush takes a second or more, and steps continue during it. So BeginFlush sets aside all changes so far. From
// then on nothing is dirty until the next step is committed. Its changes are compared with the flush as if the store
// had that already. There is one flush at a time.
//
// An item, record or tombstone stays until the store has the result of the last committed step for its ID.
//
// Only the memory of timers that are not soon counts here, because soon timers are counted already. So nothing has
// to be written while there is room for pending timers, however many come and go. A timer that is given out or evicted
// counts here again.
type dirty struct {
	items    []*Item // the items that differ from the store, each once
	bytes    int64   // about the memory of the items that are not soon; see Item.dirtyBytes
	flushing []*Item // being written; nil: its change has moved to a tombstone
	out      bool    // a flush is in progress; EndFlush ends that
	flushes  int64   // how many have ended
	wanted   bool    // a timer waits for a flush so that it can be parked; BeginFlush ends that
}

// change is how an item differs from the store; its zero value: not at all.
type change struct {
	stored   timer.Ref    // the place in the store, or the one it will have after the flush under way
	after    *timer.Timer // the pending timer, nil if there is none; set if the change is stale
	at       int32        // place in dirty.items, counted from 1; 0: it does not differ
	flushing int32        // place in dirty.flushing, counted from 1; 0: it is not being flushed
}

// stale reports whether the store may lack a committed change of the item.
func (c *change) stale() bool { return c.at != 0 || c.flushing != 0 }

// dirtyBytes returns about how much memory a dirty item takes. It leaves out the memory that is counted for soon items.
func (it *Item) dirtyBytes() (n int64) {
	c := &it.change
	if c.at == 0 {
		return 0
	}
	if !it.soon {
		n = itemMemory
	}
	if c.after != nil && !(it.soon && it.timer == c.after) {
		n += int64(c.after.Size())
	}
	return n
}

// apply applies the change of a step to one ID.
func (d *dirty) apply(it *Item, before timer.Ref, after *timer.Timer) {
	c := &it.change
	d.bytes -= it.dirtyBytes()
	if c.at == 0 {
		d.add(it, before, after)
	} else if c.after = after; after.Ref() == c.stored && !revisits(after) {
		d.drop(it) // the timer is gone again, or was paused and resumed; see revisits
	}
	d.bytes += it.dirtyBytes()
}

// add adds an item that did not differ from the store.
func (d *dirty) add(it *Item, stored timer.Ref, after *timer.Timer) {
	d.items = append(d.items, it)
	c := &it.change
	c.at, c.stored, c.after = int32(len(d.items)), stored, after
}

// restore takes over the change of a record or a tombstone that has become an item.
func (d *dirty) restore(it *Item, state memtable.State, stored timer.Ref) {
	if state&memtable.Dirty != 0 {
		d.add(it, stored, it.timer)
		d.bytes += it.dirtyBytes()
	}
	if state&memtable.Flushing != 0 {
		d.flushing = append(d.flushing, it)
		it.change.after, it.change.flushing = it.timer, int32(len(d.flushing))
	}
}

// drop removes an item that no longer differs from the store.
func (d *dirty) drop(it *Item) {
	last := len(d.items) - 1
	moved := d.items[last]
	d.items[it.change.at-1], moved.change.at = moved, it.change.at
	d.items[last] = nil
	d.items, it.change.at = d.items[:last], 0
}

// apply applies a committed segment.
func (k *known) apply(s *Segment) {
	for i := range s.Changes() {
		c := &s.changes[i]
		k.dirty.apply(s.begins[i].item, c.Before, c.Timer)
	}
	for e := range s.Entries() {
		it := e.item
		if it == nil {
			continue
		}
		if it.entries--; it.entries == 0 {
			it.last = nil
			value := e.Value
			if it.timer != e.After {
				value = nil
			}
			k.release(it, value)
		}
	}
	k.evict() // items that were waiting may take much memory
}

// BeginFlush begins a flush: it returns the changes that bring the store to the last committed step. EndFlush ends it.
func (p *Planner) BeginFlush() []timer.Change {
	d := &p.known.dirty
	if d.out {
		panic("planner: a flush is in progress already")
	}
	stats := p.known.table.Stats()
	all := make([]timer.Change, 0, len(d.items)+stats.Changed+stats.Tombstones)
	for _, it := range d.items {
		c := &it.change
		all = append(all, timer.ChangeOf([]byte(it.id), c.stored, c.after))
		c.at, c.flushing = 0, c.at
	}
	p.known.table.Flush(func(k memtable.Kind, r memtable.Record) {
		if k == memtable.Tombstone {
			all = append(all, timer.ChangeOf(r.Bytes, r.Stored, nil))
			return
		}
		id, at, _ := timer.DecodePlace(r.Bytes)
		all = append(all, timer.Change{ID: id, Before: r.Stored, After: at, Bytes: r.Bytes})
	})
	d.flushing, d.items, d.bytes, d.out, d.wanted = d.items, nil, 0, true, false
	return all
}

// EndFlush ends a flush that is in the store. The planner forgets its changes.
func (p *Planner) EndFlush() {
	d := &p.known.dirty
	flushing := d.flushing
	d.flushing, d.out = nil, false
	d.flushes++
	p.known.table.Flushed()
	for _, it := range flushing {
		if it == nil {
			continue
		}
		it.change.flushing = 0
		if !it.change.stale() {
			it.change.after = nil
		}
		if it.kept() {
			p.known.encode(it, nil)
			continue
		}
		p.known.release(it, nil)
	}
	p.known.evict()
}

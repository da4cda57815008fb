package planner

import (
	"github.com/waterclock/waterclock/internal/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// delta is what committed steps have changed since the last checkpoint of the store.
//
// A committed step is durable in the changelog, so nothing is won by bringing it
// to the disk at once: a crash replays from the store's position in any case.
// Here it waits in memory, and of a timer that comes and goes between two
// checkpoints the store never hears. What is left goes to the store as one, with
// the position behind the last step that was folded in: since the delta takes
// whole steps in the order of the changelog, the store is a prefix's fold after
// each checkpoint.
//
// Writing one takes a second or more where much has changed, and steps go on
// meanwhile. So Freeze sets aside what has changed so far; later steps are folded
// into what begins empty, whose changes are held against the frozen ones, as if these
// were stored. One checkpoint at a time.
//
// What an ID stands for is in neither place the truth alone, so its item, record or tombstone
// stays until the store has what the last committed step said of it.
//
// Most of what it holds fires soon, and takes its memory once. So it counts only what is
// not soon: as long as there is room for what is pending nothing has to be written, however
// much comes and goes. What is given out or evicted is the delta's again.
type delta struct {
	items   []*Item // that differ from the store, each once; records and tombstones are not here
	bytes   int64   // about what those hold that are not soon; see Item.deltaBytes
	frozen  []*Item // being written; nil: it is gone since
	out     bool    // a checkpoint is: Thaw ends it
	flushes int64   // that have ended
}

// change is what the delta knows of an item.
type change struct {
	stored timer.Ref    // what the store holds, or does when the frozen delta is written
	after  *timer.Timer // what is pending, nil for nothing; of one that is stale
	at     int32        // place in delta.items, counted from 1; 0: it does not differ
	frozen int32        // place in delta.frozen, counted from 1; 0: it is not there
}

// stale reports whether the store does not have what committed steps said of the
// item.
func (c *change) stale() bool { return c.at != 0 || c.frozen != 0 }

// deltaBytes is about how much memory the delta holds for the item, beside what is counted
// of it while it is soon.
func (it *Item) deltaBytes() (n int64) {
	c := &it.change
	if c.at == 0 {
		return 0
	}
	if !it.near {
		n = itemMemory
	}
	if c.after != nil && !(it.near && it.timer == c.after) {
		n += int64(c.after.Size())
	}
	return n
}

// fold takes in what a step did to an ID.
func (d *delta) fold(it *Item, before timer.Ref, after *timer.Timer) {
	c := &it.change
	d.bytes -= it.deltaBytes()
	if c.at == 0 {
		d.add(it, before, after)
	}
	if c.after = after; after.Ref() == c.stored { // gone again, or paused and resumed
		d.drop(it)
	}
	d.bytes += it.deltaBytes()
}

// add takes in an item that did not differ from the store.
func (d *delta) add(it *Item, stored timer.Ref, after *timer.Timer) {
	d.items = append(d.items, it)
	c := &it.change
	c.at, c.stored, c.after = int32(len(d.items)), stored, after
}

// restore takes in what was said of an item, as it is now, while it was a record or a tombstone.
func (d *delta) restore(it *Item, state memtable.State, stored timer.Ref) {
	if state&memtable.Dirty != 0 {
		d.add(it, stored, it.timer)
		d.bytes += it.deltaBytes()
	}
	if state&memtable.Flushing != 0 {
		d.frozen = append(d.frozen, it)
		it.change.after, it.change.frozen = it.timer, int32(len(d.frozen))
	}
}

// drop takes out an item that does not differ from the store any more.
func (d *delta) drop(it *Item) {
	last := len(d.items) - 1
	moved := d.items[last]
	d.items[it.change.at-1], moved.change.at = moved, it.change.at
	d.items[last] = nil
	d.items, it.change.at = d.items[:last], 0
}

// Fold takes a part of a committed segment into the delta: about so many changes and
// entries. It reports whether that was the last one. pending is by how many the timers
// that are pending have become more. Segments are folded in the order in which they
// were committed, and the delta is a step's only when it is done.
func (p *Planner) Fold(s *Segment, limit int) (pending int, done bool) {
	changes := s.Changes()
	for ; s.folded < len(changes) && limit > 0; limit-- {
		c := &changes[s.folded]
		s.folded++
		if !c.Before.IsAbsent() {
			pending--
		}
		if c.After != nil {
			pending++
		}
		p.known.delta.fold(c.item, c.Before, c.After)
	}
	for limit > 0 && len(s.first)+len(s.rest) > 0 {
		limit -= p.settle(s)
	}
	p.known.evict() // what waited may be much
	if len(s.first)+len(s.rest) > 0 {
		return pending, false
	}
	p.committed[0], p.committed = nil, p.committed[1:]
	return pending, true
}

// settle lets go of the segment's first chunk, and returns how many entries it had.
func (p *Planner) settle(s *Segment) int {
	list := &s.first
	if len(*list) == 0 {
		list = &s.rest
	}
	c := (*list)[0]
	(*list)[0], *list = nil, (*list)[1:]
	for i := range c.entries {
		it := c.entries[i].item
		if it == nil {
			continue
		}
		if it.entries--; it.entries == 0 {
			it.last = nil
			p.known.release(it)
		}
	}
	return len(c.entries)
}

// DeltaBytes is about how much memory the changes hold that no checkpoint is being
// written of, beside what is soon.
func (p *Planner) DeltaBytes() int64 {
	return p.known.delta.bytes + p.known.table.DirtyBytes()
}

// Freeze begins a checkpoint: it returns what brings the store to where the last step
// led that was folded. Thaw ends it.
func (p *Planner) Freeze() []timer.Change {
	d := &p.known.delta
	if d.out {
		panic("planner: a checkpoint is being written already")
	}
	all := make([]timer.Change, 0, len(d.items)+p.known.table.Changed()+p.known.table.Buried())
	for _, it := range d.items {
		c := &it.change
		all = append(all, timer.ChangeOf([]byte(it.id), c.stored, c.after))
		c.at, c.frozen = 0, c.at
	}
	p.known.table.Flush(func(k memtable.Kind, r memtable.Record) {
		if k == memtable.Tombstone {
			all = append(all, timer.ChangeOf(r.Bytes, r.Stored, nil))
			return
		}
		id, at, _ := timer.DecodePlace(r.Bytes)
		all = append(all, timer.Change{ID: id, Before: r.Stored, After: at, Bytes: r.Bytes})
	})
	d.frozen, d.items, d.bytes, d.out = d.items, nil, 0, true
	p.wanted = false
	return all
}

// Thaw ends a checkpoint that is in the store: what it has is forgotten here.
func (p *Planner) Thaw() {
	d := &p.known.delta
	frozen := d.frozen
	d.frozen, d.out = nil, false
	d.flushes++
	p.known.table.Flushed()
	for _, it := range frozen {
		if it == nil {
			continue
		}
		it.change.frozen = 0
		if !it.change.stale() {
			it.change.after = nil
		}
		if it.kept() {
			p.known.encode(it)
			continue
		}
		p.known.release(it)
	}
	p.known.evict()
}

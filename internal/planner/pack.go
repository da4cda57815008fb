package planner

import (
	"strings"

	"github.com/waterclock/waterclock/internal/packed"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wheel"
)

// packedGrain makes slots of 64 ms: what is due sooner is not worth packing.
const packedGrain = 6

// A timer to which nothing happens needs no item. Of its item it takes what the planner, the
// delta and the store know: where it is pending, whether the store has that, and what the
// store has. So it is packed, as its bytes, two flags and, if the store has another version,
// the place of that. It has an item again when a request or an admission meets it, when it
// fires, or when the other wheel does not take it.
//
// Nor does one that is gone, and that only the store still has: of it the ID is kept, and the
// place of what the store has, until a checkpoint has deleted that. It has an item again when a
// request or an admission meets it.
//
// Invariant: of an ID there is an item, or one record, or it is gone; else the store is the
// truth. A record in packedBeyond lies at or above the horizon, and is one that the store does
// not have. One in packed lies below the horizon, or above if an eviction lowered it past that: a
// load passes over it then.

// pack packs the timer of an item, which is forgotten, if nothing happens to it: neither an
// entry nor a request nor a checkpoint knows the item, it waits for nothing but its due time,
// and what it stands for is all in its bytes and its place.
func (p *Planner) pack(it *Item) {
	t := it.timer
	if it.number < 0 || it.entries > 0 || it.pins > 0 {
		return
	}
	if t == nil {
		p.packGone(it)
		return
	}
	if it.change.frozen != 0 || !it.slot.InWheel() ||
		it.permit != nil || it.missed != 0 || it.slot.Key.Due != t.Due || !packable(t) {
		return
	}
	r := packed.Record{Stored: timer.Absent}
	if it.change.at != 0 {
		r.State, r.Stored = packed.Stale, it.change.stored
	}
	to := p.packedBeyond
	if it.near {
		to = p.packed
	}
	p.scratch = t.AppendTo(p.scratch[:0])
	if r.Bytes = p.scratch; !to.Add(r, it.sum) {
		return
	}
	if it.near {
		p.wheel.Remove(&it.slot)
		p.left(it)
	} else {
		p.beyond.Remove(&it.slot)
	}
	if it.change.at != 0 {
		p.outOfDelta(it)
	}
	p.retire(it)
}

// packGone keeps the ID alone of an item that is gone, and that nothing happens to, if the
// store has something still, or will by the checkpoint that is being written.
func (p *Planner) packGone(it *Item) {
	c := &it.change
	if p.scratch = append(p.scratch[:0], it.id...); c.at == 0 || !p.gone.Add(p.scratch, c.stored, it.sum) {
		return
	}
	if c.frozen != 0 { // nothing is left to be done about it when the checkpoint ends
		p.delta.frozen[c.frozen-1] = nil
	}
	p.outOfDelta(it)
	p.retire(it)
}

// outOfDelta takes an item out of the delta whose change goes into a record.
func (p *Planner) outOfDelta(it *Item) {
	it.retired = true
	p.delta.bytes -= it.deltaBytes()
	p.delta.drop(it)
}

// packable reports whether a timer may be packed by what it is.
func packable(t *timer.Timer) bool { return t.Steering == nil && t.Size() <= packed.MaxBytes }

// packStored packs a timer as the store has it, below the horizon, of whose ID nothing is
// known, and reports whether it did.
func (p *Planner) packStored(t *timer.Timer) bool {
	sum := p.ids.index.Sum(t.ID)
	if p.ids.index.Get(sum) != 0 || !packable(t) {
		return false
	}
	p.scratch = t.AppendTo(p.scratch[:0])
	return p.packed.Add(packed.Record{Bytes: p.scratch, Stored: timer.Absent}, sum)
}

// unpack makes an item, in no wheel, of a record that was taken out of a wheel.
func (p *Planner) unpack(r packed.Record) *Item {
	t := unpacked(r.Bytes)
	t.Target.Topic = p.topic(t.Target.Topic)
	it := p.ids.item(string(t.ID), t.Ref(), t)
	p.ids.add(it, false)
	p.delta.restore(it, r.State, r.Stored)
	return it
}

// unpackGone makes an item of an ID that was gone.
func (p *Planner) unpackGone(id []byte, stored timer.Ref, state packed.State) *Item {
	it := p.ids.item(string(id), timer.Absent, nil)
	p.ids.add(it, false)
	p.delta.restore(it, state, stored)
	return it
}

// maxTopics is how many names of topics a planner remembers.
const maxTopics = 1000

// topic is a topic's name in memory of its own: who remembers what a timer's topic is called
// would keep the chunk that the timer was packed in.
func (p *Planner) topic(name string) string {
	own, ok := p.topics[name]
	if !ok {
		if len(p.topics) >= maxTopics {
			clear(p.topics)
		}
		own = strings.Clone(name)
		p.topics[own] = own
	}
	return own
}

// own gives an item that was just unpacked, and that will wait, bytes of its own: it would keep
// a whole chunk.
func (it *Item) own() {
	t := unpacked(it.timer.AppendTo(nil))
	t.Target.Topic = it.timer.Target.Topic
	if it.change.after == it.timer {
		it.change.after = t
	}
	it.timer = t
}

// unpacked is the timer of a record.
func unpacked(b []byte) *timer.Timer {
	t, err := timer.Decode(b)
	if err != nil {
		panic("planner: what was packed cannot be read: " + err.Error())
	}
	return t
}

// forgetStored forgets a record that was taken out, and is in the store.
func (p *Planner) forgetStored(r packed.Record) { p.ids.index.Delete(p.ids.index.Sum(r.ID())) }

// nearer takes a record from beyond the horizon, which is above it now.
func (p *Planner) nearer(r packed.Record) {
	if !p.packed.Add(r, p.ids.index.Sum(r.ID())) {
		p.insert(p.unpack(r))
	}
}

// farther takes a record of which the horizon went below: the store has it, or it waits
// beyond until it does.
func (p *Planner) farther(r packed.Record) {
	if r.State == 0 {
		p.forgetStored(r)
	} else if !p.packedBeyond.Add(r, p.ids.index.Sum(r.ID())) {
		p.postpone(p.unpack(r))
	}
}

// key is a place in the order of firing.
func key(r timer.Ref) wheel.Key { return wheel.Key{Due: r.Due, Seq: r.Offset} }

package planner

import (
	"github.com/waterclock/waterclock/internal/packed"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wheel"
)

// packedGrain makes slots of 64 ms: what is due sooner is not worth packing.
const packedGrain = 6

// A timer to which nothing happens needs no item. Of its item it takes what the planner, the
// delta and the store know: where it is pending, whether the store has that, and what the
// store has. So it is packed, as bytes and two flags, and has an item again when a request
// meets it, when it fires, and when a checkpoint that it is part of needs to know.
//
// Invariant: of an ID there is an item, or a record in packed if it lies below the horizon,
// or one in packedBeyond, and then the store does not have it yet; or the store is the truth.

// pack packs the timer of an item, which is forgotten, if nothing happens to it: neither an
// entry nor a request nor a checkpoint knows the item, it waits for nothing but its due time,
// and what it stands for is all in its bytes and its place.
func (p *Planner) pack(it *Item) {
	t := it.timer
	if t == nil || it.number < 0 || it.entries > 0 || it.pins > 0 || it.change.frozen || !it.slot.InWheel() ||
		it.permit != nil || it.missed != 0 || t.Steering != nil || it.slot.Key.Due != t.Due || t.Size() > packed.MaxBytes {
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
	if it.packed = it.change.at != 0; it.packed {
		p.delta.bytes -= it.deltaBytes()
		p.delta.drop(it)
	}
	p.enter(to, &r)
	p.remove(it)
}

// packStored packs a timer as the store has it, below the horizon, of whose ID nothing is
// known, and reports whether it did.
func (p *Planner) packStored(t *timer.Timer) bool {
	sum := p.ids.index.Sum(t.ID)
	if p.ids.index.Get(sum) != 0 || t.Steering != nil || t.Size() > packed.MaxBytes {
		return false
	}
	p.scratch = t.AppendTo(p.scratch[:0])
	r := packed.Record{Bytes: p.scratch, Stored: timer.Absent}
	ok := p.packed.Add(r, sum)
	if ok {
		p.enter(p.packed, &r)
	}
	return ok
}

// enter counts what a record holds, which is the delta's where the wheel does not have it.
func (p *Planner) enter(in *packed.Wheel, r *packed.Record) {
	switch {
	case in == p.packed:
		p.bytes += r.Size()
	case r.State&packed.Stale != 0:
		p.delta.bytes += r.Size()
	}
}

// leave is the end of enter.
func (p *Planner) leave(in *packed.Wheel, r *packed.Record) {
	switch {
	case in == p.packed:
		p.bytes -= r.Size()
	case r.State&packed.Stale != 0:
		p.delta.bytes -= r.Size()
	}
}

// unpack makes an item, in no wheel, of a record that was taken out of a wheel.
func (p *Planner) unpack(r packed.Record, from *packed.Wheel) *Item {
	p.leave(from, &r)
	t := unpacked(r.Bytes)
	it := p.ids.item(string(t.ID), t.Ref(), t)
	p.ids.add(it, false)
	d := &p.delta
	if r.State&packed.Stale != 0 {
		d.add(it, r.Stored, t)
		d.bytes += it.deltaBytes()
	}
	if r.State&packed.Frozen != 0 {
		it.change.frozen, it.change.after = true, t
		d.frozen = append(d.frozen, it)
	}
	return it
}

// unpacked is the timer of a record.
func unpacked(b []byte) *timer.Timer {
	t, err := timer.Decode(b)
	if err != nil {
		panic("planner: what was packed cannot be read: " + err.Error())
	}
	return t
}

// stored forgets a record that was taken out, and is in the store.
func (p *Planner) stored(r packed.Record) { p.ids.index.Delete(p.ids.index.Sum(r.ID())) }

// nearer takes a record from beyond the horizon, which is above it now.
func (p *Planner) nearer(r packed.Record) {
	if !p.move(r, p.packedBeyond, p.packed) {
		p.insert(p.unpack(r, p.packedBeyond))
	}
}

// farther takes a record of which the horizon went below: the store has it, or it waits
// beyond until it does.
func (p *Planner) farther(r packed.Record) {
	if r.State == 0 {
		p.leave(p.packed, &r)
		p.stored(r)
	} else if !p.move(r, p.packed, p.packedBeyond) {
		p.postpone(p.unpack(r, p.packed))
	}
}

// move puts a record that was taken out of one wheel into the other, and reports whether that
// took it.
func (p *Planner) move(r packed.Record, from, to *packed.Wheel) bool {
	ok := to.Add(r, p.ids.index.Sum(r.ID()))
	if ok {
		p.leave(from, &r)
		p.enter(to, &r)
	}
	return ok
}

// key is a place in the order of firing.
func key(r timer.Ref) wheel.Key { return wheel.Key{Due: r.Due, Seq: r.Offset} }

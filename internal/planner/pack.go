package planner

import (
	"bytes"

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
	if t == nil || it.entries > 0 || it.pins > 0 || it.change.frozen || !it.slot.InWheel() ||
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
	if r.Bytes = p.scratch; !to.Add(r) {
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
	delete(p.items, it.id)
	p.enter(to, &r)
}

// packStored packs a timer as the store has it, below the horizon, and reports whether it did.
func (p *Planner) packStored(t *timer.Timer) bool {
	if t.Steering != nil || t.Size() > packed.MaxBytes {
		return false
	}
	p.scratch = t.AppendTo(p.scratch[:0])
	r := packed.Record{Bytes: p.scratch, Stored: timer.Absent}
	ok := p.packed.Add(r)
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

// knows reports whether something is known of an ID.
func (p *Planner) knows(id []byte) bool {
	return p.items[string(id)] != nil || p.packed.Has(id) || p.packedBeyond.Has(id)
}

// find returns the item of an ID, nil if nothing is known of it: one that is packed has one
// again.
func (p *Planner) find(id []byte) *Item {
	if it := p.items[string(id)]; it != nil {
		return it
	}
	if r, ok := p.packed.Take(id); ok {
		r.Bytes = bytes.Clone(r.Bytes) // what was around it may go
		it := p.unpack(r, false)
		p.insert(it)
		return it
	}
	if r, ok := p.packedBeyond.Take(id); ok {
		r.Bytes = bytes.Clone(r.Bytes)
		it := p.unpack(r, true)
		p.postpone(it)
		return it
	}
	return nil
}

// unpack makes an item, in no wheel, of a record that was taken out.
func (p *Planner) unpack(r packed.Record, beyond bool) *Item {
	from := p.packed
	if beyond {
		from = p.packedBeyond
	}
	p.leave(from, &r)
	t := unpacked(r.Bytes)
	it := newItem(string(t.ID), t.Ref(), t)
	p.items[it.id] = it
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

// nearer takes a record from beyond the horizon, which is above it now.
func (p *Planner) nearer(r packed.Record) {
	if p.packed.Add(r) {
		p.leave(p.packedBeyond, &r)
		p.enter(p.packed, &r)
		return
	}
	p.insert(p.unpack(r, true))
}

// farther takes a record of which the horizon went below: the store has it, or it waits
// beyond until it does.
func (p *Planner) farther(r packed.Record) {
	switch {
	case r.State == 0:
		p.leave(p.packed, &r)
	case p.packedBeyond.Add(r):
		p.leave(p.packed, &r)
		p.enter(p.packedBeyond, &r)
	default:
		p.postpone(p.unpack(r, false))
	}
}

// key is a place in the order of firing.
func key(r timer.Ref) wheel.Key { return wheel.Key{Due: r.Due, Seq: r.Offset} }

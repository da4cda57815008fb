package memtable

import "github.com/waterclock/waterclock/internal/timer"

// layer has later records and tombstones: what committed steps have changed above the horizon. There are two layers.
// The active one takes the changes of committed steps. A checkpoint writes the other one. When a checkpoint begins, the
// two change places. When it has ended, the layer that it has written is forgotten as a whole, without a look at any
// record, because each layer has memory and an index of its own.
//
// These things can happen between the two moments:
//
//   - A request or a firing meets a record that is being flushed, and Decode takes it out of its layer. Then the end of
//     the checkpoint does not forget it. It is an object, and when it is a record or a tombstone again, that is dirty and
//     goes to the active layer. The caller knows what the store will have of it.
//   - The horizon rises or falls, and a record becomes soon or later. It keeps its state, and a later record is in the
//     layer of its state. So each layer has records of one state.
//   - A step is rolled back or aborted. Its entries refer to objects, which are in no layer.
//   - The checkpoint fails, or the process dies. Then the table is not used any more: what the store has is replayed
//     from its position. So nothing that is being flushed becomes dirty again.
//
// Invariant: the layer that is not active is empty unless a checkpoint is under way.
type layer struct {
	later      *wheel // records only
	tombstones bucket
	buried     int64 // bytes of the tombstones
}

// layers are the active layer and the one that a checkpoint writes.
type layers struct {
	both   [2]layer
	active int // the number of the active one; a checkpoint writes the other one
}

// in returns the layer for records in a state.
func (l *layers) in(s State) *layer {
	if s&Flushing != 0 {
		return &l.both[1-l.active]
	}
	return &l.both[l.active]
}

// whole completes a record or a tombstone that was read from a layer. When a checkpoint begins, the records of its
// layer are not marked one by one.
func (l *layers) whole(at Ref, r Record) Record {
	if at.layer() != l.active {
		r.State, r.Stored = Flushing, timer.Absent
	}
	return r.public()
}

// tombstoneBytes returns about how many bytes of memory a tombstone takes.
func tombstoneBytes(id []byte) int64 { return int64(len(id)) + 16 + overhead }

// bury adds a tombstone.
func (l *layer) bury(r *Record) place {
	l.buried += tombstoneBytes(r.Bytes)
	c, offset := l.tombstones.append(r)
	return placeOf(0, 0, c, offset)
}

// exhume takes out a tombstone. If dead ones then take much of the memory, the others move.
func (l *layer) exhume(at place, moved func(id []byte, from, to place)) {
	_, _, c, offset := at.split()
	r := l.tombstones.at(c, offset)
	l.buried -= tombstoneBytes(r.Bytes)
	if l.tombstones.remove(&r, c, offset); !l.tombstones.wasteful() {
		return
	}
	old := l.tombstones
	l.tombstones, l.buried = bucket{}, 0
	old.each(func(r *Record, c, offset int) { moved(r.Bytes, placeOf(0, 0, c, offset), l.bury(r)) })
}

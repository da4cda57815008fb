package statestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// batch collects the rows of one change to one partition.
type batch struct {
	effect
	b       *pebble.Batch
	scratch []byte
}

func (p *Partition) newBatchLocked() *batch {
	return &batch{effect: p.effectLocked(), b: p.s.db.NewBatch()}
}

func (b *batch) close() { b.b.Close() }

// change writes the new state of one ID. row is the encoded timer after the change. Writing to a batch in
// memory cannot fail.
func (b *batch) change(id []byte, before Location, after timer.Ref, row []byte) {
	stays := before == Location{ref: after}
	b.count(id, before.ref, after)
	if !before.ref.IsAbsent() && !stays {
		b.deleteRow(before)
	}
	switch {
	case !after.IsAbsent():
		b.putRow(Location{ref: after}, row)
		if !stays {
			b.putID(id, Location{ref: after})
		}
	case !before.ref.IsAbsent():
		op := b.b.DeleteDeferred(idAt + len(id))
		appendIDKey(op.Key[:0], b.p.prefix, id)
		op.Finish()
	}
}

// putRow writes a timer's row, not its ID row.
func (b *batch) putRow(at Location, row []byte) {
	b.put(at)
	b.p.s.inputs.wrote(len(row))
	op := b.b.SetDeferred(at.rowKeySize(), len(row))
	appendRowKey(op.Key[:0], b.p.prefix, at)
	copy(op.Value, row)
	op.Finish()
}

// deleteRow deletes a timer's row, not its ID row.
func (b *batch) deleteRow(at Location) {
	b.remove(at)
	op := b.b.DeleteDeferred(at.rowKeySize())
	appendRowKey(op.Key[:0], b.p.prefix, at)
	op.Finish()
}

func (b *batch) putID(id []byte, at Location) {
	b.p.ids.noteLocked(id)
	size := refSize
	if at.target != 0 {
		size = parkedIDSize
	}
	op := b.b.SetDeferred(idAt+len(id), size)
	appendIDKey(op.Key[:0], b.p.prefix, id)
	appendLocation(op.Value[:0], at)
	op.Finish()
}

func (b *batch) set(key, value []byte) { b.b.Set(key, value, nil) }

// commit writes the batch and sets the state of the partition to next, plus what the batch changes; the partition's
// lock is held. Every batch contains the meta row: see doc.go.
func (b *batch) commit(next meta) error {
	p := b.p
	b.behind(&next)
	for _, t := range b.targets.next {
		key := appendNumberKey(b.scratch[:0], p.prefix, kindTarget, t.number)
		if t.count == 0 {
			b.b.Delete(key, nil)
		} else {
			b.set(key, t.encode())
		}
	}
	op := b.b.SetDeferred(prefixSize+1, metaSize)
	copy(op.Key, p.prefix.key(kindMeta))
	next.append(op.Value[:0])
	op.Finish()
	p.unflushed = true
	if err := b.b.Commit(pebble.NoSync); err != nil {
		p.loaded.Store(false)
		return fmt.Errorf("write: %w", err)
	}
	p.s.upkeep.dirty.Store(true)
	b.install(next)
	return nil
}

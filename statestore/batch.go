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

func (w *batch) close() { w.b.Close() }

// change writes the new state of one ID. row is the encoded timer after the change. Writing to a batch in
// memory cannot fail.
func (w *batch) change(id []byte, before Location, after timer.Ref, row []byte) {
	stays := before == Location{ref: after}
	w.count(id, before.ref, after)
	if !before.ref.IsAbsent() && !stays {
		w.deleteRow(before)
	}
	switch {
	case !after.IsAbsent():
		w.putRow(Location{ref: after}, row)
		if !stays {
			w.putID(id, Location{ref: after})
		}
	case !before.ref.IsAbsent():
		op := w.b.DeleteDeferred(idAt + len(id))
		appendIDKey(op.Key[:0], w.p.prefix, id)
		op.Finish()
	}
}

// putRow writes a timer's row, not its ID row.
func (w *batch) putRow(at Location, row []byte) {
	w.put(at)
	w.p.s.inputs.wrote(len(row))
	op := w.b.SetDeferred(at.rowKeySize(), len(row))
	appendRowKey(op.Key[:0], w.p.prefix, at)
	copy(op.Value, row)
	op.Finish()
}

// deleteRow deletes a timer's row, not its ID row.
func (w *batch) deleteRow(at Location) {
	w.remove(at)
	op := w.b.DeleteDeferred(at.rowKeySize())
	appendRowKey(op.Key[:0], w.p.prefix, at)
	op.Finish()
}

func (w *batch) putID(id []byte, at Location) {
	w.p.ids.noteLocked(id)
	size := refSize
	if at.target != 0 {
		size = parkedIDSize
	}
	op := w.b.SetDeferred(idAt+len(id), size)
	appendIDKey(op.Key[:0], w.p.prefix, id)
	appendLocation(op.Value[:0], at)
	op.Finish()
}

func (w *batch) set(key, value []byte) { w.b.Set(key, value, nil) }

// commit writes the batch and sets the state of the partition to next, plus what the batch changes; the partition's lock is
// held. Every batch contains the meta row: see doc.go.
func (w *batch) commit(next meta) error {
	p := w.p
	w.behind(&next)
	for _, t := range w.targets.next {
		key := appendNumberKey(w.scratch[:0], p.prefix, kindTarget, t.number)
		if t.count == 0 {
			w.b.Delete(key, nil)
		} else {
			w.set(key, t.encode())
		}
	}
	op := w.b.SetDeferred(prefixSize+1, metaSize)
	copy(op.Key, p.prefix.key(kindMeta))
	next.append(op.Value[:0])
	op.Finish()
	p.unflushed = true
	if err := w.b.Commit(pebble.NoSync); err != nil {
		p.loaded.Store(false)
		return fmt.Errorf("write: %w", err)
	}
	p.s.upkeep.dirty.Store(true)
	w.install(next)
	return nil
}

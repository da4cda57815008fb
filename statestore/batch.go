package statestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// batch collects the rows of one change to one partition.
type batch struct {
	p       *Partition
	b       *pebble.Batch
	scratch []byte
	lowest  timer.Ref // lowest Ref of the rows by due time that it puts
	pending int64     // change of the number of pending timers
	tally   tally     // of the number of misplaced timers
	deleted int       // how many rows by due time it deletes
	targets targetChanges
}

func (p *Partition) newBatchLocked() *batch {
	return &batch{p: p, b: p.s.db.NewBatch(), lowest: last, tally: p.tallyFor(p.state.Partitions), targets: targetChanges{of: &p.targets}}
}

func (w *batch) close() { w.b.Close() }

// change writes the new state of one ID. row is the encoded timer after the change. Writing to a batch in
// memory cannot fail.
func (w *batch) change(p prefix, id []byte, before Location, after timer.Ref, row []byte) {
	stays := before == Location{ref: after}
	w.tally.add(id, before.ref, after)
	if !before.ref.IsAbsent() {
		w.pending--
		if !stays {
			w.deleteRow(p, before)
		}
	}
	if after.IsAbsent() {
		if !before.ref.IsAbsent() {
			op := w.b.DeleteDeferred(idAt + len(id))
			appendIDKey(op.Key[:0], p, id)
			op.Finish()
		}
		return
	}
	w.pending++
	w.putRow(p, Location{ref: after}, row)
	if !stays {
		w.putID(p, id, Location{ref: after})
	}
}

// putRow writes a timer's row, not its ID row.
func (w *batch) putRow(p prefix, at Location, row []byte) {
	size := dueKeySize
	if at.target != 0 {
		size = parkedKeySize
		w.targets.put(at)
	} else if at.ref.Compare(w.lowest) < 0 {
		w.lowest = at.ref
	}
	op := w.b.SetDeferred(size, len(row))
	appendRowKey(op.Key[:0], p, at)
	copy(op.Value, row)
	op.Finish()
}

// deleteRow deletes a timer's row, not its ID row.
func (w *batch) deleteRow(p prefix, at Location) {
	size := dueKeySize
	if at.target != 0 {
		size = parkedKeySize
		w.targets.remove(at)
	} else {
		w.deleted++
	}
	op := w.b.DeleteDeferred(size)
	appendRowKey(op.Key[:0], p, at)
	op.Finish()
}

func (w *batch) putID(p prefix, id []byte, at Location) {
	w.p.ids.noteLocked(id)
	size := refSize
	if at.target != 0 {
		size = parkedIDSize
	}
	op := w.b.SetDeferred(idAt+len(id), size)
	appendIDKey(op.Key[:0], p, id)
	appendLocation(op.Value[:0], at)
	op.Finish()
}

func (w *batch) set(key, value []byte) { w.b.Set(key, value, nil) }

// commit writes the batch and sets the state of p to next, plus what the batch changes; p.write is held.
// Every batch contains the meta row: see doc.go.
func (w *batch) commit(p *Partition, next meta) error {
	next.Pending += w.pending
	w.tally.addTo(&next)
	next.Parked += w.targets.parked
	next.low = p.low.put(w.lowest)
	for _, t := range w.targets.next {
		key := appendNumberKey(w.scratch[:0], p.prefix, kindTarget, t.number)
		if t.count == 0 {
			w.b.Delete(key, nil)
		} else {
			w.set(key, t.encode())
		}
	}
	op := w.b.SetDeferred(prefixSize+1, metaSize)
	copy(op.Key, p.prefix[:])
	op.Key[kindAt] = kindMeta
	next.put(op.Value)
	op.Finish()
	p.unflushed = true
	if err := w.b.Commit(pebble.NoSync); err != nil {
		p.loaded.Store(false)
		return fmt.Errorf("write to partition %s: %w", p.id, err)
	}
	p.setState(next)
	w.targets.install()
	p.s.upkeep.dirty.Store(true)
	p.deleted(w.deleted)
	return nil
}

package statestore

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// Change is what a step did to one timer ID, taken together.
type Change struct {
	ID []byte
	// Before is what was pending under the ID. It is believed, not looked up.
	Before timer.Ref
	// After is what is pending now, nil for nothing.
	After *timer.Timer
	// AfterBytes are those of After if the caller has them, else nil.
	AfterBytes []byte
}

// Batch is the part of a committed step that concerns one partition.
type Batch struct {
	Changes []Change // at most one per ID
	// Position is the changelog offset behind the step's last record, never
	// before the stored one.
	Position int64
	// Changelog is the UUID of the changelog topic.
	Changelog [16]byte
	// Checkpoint is the step's checkpoint record, nil if it is unchanged.
	Checkpoint []byte
}

// Apply stores a committed step: rows, position, checkpoint and the number of
// pending timers in one batch. It keeps nothing of b. Errors wrap ErrNotOwner,
// ErrPosition, ErrForeignChangelog or ErrID; then nothing has changed.
func (k *Take) Apply(b *Batch) error {
	if err := k.enter(); err != nil {
		return err
	}
	defer k.leave()
	p := k.p
	next, err := p.advanceLocked(b.Position, b.Changelog)
	if err != nil {
		return fmt.Errorf("apply to partition %s: %w", p.id, err)
	}
	w := p.s.newBatch()
	defer w.close()
	for i := range b.Changes {
		c := &b.Changes[i]
		if err := checkID(c.ID); err != nil {
			return fmt.Errorf("apply to partition %s: %w", p.id, err)
		}
		row := c.AfterBytes
		if c.After != nil && row == nil {
			w.scratch = c.After.AppendTo(w.scratch[:0])
			row = w.scratch
		}
		w.change(p.prefix, c.ID, c.Before, c.After.Ref(), row)
	}
	if b.Checkpoint != nil {
		next.Checkpoint = bytes.Clone(b.Checkpoint)
		w.set(p.prefix.key(kindCheckpoint), next.Checkpoint)
	}
	return w.commit(p, next)
}

func checkID(id []byte) error {
	if len(id) == 0 || len(id) > maxIDSize {
		return fmt.Errorf("%d bytes: %w", len(id), ErrID)
	}
	return nil
}

// advanceLocked returns the state with the position moved.
func (p *Partition) advanceLocked(position int64, changelog [16]byte) (meta, error) {
	next := p.state
	if position < 0 || position < next.Position {
		return next, fmt.Errorf("position %d, stored %d: %w", position, next.Position, ErrPosition)
	}
	if next.Position == nothing {
		// Nothing is in sync with the empty fold: what is missed from now on
		// is missed since now.
		if next.InSync.IsZero() {
			next.InSync = p.s.o.Now()
		}
	} else if next.Changelog != changelog {
		return next, fmt.Errorf("changelog %x, stored %x: %w", changelog, next.Changelog, ErrForeignChangelog)
	}
	next.Position, next.Changelog = position, changelog
	return next, nil
}

// batch collects the rows of one change to one partition.
type batch struct {
	b       *pebble.Batch
	scratch []byte
	lowest  timer.Ref // of the rows put
	pending int64     // change of the number of pending timers
	deleted int       // rows by due time deleted
}

func (s *Store) newBatch() *batch { return &batch{b: s.db.NewBatch(), lowest: last} }

func (w *batch) close() { w.b.Close() }

// change writes what became of one ID: row are the bytes of the timer after.
// Writing to a batch in memory can not fail.
func (w *batch) change(p prefix, id []byte, before, after timer.Ref, row []byte) {
	if !before.IsAbsent() {
		w.pending--
		if before != after {
			op := w.b.DeleteDeferred(dueKeySize)
			appendDueKey(op.Key[:0], p, before)
			op.Finish()
			w.deleted++
		}
	}
	if after.IsAbsent() {
		if !before.IsAbsent() {
			op := w.b.DeleteDeferred(idAt + len(id))
			appendIDKey(op.Key[:0], p, id)
			op.Finish()
		}
		return
	}
	w.pending++
	if after.Compare(w.lowest) < 0 {
		w.lowest = after
	}
	op := w.b.SetDeferred(dueKeySize, len(row))
	appendDueKey(op.Key[:0], p, after)
	copy(op.Value, row)
	op.Finish()
	if before == after {
		return // the ID row is there
	}
	op = w.b.SetDeferred(idAt+len(id), refSize)
	appendIDKey(op.Key[:0], p, id)
	putRef(op.Value, after)
	op.Finish()
}

func (w *batch) set(key, value []byte) { w.b.Set(key, value, nil) }

// commit writes the batch and makes next, with what the batch changes of it, the
// state of p; p.write is held. Every batch has the meta row: see doc.go.
func (w *batch) commit(p *Partition, next meta) error {
	next.Pending += w.pending
	next.low = p.low.put(w.lowest)
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
	p.state = next
	p.s.dirty.Store(true)
	p.deleted(w.deleted)
	return nil
}

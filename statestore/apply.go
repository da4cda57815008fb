package statestore

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// Change is what committed steps did to one timer ID. Its Before is trusted, not looked up.
type Change = timer.Change

// Batch is what a sequence of committed steps has changed in one partition.
type Batch struct {
	Changes []Change // at most one per ID
	// Position is the changelog offset behind the last step's last record. It is never before the stored
	// one.
	Position int64
	// Changelog is the UUID of the changelog topic.
	Changelog [16]byte
	// Checkpoint is the last step's checkpoint record, which is directly before Position; nil if it is
	// unchanged.
	Checkpoint []byte
}

// Apply stores what committed steps have changed: rows, position, checkpoint and the number of pending
// timers, all or nothing. Few changes go to the memtable as a batch, many into a synced table: see
// WaitForRoom. Only a few tables are made at a time, because making one takes some 150 bytes for each
// change, in addition to the rows. Apply keeps nothing of b, and clears b.Changes if it makes a table.
// Errors wrap ErrNotOwner, ErrPosition, ErrForeignChangelog or ErrID; then nothing has changed.
func (k *Handle) Apply(b *Batch) error {
	p, s := k.p, k.p.s
	large := s.large(b)
	if large {
		select {
		case s.tables.turns <- struct{}{}:
			defer func() { <-s.tables.turns }()
		case <-s.events.dead: // a turn that is taken may never be given back
			return s.events.err()
		}
	}
	if err := k.enter(); err != nil {
		return err
	}
	defer k.leave()
	next, err := p.advanceLocked(b.Position, b.Changelog)
	if err != nil {
		return fmt.Errorf("apply to partition %s: %w", p.id, err)
	}
	locator, err := p.locatorLocked()
	if err != nil {
		return fmt.Errorf("apply to partition %s: %w", p.id, err)
	}
	defer locator.close()
	if b.Checkpoint != nil {
		next.Checkpoint, next.Named = bytes.Clone(b.Checkpoint), true
	} else if len(b.Changes) > 0 {
		next.Named = false
	}
	records, err := recordsOf(b, locator)
	if err != nil {
		return fmt.Errorf("apply to partition %s: %w", p.id, err)
	}
	if large {
		b.Changes = nil // lets go of as much memory as the records take
	}
	return p.storeLocked(next, records, b.Checkpoint, large)
}

// storeLocked stores records, sorted by ID and resolved, and the state that they lead to: in a table if large,
// otherwise in a batch. In a batch it also stores checkpoint, unless it is nil; a table has that of next.
func (p *Partition) storeLocked(next meta, records []record, checkpoint []byte, large bool) error {
	if large {
		return p.ingestLocked(next, records)
	}
	w := p.newBatchLocked()
	defer w.close()
	for i := range records {
		c := &records[i]
		w.change(p.prefix, c.id, Location{c.before, c.target}, c.after, c.encoded(&w.scratch))
	}
	if checkpoint != nil {
		w.set(p.prefix.key(kindCheckpoint), checkpoint)
	}
	return w.commit(p, next)
}

// large reports whether a batch is worth a table.
func (s *Store) large(b *Batch) bool {
	if len(b.Changes) >= s.tables.leastIDs {
		return true
	}
	bytes := 0
	for i := range b.Changes {
		c := &b.Changes[i]
		if bytes += len(c.Bytes); c.Timer != nil {
			bytes += c.Timer.Size()
		}
	}
	return bytes >= tableBytes
}

// recordsOf returns the changes of a batch, ordered by ID.
func recordsOf(b *Batch, locator *locator) ([]record, error) {
	records := make([]record, len(b.Changes))
	for i := range b.Changes {
		c := &b.Changes[i]
		err := checkID(c.ID)
		var before Location
		if err == nil {
			before, err = locator.of(c.ID, c.Before)
		}
		if err != nil {
			return nil, fmt.Errorf("timer %q: %w", c.ID, err)
		}
		records[i] = record{
			target: before.target, id: c.ID, row: c.Bytes, timer: c.Timer, before: before.ref, after: c.After,
		}
	}
	sortRecords(records)
	return records, nil
}

func checkID(id []byte) error {
	if len(id) == 0 || len(id) > maxIDSize {
		return fmt.Errorf("%d bytes: %w", len(id), ErrID)
	}
	return nil
}

// advanceLocked returns the state with a new position.
func (p *Partition) advanceLocked(position int64, changelog [16]byte) (meta, error) {
	next := p.state
	if position < 0 || position < next.Position {
		return next, fmt.Errorf("position %d, stored %d: %w", position, next.Position, ErrPosition)
	}
	if next.Position != noPosition && next.Changelog != changelog {
		return next, fmt.Errorf("changelog %x, stored %x: %w", changelog, next.Changelog, ErrForeignChangelog)
	}
	next.Position, next.Changelog = position, changelog
	return next, nil
}

// batch collects the rows of one change to one partition.
type batch struct {
	p       *Partition
	b       *pebble.Batch
	scratch []byte
	lowest  timer.Ref // lowest place of the rows that it puts
	pending int64     // change of the number of pending timers
	tally   tally     // the same for misplaced ones
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
	w.tally.enter(&next)
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

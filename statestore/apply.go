package statestore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/waterclock/waterclock/internal/timer"
)

// Change is the effect of committed steps on one timer ID. Its Before is trusted, not looked up.
type Change = timer.Change

// Batch is the effect of a sequence of committed steps on one partition.
type Batch struct {
	Changes []Change // at most one per ID
	// Position is the changelog offset behind the last step's last record. Apply rejects one before the stored
	// position, with ErrPosition.
	Position int64
	// Changelog is the UUID of the changelog topic.
	Changelog [16]byte
	// Checkpoint is the last step's checkpoint record, which is directly before Position; nil if it is
	// unchanged.
	Checkpoint []byte
}

// Apply stores the effect of committed steps: rows, position, checkpoint and the number of pending timers, all or
// nothing. Few changes go to the memtable as a batch, many into a synced table: see WaitForRoom. Only a few tables are
// made at a time, because making one takes some 150 bytes for each change, in addition to the rows. Apply keeps nothing
// of b, and clears b.Changes if it makes a table. Errors wrap ErrNotOwner, ErrPosition, ErrForeignChangelog or ErrID;
// then nothing has changed.
func (h *Handle) Apply(b *Batch) error {
	p, s := h.p, h.p.s
	large := s.large(b)
	if large {
		select {
		case s.tables.turns <- struct{}{}:
			defer func() { <-s.tables.turns }()
		case <-s.events.dead: // the holder of a turn may never return it
			return s.events.err()
		}
	}
	if err := h.enter(); err != nil {
		return err
	}
	defer h.leave()
	return p.during("apply to", p.applyLocked(b, large))
}

func (p *Partition) applyLocked(b *Batch, large bool) error {
	next, err := p.advanceLocked(b.Position, b.Changelog)
	if err != nil {
		return err
	}
	if b.Checkpoint != nil {
		next.Checkpoint, next.Named = bytes.Clone(b.Checkpoint), true
	} else if len(b.Changes) > 0 {
		next.Named = false
	}
	records, err := p.recordsLocked(b)
	if err != nil {
		return err
	}
	if large {
		b.Changes = nil // lets go of as much memory as the records take
	}
	return p.storeLocked(next, records, b.Checkpoint, large)
}

// storeLocked stores records, sorted by ID and resolved, and the state that they lead to: in a table if large,
// otherwise in a batch. A batch has checkpoint unless it is nil; a table has that of next.
func (p *Partition) storeLocked(next meta, records []record, checkpoint []byte, large bool) error {
	if large {
		return p.ingestLocked(next, records)
	}
	w := p.newBatchLocked()
	defer w.close()
	for i := range records {
		c := &records[i]
		w.change(c.ID, c.was(), c.After, c.encoded(&w.scratch))
	}
	if checkpoint != nil {
		w.set(p.prefix.key(kindCheckpoint), checkpoint)
	}
	return w.commit(next)
}

// recordsLocked returns the changes of a batch, ordered by ID. It trusts the caller's Before. Only if timers are
// parked does it look up whether the row is among theirs.
func (p *Partition) recordsLocked(b *Batch) (records []record, err error) {
	var it *idIterator // nil: nothing is parked
	if p.state.Parked > 0 {
		if it, err = newIDIterator(p.s.db); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, it.Close()) }()
	}
	records = make([]record, len(b.Changes))
	for i, c := range b.Changes {
		err := checkID(c.ID)
		if err == nil && it != nil && !c.Before.IsAbsent() {
			var at Location
			if at, err = it.seek(p.prefix, c.ID); err == nil && at.ref == c.Before {
				records[i].target, err = at.target, p.targets.check(at)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("timer %q: %w", c.ID, err)
		}
		records[i].Change = c
	}
	sortRecords(records)
	return records, nil
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

// effect is how one batch, or one table, changes the state of its partition. Its owner counts each change of an ID, and
// notes each row of a timer that it puts or deletes. Then behind adds the effect to a state, and once that is stored,
// install puts it to use. The partition's write lock is held all the time.
type effect struct {
	p       *Partition
	lowest  timer.Ref // of the rows by due time that are put
	deleted int       // how many rows by due time are deleted
	pending int64     // change of the number of pending timers
	tally   tally     // of the number of misplaced timers
	targets targetChanges
}

func (p *Partition) effectLocked() effect {
	return effect{p: p, lowest: last, tally: p.tallyFor(p.state.Partitions), targets: targetChanges{of: &p.targets}}
}

// count counts a change of an ID.
func (e *effect) count(id []byte, before, after timer.Ref) {
	e.tally.add(id, before, after)
	if !before.IsAbsent() {
		e.pending--
	}
	if !after.IsAbsent() {
		e.pending++
	}
}

// put notes that a timer's row is written.
func (e *effect) put(at Location) {
	if at.target != 0 {
		e.targets.put(at)
	} else if at.ref.Compare(e.lowest) < 0 {
		e.lowest = at.ref
	}
}

// remove notes that a timer's row is deleted.
func (e *effect) remove(at Location) {
	if at.target != 0 {
		e.targets.remove(at)
	} else {
		e.deleted++
	}
}

// behind adds the effect to a state. It lowers the bound of scans, so it comes before the rows can be seen.
func (e *effect) behind(next *meta) {
	next.Pending += e.pending
	e.tally.addTo(next)
	next.Parked += e.targets.parked
	next.low = e.p.low.put(e.lowest)
}

// install makes next, which is stored, the state of the partition.
func (e *effect) install(next meta) {
	e.p.setState(next)
	e.targets.install()
	e.p.deleted(e.deleted)
}

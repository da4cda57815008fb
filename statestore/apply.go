package statestore

import (
	"bytes"
	"fmt"

	"github.com/waterclock/waterclock/internal/timer"
)

// Change is what committed steps did to one timer ID. Its Before is trusted, not looked up.
type Change = timer.Change

// Batch is what a sequence of committed steps has changed in one partition.
type Batch struct {
	Changes []Change // at most one per ID
	// Position is the changelog offset behind the last step's last record. Before the stored one it is refused:
	// ErrPosition.
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
		case <-s.events.dead: // the holder of a turn may never return it
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

// recordsOf returns the changes of a batch, ordered by ID.
func recordsOf(b *Batch, locator *locator) ([]record, error) {
	records := make([]record, len(b.Changes))
	for i := range b.Changes {
		c := b.Changes[i]
		err := checkID(c.ID)
		if err == nil {
			records[i].target, err = locator.targetOf(&c)
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

// locator looks up where the rows of pending timers lie. It is nil, and looks up nothing, if the partition
// has no parked timers.
type locator struct {
	p  *Partition
	it *idIterator
}

func (p *Partition) locatorLocked() (*locator, error) {
	if p.state.Parked == 0 {
		return nil, nil
	}
	it, err := newIDIterator(p.s.db)
	return &locator{p, it}, err
}

func (l *locator) close() {
	if l != nil {
		l.it.Close() // locator.of has returned every error
	}
}

// targetOf returns the number of the target that the timer is parked for which was pending before a change; 0 if it is
// not parked. The caller is trusted that it was pending: only where its row lies is looked up.
func (l *locator) targetOf(c *Change) (uint32, error) {
	if l == nil || c.Before.IsAbsent() {
		return 0, nil
	}
	at, err := l.it.seek(l.p.prefix, c.ID)
	if err != nil || at.ref != c.Before {
		return 0, err
	}
	return at.target, l.p.targets.check(at)
}

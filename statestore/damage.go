package statestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// A damaged table is thrown away as a whole: Pebble tells which keys it spans,
// and every partition of which a key may lie there loses all it has in the
// store. Its owner is refused with ErrCorrupt until it wipes the partition, and
// replays it. Nothing of the table need be read for that, as cutting one
// partition out of it would.

// IsCorrupt says that err is about stored bytes that make no sense. Wiping the
// partition that it was met in cures it.
func IsCorrupt(err error) bool {
	return errors.Is(err, ErrCorrupt) || pebble.IsCorruptionError(err)
}

// damaged is told of a table by whoever reads it, perhaps with locks of ours or
// of Pebble.
func (s *Store) damaged(info pebble.DataCorruptionInfo) {
	if s.events.opening.Load() {
		s.events.fatal(fmt.Errorf("pebble: table %s is damaged: %w", info.Path, info.Details))
		return
	}
	if _, twice := s.discarded.LoadOrStore(info.Path, true); twice {
		return
	}
	s.events.damagedTables.Add(1)
	go func() {
		if err := s.discard(info); err != nil {
			s.events.fatal(fmt.Errorf("throw away damaged table %s (%w): %w", info.Path, info.Details, err))
		}
	}()
}

// discard removes what partitions that reach into the table have. Nobody is
// inside the store meanwhile: whoever comes after it is refused, instead of
// taking what is missing for not there.
func (s *Store) discard(info pebble.DataCorruptionInfo) error {
	var first, last prefix
	if copy(first[:], info.Bounds.Start) < prefixSize || copy(last[:], info.Bounds.End.Key) < prefixSize {
		return fmt.Errorf("it spans %x to %x: %w", info.Bounds.Start, info.Bounds.End.Key, ErrCorrupt)
	}
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	hit := ""
	for _, p := range s.known() {
		if bytes.Compare(p.prefix[:], first[:]) >= 0 && bytes.Compare(p.prefix[:], last[:]) <= 0 {
			p.damaged.Store(true)
			p.loaded.Store(false)
			hit += " " + p.id.String()
		}
	}
	s.o.Logger.Error("store is damaged: throwing the table and its partitions away, they are replayed", "path", info.Path, "partitions", hit, "err", info.Details)
	if err := s.db.Flush(); err != nil {
		return err
	}
	end := last.next()
	return s.db.Excise(context.Background(), pebble.KeyRange{Start: first[:], End: end[:]})
}

// intact refuses a partition that lost a table, until it is wiped.
func (p *Partition) intact() error {
	if p.damaged.Load() {
		return fmt.Errorf("partition %s lay in a damaged table: %w", p.id, ErrCorrupt)
	}
	return nil
}

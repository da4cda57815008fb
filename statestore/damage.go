package statestore

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// tablePart names a table by its path and its bounds: what a wipe has left of one
// file on its two sides is two tables.
type tablePart struct{ path, start, end string }

// damaged is told of a table by whoever reads it, perhaps with locks of ours or
// of Pebble. Its partitions are refused at once: where an excise cuts a table and
// cannot read the rows beside the cut, Pebble takes them for not there.
func (s *Store) damaged(info pebble.DataCorruptionInfo) {
	part := tablePart{info.Path, string(info.Bounds.Start), string(info.Bounds.End.Key)}
	if _, twice := s.discarded.LoadOrStore(part, true); twice {
		return
	}
	var first, last prefix
	if copy(first[:], info.Bounds.Start) < prefixSize || copy(last[:], info.Bounds.End.Key) < prefixSize {
		s.events.fatal(fmt.Errorf("pebble: table %s, which spans %x to %x, is damaged: %w", info.Path, info.Bounds.Start, info.Bounds.End.Key, info.Details))
		return
	}
	s.refuse(first, last)
	go func() {
		<-s.opened
		if err := s.discard(info, first, last); err != nil {
			s.events.fatal(fmt.Errorf("throw away damaged table %s (%w): %w", info.Path, info.Details, err))
		}
	}()
}

// refuse has what partitions from first to last hold not believed until they are
// wiped, and names them.
func (s *Store) refuse(first, last prefix) (hit string) {
	for _, p := range s.known() {
		if p.prefix.compare(first) >= 0 && p.prefix.compare(last) <= 0 {
			p.damaged.Store(true)
			p.loaded.Store(false)
			hit += " " + p.id.String()
		}
	}
	return hit
}

// discard removes what partitions that reach into the table have. Nobody is
// inside the store meanwhile: whoever comes after it is refused, instead of
// taking what is missing for not there.
func (s *Store) discard(info pebble.DataCorruptionInfo, first, last prefix) error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	err := s.db.Flush()
	if err == nil {
		first, last, err = s.exciseWhole(first, last)
	}
	hit := s.refuse(first, last)
	s.events.damagedTables.Add(1)
	s.o.Logger.Error("store is damaged: throwing the table and its partitions away, they are replayed", "path", info.Path, "partitions", hit, "err", info.Details)
	return err
}

// exciseWhole excises the partitions from first to last. A table that reaches
// beyond them has to be read where it is cut; if it is damaged too, it goes with
// them, and so on. It returns which partitions are gone.
func (s *Store) exciseWhole(first, last prefix) (prefix, prefix, error) {
	for {
		end := last.next()
		err := s.db.Excise(context.Background(), pebble.KeyRange{Start: first[:], End: end[:]})
		if !pebble.IsCorruptionError(err) {
			return first, last, err
		}
		low, high, listErr := s.reach(first, last)
		if listErr != nil || low == first && high == last {
			return first, last, errors.Join(err, listErr)
		}
		first, last = low, high
	}
}

// reach is the first and the last partition of the tables that hold something of
// those from first to last.
func (s *Store) reach(first, last prefix) (low, high prefix, err error) {
	low, high = first, last
	levels, err := s.db.SSTables()
	for _, tables := range levels {
		for _, t := range tables {
			var from, to prefix
			copy(from[:], t.Smallest.UserKey)
			copy(to[:], t.Largest.UserKey)
			if to.compare(first) >= 0 && from.compare(last) <= 0 {
				low = slices.MinFunc([]prefix{low, from}, prefix.compare)
				high = slices.MaxFunc([]prefix{high, to}, prefix.compare)
			}
		}
	}
	return low, high, err
}

// intact refuses a partition that lost a table, until it is wiped.
func (p *Partition) intact() error {
	if p.damaged.Load() {
		return fmt.Errorf("partition %s lay in a damaged table: %w", p.id, ErrCorrupt)
	}
	return nil
}

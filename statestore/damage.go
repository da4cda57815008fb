package statestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// damage throws away damaged tables. A table goes as a whole: Pebble says which keys it spans, and every
// partition that may have a key there loses everything it has in the store. Its owner gets ErrCorrupt until it
// wipes the partition, to replay it. So nothing of the table has to be read. Cutting one partition out of it
// would read it.
type damage struct {
	s         *Store
	discarded sync.Map // by tablePart
}

// tablePart is one table: a path and its bounds. A wipe may leave two parts of one file, one on each
// side.
type tablePart struct{ path, start, end string }

// met is called by the goroutine that reads a damaged table, which may hold our locks or Pebble's. The table's
// partitions are rejected immediately: if an excise cuts a table and cannot read the rows next to the cut, Pebble
// treats them as missing.
func (d *damage) met(info pebble.DataCorruptionInfo) {
	part := tablePart{info.Path, string(info.Bounds.Start), string(info.Bounds.End.Key)}
	if _, twice := d.discarded.LoadOrStore(part, true); twice {
		return
	}
	var first, last prefix
	if copy(first[:], info.Bounds.Start) < prefixSize || copy(last[:], info.Bounds.End.Key) < prefixSize {
		d.s.events.fatal(fmt.Errorf("pebble: table %s, which spans %x to %x, is damaged: %w", info.Path,
			info.Bounds.Start, info.Bounds.End.Key, info.Details))
		return
	}
	d.refuse(first, last)
	go func() {
		<-d.s.opened
		if err := d.discard(info, first, last); err != nil {
			d.s.events.fatal(fmt.Errorf("throw away damaged table %s (%w): %w", info.Path, info.Details, err))
		}
	}()
}

// refuse marks the partitions from first to last as damaged until they are wiped, and names them.
func (d *damage) refuse(first, last prefix) (hit string) {
	for _, p := range d.s.known() {
		if p.prefix.compare(first) >= 0 && p.prefix.compare(last) <= 0 {
			p.damaged.Store(true)
			p.loaded.Store(false)
			hit += " " + p.id.String()
		}
	}
	return hit
}

// discard removes all rows of the partitions that the table spans. No other call is in the store at the time. Later
// calls for these partitions are rejected, so no caller takes missing rows for timers that are not pending.
func (d *damage) discard(info pebble.DataCorruptionInfo, first, last prefix) error {
	s := d.s
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	err := s.db.Flush()
	if err == nil {
		first, last, err = d.excise(first, last)
	}
	hit := d.refuse(first, last)
	s.events.damagedTables.Add(1)
	s.o.Logger.Error("store damaged: removing the table and its partitions, which are replayed; check the disk",
		"path", info.Path, "partitions", hit, "err", info.Details)
	return err
}

// excise removes the partitions from first to last, and returns which ones it has removed. A table that reaches beyond
// them has to be read at the cut. If that table is damaged too, its partitions are removed with them, and so on.
func (d *damage) excise(first, last prefix) (prefix, prefix, error) {
	for {
		end := last.next()
		err := d.s.db.Excise(context.Background(), pebble.KeyRange{Start: first[:], End: end[:]})
		if !pebble.IsCorruptionError(err) {
			return first, last, err
		}
		low, high, listErr := d.reach(first, last)
		if listErr != nil || low == first && high == last {
			return first, last, errors.Join(err, listErr)
		}
		first, last = low, high
	}
}

// reach returns the first and the last partition of all tables that hold something of the partitions from
// first to last.
func (d *damage) reach(first, last prefix) (low, high prefix, err error) {
	low, high = first, last
	tables, err := tableBounds(d.s.db)
	for _, t := range tables {
		if t.last.compare(first) >= 0 && t.first.compare(last) <= 0 {
			low = slices.MinFunc([]prefix{low, t.first}, prefix.compare)
			high = slices.MaxFunc([]prefix{high, t.last}, prefix.compare)
		}
	}
	return low, high, err
}

package statestore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/sstable"
)

const (
	// An Apply, or a flush of a replay, of at least tableIDs different IDs, or tableBytes, makes a table instead of a
	// batch. A table costs some synced writes, 10 to 20 ms; a batch costs about 6 us more for each timer.
	tableIDs   = 4_000
	tableBytes = 4 << 20
)

// tableMaker is what all tables of a store share.
type tableMaker struct {
	options sstable.WriterOptions
	made    atomic.Uint64
	// one for each batch that is being made into a table; taken before life and a partition's locks
	turns    chan struct{}
	leastIDs int // see tableIDs; tests change it
}

// ingestLocked stores records, sorted by ID and resolved, and next in one table. Rows, deletions, checkpoint and
// position become valid with one synced edit of the manifest. p.write is held. The partition has no rows in
// memtables when the table is ingested: doc.go says why that must be so.
func (p *Partition) ingestLocked(next meta, records []record) error {
	e := p.effectLocked()
	rows := tableRows{p: p, meta: &next, records: records}
	rows.add(&e)
	e.behind(&next)
	if err := p.flushLocked(); err != nil {
		return err
	}
	fsys := p.s.o.fs()
	path := fsys.PathJoin(p.s.o.Dir, tablesDir, fmt.Sprintf("%06d.sst", p.s.tables.made.Add(1)))
	if err := rows.write(fsys, path); err != nil {
		return errors.Join(p.s.events.writeError(err), fsys.Remove(path))
	}
	if err := p.s.db.Ingest(context.Background(), []string{path}); err != nil {
		p.loaded.Store(false) // the state is read again
		_ = fsys.Remove(path) // it may be gone; Open clears it in any case
		return err
	}
	e.install(next)
	return nil
}

package statestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

// tableRows are the rows of one table, each list in order.
type tableRows struct {
	p       *Partition
	meta    *meta
	dues    []dueRow
	records []record
	parked  []Location // to delete
	targets []*target  // to write, or to delete if nothing is parked for them
}

// write makes the table: all rows in the order of their keys.
func (tr *tableRows) write(fsys vfs.FS, path string) error {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	// Closing the writer syncs and closes the file.
	w := rowWriter{sstable: sstable.NewWriter(objstorageprovider.NewFileWritable(f), tr.p.s.tables.options)}
	if tr.meta.Checkpoint != nil {
		w.set(tr.p.prefix.key(kindCheckpoint), tr.meta.Checkpoint)
	}
	tr.writeDues(&w)
	tr.writeIDs(&w)
	w.set(tr.p.prefix.key(kindMeta), tr.meta.append(nil))
	for _, at := range tr.parked {
		w.delete(appendRowKey(nil, tr.p.prefix, at))
	}
	for _, t := range tr.targets {
		if key := appendNumberKey(nil, tr.p.prefix, kindTarget, t.number); t.count == 0 {
			w.delete(key)
		} else {
			w.set(key, t.encode())
		}
	}
	return errors.Join(w.err, w.sstable.Close())
}

// rowWriter writes rows until one of them fails.
type rowWriter struct {
	sstable *sstable.Writer
	err     error
}

func (r *rowWriter) set(key, value []byte) {
	if r.err == nil {
		r.err = r.sstable.Set(key, value)
	}
}

func (r *rowWriter) delete(key []byte) {
	if r.err == nil {
		r.err = r.sstable.Delete(key)
	}
}

func (tr *tableRows) writeDues(w *rowWriter) {
	key := make([]byte, 0, dueKeySize)
	var scratch []byte
	for _, d := range tr.dues {
		if key = appendDueKey(key[:0], tr.p.prefix, d.ref); d.of == deletion {
			w.delete(key)
		} else {
			w.set(key, tr.records[d.of].encoded(&scratch))
		}
	}
}

func (tr *tableRows) writeIDs(w *rowWriter) {
	key := make([]byte, 0, idAt+maxIDSize)
	var ref []byte
	for i := range tr.records {
		c := &tr.records[i]
		key = appendIDKey(key[:0], tr.p.prefix, c.ID)
		switch {
		case !c.After.IsAbsent():
			tr.p.ids.noteLocked(c.ID)
			ref = appendRef(ref[:0], c.After)
			w.set(key, ref)
		case !c.Before.IsAbsent():
			w.delete(key)
		}
	}
}

// dueRow is a row by due time that goes into a table: that of a record, or a deletion.
type dueRow struct {
	ref timer.Ref
	of  int32 // index of the record; negative: a deletion
}

const deletion = -1

// add fills the lists from the records, and notes the effect of the rows in e.
func (tr *tableRows) add(e *effect) {
	tr.dues = make([]dueRow, 0, len(tr.records))
	for i := range tr.records {
		c := &tr.records[i]
		e.count(c.ID, c.Before, c.After)
		now := Location{ref: c.After}
		if !c.After.IsAbsent() {
			tr.dues = append(tr.dues, dueRow{c.After, int32(i)})
			e.put(now)
		}
		if was := c.was(); !c.Before.IsAbsent() && was != now {
			e.remove(was)
			if was.target != 0 {
				tr.parked = append(tr.parked, was)
			} else {
				tr.dues = append(tr.dues, dueRow{c.Before, deletion})
			}
		}
	}
	slices.SortFunc(tr.dues, func(a, b dueRow) int {
		if c := a.ref.Compare(b.ref); c != 0 {
			return c
		}
		return cmp.Compare(b.of, a.of) // a put stands before the deletion of the same row, which is then left out
	})
	tr.dues = slices.CompactFunc(tr.dues, func(a, b dueRow) bool { return a.ref == b.ref })
	slices.SortFunc(tr.parked, func(a, b Location) int {
		return cmp.Or(cmp.Compare(a.target, b.target), a.ref.Compare(b.ref))
	})
	tr.targets = e.targets.sorted()
}

const (
	// An Apply, or a flush of a replay, of at least tableIDs different IDs, or tableBytes, makes a table instead of a
	// batch. A table costs some synced writes, 10 to 20 ms; a batch costs about 6 us more for each timer.
	tableIDs   = 4_000
	tableBytes = 4 << 20
)

// tableMaker is shared by all tables of a store.
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

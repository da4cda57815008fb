package statestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

// dueRow is a row by due time to write to a table: that of a record, by its place, or a
// deletion.
type dueRow struct {
	ref timer.Ref
	of  int32 // negative: a deletion
}

const deletion = -1

// ingestLocked stores records, sorted by ID and resolved, and next in
// one table: rows, deletions, checkpoint and position become valid with one
// synced edit of the manifest. p.write is held, and the partition has no rows in
// memory when the table comes: doc.go says why that must be.
func (p *Partition) ingestLocked(next meta, records []record) error {
	dues, lowest, deleted := dueRows(records)
	parked := parkedRows(records)
	targets := targetChanges{of: &p.targets}
	for _, at := range parked {
		targets.remove(at)
	}
	misplaced := p.tallyFor(p.state.Partitions)
	for i := range records {
		next.Pending += records[i].gain()
		misplaced.add(records[i].id, records[i].before, records[i].after)
	}
	misplaced.enter(&next)
	next.Parked += targets.parked
	next.low = p.low.put(lowest)
	if err := p.flushLocked(); err != nil {
		return err
	}
	fsys := p.s.o.fs()
	path := fsys.PathJoin(p.s.o.Dir, tablesDir, fmt.Sprintf("%06d.sst", p.s.tables.Add(1)))
	rows := tableRows{&next, dues, records, parked, targets.sorted()}
	if err := p.writeTable(fsys, path, &rows); err != nil {
		return errors.Join(p.s.events.tableError(err), fsys.Remove(path))
	}
	if err := p.s.db.Ingest(context.Background(), []string{path}); err != nil {
		p.loaded.Store(false) // read what there is
		_ = fsys.Remove(path) // it may be gone; Open clears it in any case
		return err
	}
	p.setState(next)
	targets.install()
	p.deleted(deleted)
	return nil
}

// gain is by how much a record changes the number of pending timers.
func (c *record) gain() (n int64) {
	if !c.before.IsAbsent() {
		n--
	}
	if !c.after.IsAbsent() {
		n++
	}
	return n
}

// dueRows are the rows by due time that the records put and delete, in order,
// with the lowest that is put and the number of those that are deleted.
func dueRows(records []record) (rows []dueRow, lowest timer.Ref, deleted int) {
	rows = make([]dueRow, 0, len(records))
	lowest = last
	for i := range records {
		c := &records[i]
		if !c.after.IsAbsent() {
			rows = append(rows, dueRow{c.after, int32(i)})
			if c.after.Compare(lowest) < 0 {
				lowest = c.after
			}
		}
		if !c.before.IsAbsent() && c.before != c.after && c.target == 0 {
			rows = append(rows, dueRow{c.before, deletion})
			deleted++
		}
	}
	slices.SortFunc(rows, func(a, b dueRow) int {
		if c := a.ref.Compare(b.ref); c != 0 {
			return c
		}
		return cmp.Compare(b.of, a.of) // a put hides a deletion
	})
	return slices.CompactFunc(rows, func(a, b dueRow) bool { return a.ref == b.ref }), lowest, deleted
}

// parkedRows are the parked rows that the records delete, in order.
func parkedRows(records []record) (rows []Location) {
	for i := range records {
		if c := &records[i]; c.target != 0 {
			rows = append(rows, Location{c.before, c.target})
		}
	}
	slices.SortFunc(rows, func(a, b Location) int {
		if a.target != b.target {
			return cmp.Compare(a.target, b.target)
		}
		return a.ref.Compare(b.ref)
	})
	return rows
}

// tableRows is what goes into one table, each list in order.
type tableRows struct {
	meta    *meta
	dues    []dueRow
	records []record
	parked  []Location // to delete
	targets []target   // to write, or to delete if nothing is parked for it
}

// writeTable writes all rows in the order of their keys.
func (p *Partition) writeTable(fsys vfs.FS, path string, rows *tableRows) (err error) {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	// Closing the writer syncs and closes the file.
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), p.s.table)
	defer func() { err = errors.Join(err, w.Close()) }()
	if rows.meta.Checkpoint != nil {
		if err := w.Set(p.prefix.key(kindCheckpoint), rows.meta.Checkpoint); err != nil {
			return err
		}
	}
	if err := p.writeDues(w, rows.dues, rows.records); err != nil {
		return err
	}
	if err := p.writeIDs(w, rows.records); err != nil {
		return err
	}
	row := make([]byte, metaSize)
	rows.meta.put(row)
	if err := w.Set(p.prefix.key(kindMeta), row); err != nil {
		return err
	}
	return p.writeParked(w, rows.parked, rows.targets)
}

func (p *Partition) writeParked(w *sstable.Writer, rows []Location, targets []target) error {
	for _, at := range rows {
		if err := w.Delete(appendRowKey(nil, p.prefix, at)); err != nil {
			return err
		}
	}
	for i := range targets {
		key := appendNumberKey(nil, p.prefix, kindTarget, targets[i].number)
		var err error
		if targets[i].count == 0 {
			err = w.Delete(key)
		} else {
			err = w.Set(key, targets[i].encode())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Partition) writeDues(w *sstable.Writer, dues []dueRow, records []record) (err error) {
	key := make([]byte, 0, dueKeySize)
	var scratch []byte
	for _, d := range dues {
		key = appendDueKey(key[:0], p.prefix, d.ref)
		if d.of == deletion {
			err = w.Delete(key)
		} else {
			row := records[d.of].row
			if row == nil {
				scratch = records[d.of].timer.AppendTo(scratch[:0])
				row = scratch
			}
			err = w.Set(key, row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Partition) writeIDs(w *sstable.Writer, records []record) (err error) {
	key := make([]byte, 0, idAt+maxIDSize)
	var ref [refSize]byte
	for i := range records {
		c := &records[i]
		key = appendIDKey(key[:0], p.prefix, c.id)
		switch {
		case !c.after.IsAbsent():
			p.ids.noteLocked(c.id)
			putRef(ref[:], c.after)
			err = w.Set(key, ref[:])
		case !c.before.IsAbsent():
			err = w.Delete(key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

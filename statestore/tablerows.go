package statestore

import (
	"cmp"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

// tableRows is what goes into one table, each list in order.
type tableRows struct {
	p       *Partition
	meta    *meta
	dues    []dueRow
	records []record
	parked  []Location // to delete
	targets []target   // to write, or to delete if nothing is parked for them
}

// write makes the table: all rows in the order of their keys.
func (r *tableRows) write(fsys vfs.FS, path string) (err error) {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	// Closing the writer syncs and closes the file.
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), r.p.s.tables.options)
	defer func() { err = errors.Join(err, w.Close()) }()
	if r.meta.Checkpoint != nil {
		if err := w.Set(r.p.prefix.key(kindCheckpoint), r.meta.Checkpoint); err != nil {
			return err
		}
	}
	if err := r.writeDues(w); err != nil {
		return err
	}
	if err := r.writeIDs(w); err != nil {
		return err
	}
	row := make([]byte, metaSize)
	r.meta.put(row)
	if err := w.Set(r.p.prefix.key(kindMeta), row); err != nil {
		return err
	}
	return r.writeParked(w)
}

func (r *tableRows) writeDues(w *sstable.Writer) (err error) {
	key := make([]byte, 0, dueKeySize)
	var scratch []byte
	for _, d := range r.dues {
		key = appendDueKey(key[:0], r.p.prefix, d.ref)
		if d.of == deletion {
			err = w.Delete(key)
		} else {
			err = w.Set(key, r.records[d.of].encoded(&scratch))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *tableRows) writeIDs(w *sstable.Writer) (err error) {
	key := make([]byte, 0, idAt+maxIDSize)
	var ref [refSize]byte
	for i := range r.records {
		c := &r.records[i]
		key = appendIDKey(key[:0], r.p.prefix, c.id)
		switch {
		case !c.after.IsAbsent():
			r.p.ids.noteLocked(c.id)
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

func (r *tableRows) writeParked(w *sstable.Writer) error {
	for _, at := range r.parked {
		if err := w.Delete(appendRowKey(nil, r.p.prefix, at)); err != nil {
			return err
		}
	}
	for i := range r.targets {
		key := appendNumberKey(nil, r.p.prefix, kindTarget, r.targets[i].number)
		var err error
		if r.targets[i].count == 0 {
			err = w.Delete(key)
		} else {
			err = w.Set(key, r.targets[i].encode())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dueRow is a row by due time that goes into a table: that of a record, or a deletion.
type dueRow struct {
	ref timer.Ref
	of  int32 // index of the record; negative: a deletion
}

const deletion = -1

// dueRows returns the rows by due time that the records put and delete, in order. It also returns the lowest
// one that is put, and how many are deleted.
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
		return cmp.Compare(b.of, a.of) // a put stands before the deletion of the same row, which is then left out
	})
	return slices.CompactFunc(rows, func(a, b dueRow) bool { return a.ref == b.ref }), lowest, deleted
}

// parkedRows returns the parked rows that the records delete, in order.
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

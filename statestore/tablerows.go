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
	targets []*target  // to write, or to delete if nothing is parked for them
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
	if err := w.Set(r.p.prefix.key(kindMeta), r.meta.append(nil)); err != nil {
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
	var ref []byte
	for i := range r.records {
		c := &r.records[i]
		key = appendIDKey(key[:0], r.p.prefix, c.ID)
		switch {
		case !c.After.IsAbsent():
			r.p.ids.noteLocked(c.ID)
			ref = appendRef(ref[:0], c.After)
			err = w.Set(key, ref)
		case !c.Before.IsAbsent():
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
	for _, t := range r.targets {
		key := appendNumberKey(nil, r.p.prefix, kindTarget, t.number)
		var err error
		if t.count == 0 {
			err = w.Delete(key)
		} else {
			err = w.Set(key, t.encode())
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

// add fills the lists from the records, and notes in e what the rows change.
func (r *tableRows) add(e *effect) {
	r.dues = make([]dueRow, 0, len(r.records))
	for i := range r.records {
		c := &r.records[i]
		e.count(c.ID, c.Before, c.After)
		now := Location{ref: c.After}
		if !c.After.IsAbsent() {
			r.dues = append(r.dues, dueRow{c.After, int32(i)})
			e.put(now)
		}
		if was := c.was(); !c.Before.IsAbsent() && was != now {
			e.remove(was)
			if was.target != 0 {
				r.parked = append(r.parked, was)
			} else {
				r.dues = append(r.dues, dueRow{c.Before, deletion})
			}
		}
	}
	slices.SortFunc(r.dues, func(a, b dueRow) int {
		if c := a.ref.Compare(b.ref); c != 0 {
			return c
		}
		return cmp.Compare(b.of, a.of) // a put stands before the deletion of the same row, which is then left out
	})
	r.dues = slices.CompactFunc(r.dues, func(a, b dueRow) bool { return a.ref == b.ref })
	slices.SortFunc(r.parked, func(a, b Location) int {
		return cmp.Or(cmp.Compare(a.target, b.target), a.ref.Compare(b.ref))
	})
	r.targets = e.targets.sorted()
}

package memtable

import "github.com/waterclock/waterclock/internal/timer"

// tombstoneBytes is about how many bytes of memory a tombstone takes.
func tombstoneBytes(id []byte) int64 { return int64(len(id)) + 16 + overhead }

// bury adds a tombstone.
func (t *Table) bury(r *Record) Ref {
	c, offset := t.tombstones[t.now].append(r)
	return refOf(Tombstone, placeOf(0, t.now, c, offset))
}

// exhume takes one out.
func (t *Table) exhume(at Ref) {
	_, list, c, offset := at.place().split()
	b := &t.tombstones[list]
	r := b.at(c, offset)
	id := r.Bytes
	if b.remove(&r, c, offset); list != t.now {
		return // what a checkpoint deletes is over soon
	}
	if t.buried -= tombstoneBytes(id); b.wasteful() {
		old := *b
		*b = bucket{}
		old.each(func(r *Record, c, offset int) {
			t.index.move(t.sum(r.Bytes), refOf(Tombstone, placeOf(0, list, c, offset)), t.bury(r))
		})
	}
}

// tombstone is what a record of a list says.
func (t *Table) tombstone(list int, r *Record) Record {
	if list != t.now {
		return Record{Bytes: r.Bytes, State: Flushing, Stored: timer.Absent}
	}
	return r.public()
}

package memtable

import (
	"bytes"
	"unsafe"

	"github.com/waterclock/waterclock/internal/timer"
)

// Table has records, tombstones and objects, by timer ID. Make one with [New].
//
// It has nothing of an ID (then the store is the truth), or one of these:
//
//   - A record: a timer that is pending as it is encoded. It fires soon, or later, which means above the horizon.
//     It is clean (the store has it), dirty (the store does not have it), or flushing (a checkpoint is writing it).
//     A clean record is never later.
//   - A tombstone: nothing is pending, and the store still has something. It is dirty or flushing.
//   - An object: something happens to the timer, and the caller keeps its state. The table knows its number and, unless
//     it must not fire, its place in the order of firing.
//
// These are all moves between them:
//
//	nothing                -> clean record soon   AddStored: a load found it
//	nothing                -> object              AddObject
//	record, tombstone      -> object              Decode: a request meets it, or Pop gave it out
//	object                 -> record              Encode: nothing happens to it any more
//	object                 -> tombstone           Bury: the same, and nothing is pending
//	object                 -> nothing             Forget
//	later                  -> soon                Approach: the horizon rises
//	soon                   -> later, or nothing   Evict: memory is full. A clean record is forgotten
//	dirty                  -> flushing            Flush: a checkpoint begins
//	flushing               -> clean, or nothing   Flushed: it is in the store. Later ones are forgotten
//
// A rollback meets only objects: whatever an entry of a step refers to stays one until the step is applied.
type Table struct {
	Hash hash

	directory directory
	objects   objects
	soon      *wheel
	later     *wheel // references only: records are in the layers
	layers    layers
	scratch   []byte
}

// Stats says how much a table has.
type Stats struct {
	IDs, Objects int
	Soon, Later  int   // timers in the order of firing
	Changed      int   // records that the store does not have
	Tombstones   int   // including those that a checkpoint writes
	SoonBytes    int64 // about how much memory soon records take
	DirtyBytes   int64 // about how much memory dirty tombstones and dirty later records take
}

// New returns an empty table at the instant now, in Unix milliseconds, whose finest slots have 1<<grain
// milliseconds.
func New(now int64, grain uint) *Table {
	t := new(Table)
	t.soon = newWheel(refOf(Soon, 0, 0), now, grain, t.moved)
	t.later = newWheel(refOf(Later, 0, 0), now, grain, t.moved)
	for i := range t.layers.both {
		t.layers.both[i].later = newWheel(refOf(Later, i, 0), now, grain, t.moved)
	}
	return t
}

// Stats says how much the table has.
func (t *Table) Stats() Stats {
	active, other := t.layers.in(Dirty), t.layers.in(Flushing)
	return Stats{
		IDs: t.directory.len(), Objects: t.objects.len(),
		Soon: t.soon.n, Later: t.later.n + active.later.n + other.later.n,
		Changed: t.soon.marked + active.later.n + other.later.n, Tombstones: active.tombstones.n + other.tombstones.n,
		SoonBytes: t.soon.bytes, DirtyBytes: active.later.bytes + active.buried,
	}
}

// Objects returns how many objects there are, and a number that is above all of theirs.
func (t *Table) Objects() (n, numbers int) { return t.objects.len(), len(t.objects.all) }

// moved notes that a wheel has moved a record.
func (t *Table) moved(r *Record, id []byte, from, to Ref) {
	if r.State&reference != 0 {
		t.objects.all[r.number()].at = to
		return
	}
	t.directory.move(t.Hash.sum(id), from, to)
}

// order returns the wheel of objects that are soon, or that of later ones.
func (t *Table) order(k Kind) *wheel {
	if k == Soon {
		return t.soon
	}
	return t.later
}

// Find returns the place of an ID.
func (t *Table) Find(id []byte) Ref {
	return t.directory.find(t.Hash.sum(id), func(at Ref) bool {
		switch at.Kind() {
		case Object:
			return t.objects.all[at.Number()].id == string(id)
		case Tombstone:
			return bytes.Equal(t.At(at).Bytes, id)
		}
		r := t.At(at)
		return bytes.Equal(r.ID(), id)
	})
}

// At returns a record or a tombstone. The caller may keep its bytes, which never change. But they keep the whole chunk
// alive that they are part of, up to 16 KiB.
func (t *Table) At(at Ref) Record {
	switch at.Kind() {
	case Soon:
		return t.soon.at(at.place()).public()
	case Later:
		return t.layers.whole(at, t.layers.both[at.layer()].later.at(at.place()))
	}
	_, _, c, offset := at.place().split()
	return t.layers.whole(at, t.layers.both[at.layer()].tombstones.at(c, offset))
}

// take takes out a record or a tombstone. The caller updates the directory.
func (t *Table) take(at Ref) Record {
	switch l := &t.layers.both[at.layer()]; at.Kind() {
	case Soon:
		return t.soon.take(at.place()).public()
	case Later:
		return t.layers.whole(at, l.later.take(at.place()))
	default:
		r := t.At(at)
		l.exhume(at.place(), func(id []byte, from, to place) {
			t.directory.move(t.Hash.sum(id), refOf(Tombstone, at.layer(), from), refOf(Tombstone, at.layer(), to))
		})
		return r
	}
}

// AddObject makes an object for an ID that is not in the table. It returns the number of the object.
func (t *Table) AddObject(id string) int32 {
	sum := t.Hash.sumOf(id)
	number := t.objects.add(id, sum)
	t.directory.add(sum, objectAt(number))
	return number
}

// Forget forgets an object and its ID. The object must not be in the order of firing.
func (t *Table) Forget(number int32) {
	t.directory.remove(t.objects.all[number].sum, objectAt(number))
	t.objects.release(number)
}

// Put puts an object into the order of firing, as soon or as later. key is its place there: Due in Unix
// milliseconds, then Offset. It need not be the timer's own Ref.
func (t *Table) Put(number int32, k Kind, key timer.Ref) {
	o := &t.objects.all[number]
	if o.at != 0 {
		panic("memtable: an object is put into the order of firing twice")
	}
	t.scratch = appendReference(t.scratch[:0], key, number)
	o.at = t.order(k).add(&Record{Bytes: t.scratch, State: reference, Stored: timer.Absent}, key)
}

// Remove takes an object out of the order of firing, if it is there.
func (t *Table) Remove(number int32) {
	if o := &t.objects.all[number]; o.at != 0 {
		at := o.at
		o.at = 0
		t.order(at.Kind()).take(at.place())
	}
}

// Place returns whether an object is soon or later, and its key. It returns None if the object is not in the order of
// firing.
func (t *Table) Place(number int32) (k Kind, key timer.Ref) {
	if at := t.objects.all[number].at; at != 0 {
		r := t.order(at.Kind()).at(at.place())
		return at.Kind(), r.key()
	}
	return None, timer.Ref{}
}

// AddStored adds a copy of a timer that the store has as a soon record. Nothing may be known of its ID. It returns
// false, and adds nothing, if the timer cannot be a record.
func (t *Table) AddStored(b []byte) bool {
	r := Record{Bytes: b, Stored: timer.Absent}
	id, key := r.place()
	if !t.soon.fits(&r, key) {
		return false
	}
	t.directory.add(t.Hash.sum(id), t.soon.add(&r, key))
	return true
}

// Encode replaces an object that is soon or later by a copy of a record, and frees the object's number. It returns
// false, and changes nothing, if the timer cannot be a record.
func (t *Table) Encode(number int32, r Record) bool {
	o, key := t.objects.all[number], r.key()
	w := t.soon
	if o.at.Kind() == Later {
		w = t.layers.in(r.State).later
	}
	if !w.fits(&r, key) {
		return false
	}
	t.Remove(number)
	t.directory.move(o.sum, objectAt(number), w.add(&r, key))
	t.objects.release(number)
	return true
}

// Bury replaces an object that is not in the order of firing by a tombstone, and frees the object's number. It returns
// false, and changes nothing, if the ID is too long.
func (t *Table) Bury(number int32, stored timer.Ref) bool {
	o := t.objects.all[number]
	if len(o.id) > MaxBytes {
		return false
	}
	t.scratch = append(t.scratch[:0], o.id...)
	at := t.layers.in(Dirty).bury(&Record{Bytes: t.scratch, State: Dirty, Stored: stored})
	t.directory.move(o.sum, objectAt(number), refOf(Tombstone, t.layers.active, at))
	t.objects.release(number)
	return true
}

// Decode replaces a record or a tombstone by an object, which is not in the order of firing. It returns the object's
// number, its ID and the record. With own set, the bytes are a copy, and the ID is that of IDIn. Otherwise both are
// part of a chunk of up to 16 KiB, which stays in memory until the caller gives the ID other memory by SetID.
func (t *Table) Decode(at Ref, own bool) (number int32, id string, r Record) {
	if r = t.take(at); own {
		r.Bytes = bytes.Clone(r.Bytes)
	}
	b := r.Bytes
	if at.Kind() != Tombstone {
		b = r.ID()
	}
	if id = unsafe.String(unsafe.SliceData(b), len(b)); own { // never written to
		id = IDIn(r.Bytes, b)
	}
	sum := t.Hash.sumOf(id)
	number = t.objects.add(id, sum)
	t.directory.move(sum, at, objectAt(number))
	return number, id, r
}

// SetID replaces an object's ID by an equal one in other memory.
func (t *Table) SetID(number int32, id string) { t.objects.all[number].id = id }

// Next returns when First should be called next, in Unix milliseconds. It returns false if nothing is soon. The time is
// never later than the earliest due time, but it may be earlier by the length of a slot. Then a call of First at that
// time makes Next move on.
func (t *Table) Next() (due int64, ok bool) { return t.soon.next() }

// First returns the key of the first timer that is soon, and whether that timer is due.
func (t *Table) First(now int64) (timer.Ref, bool) {
	e, due := t.soon.first(now)
	return e.key, due
}

// Pop returns the first timer that is soon if it is due, else 0. An object is taken out of the order of firing. A
// record stays until the caller decodes it.
func (t *Table) Pop(now int64) Ref {
	e, due := t.soon.first(now)
	if !due {
		return 0
	}
	r := t.soon.at(e.at)
	if r.State&reference == 0 {
		return t.soon.ref(e.at)
	}
	t.Remove(r.number())
	return objectAt(r.number())
}

// Approach raises the horizon: later timers that are due by an instant are later no more. Records become soon. Objects
// are taken out of the order of firing, and fn is called with their numbers.
func (t *Table) Approach(due int64, fn func(number int32)) {
	for e, ok := t.later.first(due); ok; e, ok = t.later.first(due) {
		r := t.later.at(e.at)
		number := r.number()
		t.Remove(number)
		fn(number)
	}
	for i := range t.layers.both {
		w := t.layers.both[i].later
		for e, ok := w.first(due); ok; e, ok = w.first(due) {
			at := w.ref(e.at)
			r := t.take(at)
			t.directory.move(t.Hash.sum(r.ID()), at, t.soon.add(&r, e.key))
		}
	}
}

// Farthest returns the key of the n-th soon timer from the far end; 1 <= n <= Stats.Soon.
func (t *Table) Farthest(n int) timer.Ref { return t.soon.farthest(n) }

// Evict lowers the horizon: from a key on, timers are soon no more. Clean records are forgotten, the others become
// later. Objects are taken out of the order of firing, and fn is called with their numbers. fn must not change soon
// timers.
func (t *Table) Evict(from timer.Ref, fn func(number int32)) {
	t.later.lower(from.Due)
	for i := range t.layers.both {
		t.layers.both[i].later.lower(from.Due)
	}
	t.soon.evict(from, func(r *Record, p place) {
		if r.State&reference != 0 {
			t.objects.all[r.number()].at = 0
			fn(r.number())
			return
		}
		id, key := r.place()
		sum, at := t.Hash.sum(id), t.soon.ref(p)
		if marks(r.State) == 0 {
			t.directory.remove(sum, at)
			return
		}
		t.directory.move(sum, at, t.layers.in(r.State).later.add(r, key))
	})
}

// SetBack notes that the clock may have gone back to now. Timers that are due from then on wait in slots again.
func (t *Table) SetBack(now int64) { t.soon.lower(now) }

// Flush begins a checkpoint. It calls fn with each dirty record and each dirty tombstone, which are flushing from then
// on. The last checkpoint must have ended.
func (t *Table) Flush(fn func(k Kind, r Record)) {
	t.soon.flush(func(r Record) { fn(Soon, r) })
	l := t.layers.in(Dirty)
	l.later.eachMarked(func(r *Record, _ place) { fn(Later, r.public()) })
	l.tombstones.each(func(r *Record, _, _ int) { fn(Tombstone, r.public()) })
	t.layers.active = 1 - t.layers.active
	t.layers.in(Dirty).later.taken = l.later.taken // it is empty
}

// Flushed ends a checkpoint that is in the store. Flushing records that are soon become clean. The rest is forgotten,
// as a whole layer.
func (t *Table) Flushed() {
	t.soon.flushed()
	written := 1 - t.layers.active
	t.layers.both[written] = layer{later: newWheel(refOf(Later, written, 0), 0, t.soon.grain, t.moved)}
	t.directory.drop(written)
}

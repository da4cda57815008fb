package memtable

import (
	"bytes"
	"hash/maphash"

	"github.com/waterclock/waterclock/internal/timer"
)

// Table is what is known of timers, by ID. Make one with [New].
//
// Of an ID it has nothing (then the store is the truth), or one of these:
//
//   - A record: a timer that is pending as it is encoded. It fires soon, or later, which means above the horizon.
//     It is clean (the store has it), dirty (the store does not have it), or flushing (a checkpoint is writing it).
//     A clean record is never later.
//   - A tombstone: nothing is pending, and the store still has something. It is dirty or flushing.
//   - An object: something happens to the timer, and the caller knows what. The table knows its number, and where it
//     stands in the order of firing, if it does.
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
//	flushing               -> clean, or nothing   Flushed: it is in the store. What is not soon is forgotten
//
// A rollback finds objects only: whatever an entry of a step refers to is one until the step is applied.
type Table struct {
	// Blind are bits of the sums of IDs that do not count, so that IDs have the same: for tests.
	Blind uint64

	index       index
	objects     []object // by number
	free        []int32  // numbers
	released    int      // objects, since shrink
	soon, later *wheel
	tombstones  [2]bucket // what came since the last Flush, and what a checkpoint deletes
	now         int       // which of them is the former
	buried      int64     // bytes of that
	scratch     []byte
}

// leastReleased is how many objects are released at least between two calls of shrink, which looks at all numbers.
const leastReleased = 1000

// object is what the table needs to know of one; without an ID its number is free.
type object struct {
	id  string
	sum uint64
	at  Ref // of the reference to it; 0: it is not to fire
}

// New returns an empty table at the instant now, in Unix milliseconds, whose finest slots have 1<<grain
// milliseconds.
func New(now int64, grain uint) *Table {
	t := new(Table)
	t.soon, t.later = newWheel(Soon, now, grain, t.moved), newWheel(Later, now, grain, t.moved)
	return t
}

func (t *Table) sum(id []byte) uint64 { return maphash.Bytes(seed, id) &^ t.Blind }

// moved is told that a record of a wheel lies elsewhere.
func (t *Table) moved(r *Record, id []byte, from, to Ref) {
	if r.State&reference != 0 {
		t.objects[r.number()].at = to
		return
	}
	t.index.move(t.sum(id), from, to)
}

// wheel is the one that a place of a kind is in.
func (t *Table) wheel(k Kind) *wheel {
	if k == Soon {
		return t.soon
	}
	return t.later
}

// Len is how many IDs something is known of.
func (t *Table) Len() int { return t.index.n }

// Objects is how many of them are objects.
func (t *Table) Objects() int { return len(t.objects) - len(t.free) }

// Numbers is what the number of each object is below.
func (t *Table) Numbers() int { return len(t.objects) }

// In is how many timers are soon, or later.
func (t *Table) In(k Kind) int { return t.wheel(k).n }

// SoonBytes is about how much memory the records that are soon take.
func (t *Table) SoonBytes() int64 { return t.soon.bytes }

// DirtyBytes is about how much memory tombstones and later records take of which the store has not heard.
func (t *Table) DirtyBytes() int64 { return t.later.dirty + t.buried }

// Changed is how many records the store does not have.
func (t *Table) Changed() int { return t.soon.marked + t.later.marked }

// Buried is how many tombstones there are, those included that a checkpoint deletes.
func (t *Table) Buried() int { return t.tombstones[0].n + t.tombstones[1].n }

// Find returns what is known of an ID.
func (t *Table) Find(id []byte) Ref {
	return t.index.find(t.sum(id), func(at Ref) bool {
		switch at.Kind() {
		case Object:
			return t.objects[at.Number()].id == string(id)
		case Tombstone:
			return bytes.Equal(t.At(at).Bytes, id)
		}
		r := t.At(at)
		return bytes.Equal(r.ID(), id)
	})
}

// At returns a record, or a tombstone. Its bytes never change, and may be kept; but they keep the chunk that
// they are part of, of 16 KiB at most.
func (t *Table) At(at Ref) Record {
	if at.Kind() != Tombstone {
		return t.wheel(at.Kind()).at(at.place()).public()
	}
	_, list, c, offset := at.place().split()
	r := t.tombstones[list].at(c, offset)
	return t.tombstone(list, &r)
}

// AddObject has an ID of which nothing is known be an object, whose number it returns.
func (t *Table) AddObject(id string) int32 {
	number := t.object(id)
	t.index.add(t.objects[number].sum, refOf(Object, place(number)))
	return number
}

func (t *Table) object(id string) (number int32) {
	if last := len(t.free) - 1; last >= 0 {
		number, t.free = t.free[last], t.free[:last]
	} else {
		number, t.objects = int32(len(t.objects)), append(t.objects, object{})
	}
	t.objects[number] = object{id: id, sum: t.sum([]byte(id))}
	return number
}

// Forget forgets an object, which is not to fire, and its ID.
func (t *Table) Forget(number int32) {
	t.index.remove(t.objects[number].sum, refOf(Object, place(number)))
	t.release(number)
}

// release frees the number of an object.
func (t *Table) release(number int32) {
	t.objects[number], t.free = object{}, append(t.free, number)
	if t.released++; len(t.free) == len(t.objects) || t.released > max(leastReleased, len(t.objects)/2) && len(t.free) > len(t.objects)/4*3 {
		t.shrink()
	}
}

// shrink gives back the memory of the numbers above the highest one in use. The lowest free numbers are used next, so
// what is in use above them becomes free in time.
func (t *Table) shrink() {
	n := len(t.objects)
	for n > 0 && t.objects[n-1].id == "" {
		n--
	}
	t.objects, t.free, t.released = append([]object(nil), t.objects[:n]...), nil, 0
	for number := n - 1; number >= 0; number-- {
		if t.objects[number].id == "" {
			t.free = append(t.free, int32(number))
		}
	}
}

// Put has an object's timer be soon or later, in the order of firing.
func (t *Table) Put(number int32, k Kind, key Key) {
	if t.objects[number].at != 0 {
		panic("memtable: an object is put into the order of firing twice")
	}
	t.scratch = key.appendReference(t.scratch[:0], number)
	t.objects[number].at = t.wheel(k).add(&Record{Bytes: t.scratch, State: reference, Stored: timer.Absent}, key)
}

// Remove takes an object out of the order of firing, if it is there.
func (t *Table) Remove(number int32) {
	if at := t.objects[number].at; at != 0 {
		t.wheel(at.Kind()).take(at.place())
		t.objects[number].at = 0
	}
}

// Place says whether an object is soon or later, and its key; None if it is not to fire.
func (t *Table) Place(number int32) (k Kind, key Key) {
	if at := t.objects[number].at; at != 0 {
		r := t.wheel(at.Kind()).at(at.place())
		return at.Kind(), r.key()
	}
	return None, Key{}
}

// fits reports whether a timer of those bytes may be a record: it is not large, nor due now or in the time of the
// slot that is open, for that is not worth it.
func (w *wheel) fits(r *Record, key Key) bool { return len(r.Bytes) <= MaxBytes && !w.isOpen(key.Due) }

// AddStored adds a copy of a timer as the store has it, of whose ID nothing is known, to what is soon. It reports
// whether it did.
func (t *Table) AddStored(b []byte) bool {
	r := Record{Bytes: b, Stored: timer.Absent}
	id, key := r.place()
	if !t.soon.fits(&r, key) {
		return false
	}
	t.index.add(t.sum(id), t.soon.add(&r, key))
	return true
}

// Encode has an object that is soon or later be a record, a copy of this one. It reports whether it did; the
// number is free then.
func (t *Table) Encode(number int32, r Record) bool {
	o := t.objects[number]
	w, key := t.wheel(o.at.Kind()), r.key()
	if !w.fits(&r, key) {
		return false
	}
	t.Remove(number)
	t.index.move(o.sum, refOf(Object, place(number)), w.add(&r, key))
	t.release(number)
	return true
}

// Bury has an object that is not to fire be a tombstone. It reports whether it did; the number is free then.
func (t *Table) Bury(number int32, stored timer.Ref) bool {
	o := t.objects[number]
	if len(o.id) > MaxBytes {
		return false
	}
	t.scratch = append(t.scratch[:0], o.id...)
	r := Record{Bytes: t.scratch, State: Dirty, Stored: stored}
	t.index.move(o.sum, refOf(Object, place(number)), t.bury(&r))
	t.buried += tombstoneBytes(r.Bytes)
	t.release(number)
	return true
}

// Decode has a record or a tombstone be an object, which is not to fire yet. It returns the object's number, its
// ID and the record.
func (t *Table) Decode(at Ref) (number int32, id string, r Record) {
	if at.Kind() == Tombstone {
		r = t.At(at)
		id = string(r.Bytes)
	} else {
		r = t.wheel(at.Kind()).take(at.place()).public()
		id = string(r.ID())
	}
	number = t.object(id)
	t.index.move(t.objects[number].sum, at, refOf(Object, place(number)))
	if at.Kind() == Tombstone {
		t.exhume(at)
	}
	return number, id, r
}

// Next returns when First should be called next, in Unix milliseconds, or false if nothing is soon. It is never
// later than the earliest due time, and may be earlier by what a slot spans; First at that instant has Next move on.
func (t *Table) Next() (due int64, ok bool) { return t.soon.next() }

// First returns the key of the first timer that is soon, and reports whether that is due by now.
func (t *Table) First(now int64) (Key, bool) {
	e, due := t.soon.first(now)
	return e.key, due
}

// Pop returns the first timer that is soon, if that is due by now: an object, which is not to fire any more; or a
// record, which the caller decodes. 0: there is none.
func (t *Table) Pop(now int64) Ref {
	e, due := t.soon.first(now)
	if !due {
		return 0
	}
	r := t.soon.at(e.at)
	if r.State&reference == 0 {
		return refOf(Soon, e.at)
	}
	t.Remove(r.number())
	return refOf(Object, place(r.number()))
}

// Approach takes out of what is later all that is due by an instant. Records are soon then. fn is called with the
// number of each object: it is in neither.
func (t *Table) Approach(due int64, fn func(number int32)) {
	for e, ok := t.later.first(due); ok; e, ok = t.later.first(due) {
		r := t.later.take(e.at)
		if r.State&reference != 0 {
			t.objects[r.number()].at = 0
			fn(r.number())
			continue
		}
		t.index.move(t.sum(r.ID()), refOf(Later, e.at), t.soon.add(&r, e.key))
	}
}

// Farthest returns the key of the n-th timer from the far end of what is soon; 1 <= n <= In(Soon).
func (t *Table) Farthest(n int) Key { return t.soon.farthest(n) }

// Evict takes out of what is soon all from a place on. A record that the store has is forgotten, any other is later.
// fn is called with the number of each object: it is in neither. It must not change
// what is soon.
func (t *Table) Evict(from Key, fn func(number int32)) {
	t.later.lower(from.Due)
	t.soon.evict(from, func(r *Record, at place) {
		switch {
		case r.State&reference != 0:
			t.objects[r.number()].at = 0
			fn(r.number())
		case marks(r.State) == 0:
			t.index.remove(t.sum(r.ID()), refOf(Soon, at))
		default:
			id, key := r.place()
			t.index.move(t.sum(id), refOf(Soon, at), t.later.add(r, key))
		}
	})
}

// SetBack tells that the clock may have gone back to now: what is due from then on is in slots again.
func (t *Table) SetBack(now int64) { t.soon.lower(now) }

// EachUnflushed calls fn with each record and each tombstone that is dirty or being flushed, in no order. The bytes
// may be kept.
func (t *Table) EachUnflushed(fn func(k Kind, r Record)) {
	for _, w := range [2]*wheel{t.soon, t.later} {
		w.eachMarked(func(r *Record, _ place) { fn(w.kind, r.public()) })
	}
	for list := range t.tombstones {
		t.tombstones[list].each(func(r *Record, _, _ int) { fn(Tombstone, t.tombstone(list, r)) })
	}
}

// Flush begins a checkpoint: it calls fn with each record and each tombstone that is dirty, which is being flushed
// then. The last checkpoint is over.
func (t *Table) Flush(fn func(k Kind, r Record)) {
	for _, w := range [2]*wheel{t.soon, t.later} {
		w.flush(func(r Record) { fn(w.kind, r) })
	}
	t.tombstones[t.now].each(func(r *Record, _, _ int) { fn(Tombstone, r.public()) })
	t.now, t.buried = 1-t.now, 0
}

// Flushed ends a checkpoint, which the store has: what is not soon is forgotten.
func (t *Table) Flushed() {
	t.soon.eachMarked(func(r *Record, at place) {
		if r.State&Flushing != 0 {
			t.soon.clean(r, at)
		}
	})
	t.later.eachMarked(func(r *Record, at place) {
		if r.State&Flushing != 0 {
			t.later.remove(r, at)
			t.index.remove(t.sum(r.ID()), refOf(Later, at))
		}
	})
	list := 1 - t.now
	t.tombstones[list].each(func(r *Record, c, offset int) {
		t.index.remove(t.sum(r.Bytes), refOf(Tombstone, placeOf(0, list, c, offset)))
	})
	t.tombstones[list] = bucket{}
}

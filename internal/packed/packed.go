// Package packed keeps timers that are not due yet, and that nothing happens to, as bytes.
//
// A timer that is being planned, written or fired is a handful of objects: some 450 bytes
// beside its own, with pointers that every collection of garbage follows. Most timers only
// wait, and of these a [Wheel] keeps the bytes they are stored in, one after the other in
// chunks, found by due time and, by an [Index], by ID: some 50 bytes beside their own, and
// nothing to follow. Of those that are [Gone] the IDs are kept, in chunks too.
//
// The order is that of package wheel: a hierarchical timing wheel, whose slots are lists of
// chunks. A slot of the finest level is opened when its time has come; then its timers are
// sorted by their keys, and given out one by one. From a slot of a higher level the records
// move to lower ones, so each is copied a few times at most, the fewer the sooner it is due.
//
// What it does not: it has no clock, starts no goroutine, takes no lock and bounds no memory.
// What shares an Index belongs to one goroutine at a time. Bytes that are given out never
// change, and may be kept; but they keep the chunk that they are part of, of [chunkBytes] at
// most.
package packed

import (
	"encoding/binary"
	"math/bits"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wheel"
)

const (
	// MaxBytes is the size of the largest timer that a Wheel takes. Beside a larger one an
	// object does not matter.
	MaxBytes = 4 << 10
	// overhead is about how many bytes a record takes beside those of the timer: 21 to 43 of
	// the index, its header, its share of what is not filled of the last chunks. What was taken
	// out may hold as much again as what is there, and 16 KiB a slot.
	overhead = 48

	minChunk, chunkBytes = 512, 16 << 10
	// chunkHeader is how many bytes a chunk takes that has none left.
	chunkHeader = 32

	slotBits = 6
	slots    = 1 << slotBits
	levels   = (64 + slotBits - 1) / slotBits
)

// State is what the caller knows of a record, besides.
type State uint8

// States are combined.
const (
	// Stale: committed steps have changed it, and no checkpoint has that.
	Stale State = 1 << iota
	// Frozen: a checkpoint that is being written has it as it is.
	Frozen

	alive
	placed // Stored is not Absent, and stands behind the bytes
)

// Record is one timer that waits. It is not steered.
type Record struct {
	Bytes  []byte // of the timer: see timer.Decode
	State  State
	Stored timer.Ref // what the store has, of one that is stale
}

// Size is about how many bytes of memory the record takes.
func (r *Record) Size() int64 { return int64(len(r.Bytes)) + overhead }

// ID is that of the timer.
func (r *Record) ID() []byte {
	id, _, _ := timer.DecodePlace(r.Bytes)
	return id
}

// Wheel is a set of records, no two of one ID. Make one with [New]. It tells its index where
// each is, whenever that changes; who takes one out has to tell what has become of it.
//
// Invariant: a record lies in the slot named by the highest digit (of slotBits bits) in which
// its tick differs from taken: the level is the digit's place, the slot its value. What has
// the tick taken lies in the slot that is open, whose records ready lists in order.
type Wheel struct {
	index  *Index
	kind   int    // of what it tells the index
	grain  uint   // a tick has 1<<grain ms
	taken  uint64 // the last tick whose slot was opened, or passed over
	n      int
	bytes  int64 // see Record.Size
	stale  int64 // those of records that are stale
	marked int   // records that are stale or frozen

	occupied [levels]uint64 // bit s: slot s of the level has a record
	buckets  [levels]*[slots]bucket

	ready []entry // of the slot that is open, the next one last
}

// entry is a record of the slot that is open.
type entry struct {
	key wheel.Key
	at  place
}

// bucket is what a slot holds.
type bucket struct {
	chunks []chunk
	n      int // records
	marked int // that are stale or frozen
	live   int // bytes of those
	held   int // bytes of chunks, those of records that were taken out too
}

// chunk is some records, one behind the other: state, length, bytes, and what is stored if
// it is placed. Its memory does not move.
type chunk struct {
	b []byte
	n int // records; what has none left has no memory either
}

// place is where a record begins: level, slot, chunk and offset.
type place uint64

const (
	offsetBits = 16
	chunkBits  = 32
	slotAt     = offsetBits + chunkBits
	levelAt    = slotAt + slotBits
)

func placeOf(level, slot, chunk, offset int) place {
	return place(level)<<levelAt | place(slot)<<slotAt | place(chunk)<<offsetBits | place(offset)
}

func (p place) split() (level, slot, chunk, offset int) {
	return int(p >> levelAt), int(p >> slotAt & (slots - 1)), int(p >> offsetBits & (1<<chunkBits - 1)), int(p & (1<<offsetBits - 1))
}

// New returns an empty wheel at the instant now, in Unix milliseconds, whose finest slots
// have 1<<grain milliseconds, and which tells an index of places of a kind.
func New(index *Index, kind int, now int64, grain uint) *Wheel {
	w := &Wheel{index: index, kind: kind, grain: grain}
	w.taken = w.tick(now)
	return w
}

func (w *Wheel) tick(ms int64) uint64 { return (uint64(ms) ^ 1<<63) >> w.grain }

// Len is the number of records.
func (w *Wheel) Len() int { return w.n }

// Marked is how many of them are stale or frozen.
func (w *Wheel) Marked() int { return w.marked }

// Bytes is about how much memory they take.
func (w *Wheel) Bytes() int64 { return w.bytes }

// StaleBytes is what of it those take that are stale.
func (w *Wheel) StaleBytes() int64 { return w.stale }

// Add takes in a copy of a record, of an ID with that sum, and reports whether it did: not
// one that is due now or in the time of the slot that is open, nor one of more than MaxBytes.
// The sum is nobody else's, in the index.
func (w *Wheel) Add(r Record, sum uint64) bool {
	_, at, err := timer.DecodePlace(r.Bytes)
	if err != nil || len(r.Bytes) > MaxBytes || w.tick(at.Due) <= w.taken {
		return false
	}
	w.put(&r, sum, at.Due)
	w.count(&r, 1)
	return true
}

// put puts a record in its slot.
func (w *Wheel) put(r *Record, sum uint64, due int64) {
	level, slot := w.slotOf(w.tick(due))
	if w.buckets[level] == nil {
		w.buckets[level] = new([slots]bucket)
	}
	b := &w.buckets[level][slot]
	c, offset := b.append(r)
	w.index.Set(sum, RefOf(w.kind, uint64(placeOf(level, slot, c, offset))))
	w.occupied[level] |= 1 << slot
}

// slotOf is where a tick has its place that is not before taken.
func (w *Wheel) slotOf(tick uint64) (level, slot int) {
	if differs := tick ^ w.taken; differs != 0 {
		level = (63 - bits.LeadingZeros64(differs)) / slotBits
	}
	return level, int(tick>>(level*slotBits)) & (slots - 1)
}

func marks(s State) int {
	if s&(Stale|Frozen) != 0 {
		return 1
	}
	return 0
}

// append adds a record behind the others.
func (b *bucket) append(r *Record) (at, offset int) {
	state, size := r.State&(Stale|Frozen)|alive, 1+binary.MaxVarintLen16+len(r.Bytes)
	if r.State&Stale != 0 && !r.Stored.IsAbsent() {
		state, size = state|placed, size+16
	}
	at = len(b.chunks) - 1
	if at < 0 || cap(b.chunks[at].b)-len(b.chunks[at].b) < size {
		at++
		room := min(chunkBytes, max(minChunk, b.live)) // no more than is there
		b.chunks = append(b.chunks, chunk{b: make([]byte, 0, max(room, size))})
	}
	c := &b.chunks[at]
	offset = len(c.b)
	c.b = binary.AppendUvarint(append(c.b, byte(state)), uint64(len(r.Bytes)))
	c.b = append(c.b, r.Bytes...)
	if state&placed != 0 {
		c.b = binary.LittleEndian.AppendUint64(c.b, uint64(r.Stored.Due))
		c.b = binary.LittleEndian.AppendUint64(c.b, uint64(r.Stored.Offset))
	}
	c.n++
	b.n++
	b.live, b.held = b.live+len(c.b)-offset, b.held+len(c.b)-offset
	b.marked += marks(state)
	return at, offset
}

// read returns the record at an offset, and where the next one begins. One that is not alive
// has been taken out.
func (c *chunk) read(offset int) (r Record, next int) {
	r.State, r.Stored = State(c.b[offset]), timer.Absent
	n, size := binary.Uvarint(c.b[offset+1:])
	from := offset + 1 + size
	next = from + int(n)
	r.Bytes = c.b[from:next:next]
	if r.State&placed != 0 {
		r.Stored.Due = int64(binary.LittleEndian.Uint64(c.b[next:]))
		r.Stored.Offset = int64(binary.LittleEndian.Uint64(c.b[next+8:]))
		next += 16
	}
	return r, next
}

// at returns the record at a place: not alive if it was taken out.
func (w *Wheel) at(p place) (r Record) {
	level, slot, c, offset := p.split()
	if b := &w.buckets[level][slot]; c < len(b.chunks) && b.chunks[c].n > 0 {
		r, _ = b.chunks[c].read(offset)
	}
	return r
}

// At returns a record of the wheel, of which the index has said where it is.
func (w *Wheel) At(at Ref) Record { return w.at(place(at.Place())).public() }

// Take takes out a record, of which the index has said where it is.
func (w *Wheel) Take(at Ref) Record {
	r := w.at(place(at.Place()))
	w.remove(&r, place(at.Place()))
	level, slot, _, _ := place(at.Place()).split()
	w.tidy(level, slot)
	return r.public()
}

// public has no flags of ours.
func (r Record) public() Record {
	r.State &= Stale | Frozen
	return r
}

// remove takes out a record. Its slot is to be tidied then.
func (w *Wheel) remove(r *Record, at place) {
	level, slot, i, offset := at.split()
	w.buckets[level][slot].remove(i, offset)
	w.count(r, -1)
}

// remove takes out a record.
func (b *bucket) remove(i, offset int) {
	c := &b.chunks[i]
	r, next := c.read(offset)
	c.b[offset] &= byte(placed) // it tells where the next one begins
	b.n--
	b.live -= next - offset
	b.marked -= marks(r.State)
	if c.n--; c.n == 0 {
		b.held -= len(c.b)
		c.b = nil
	}
}

// count counts a record that came, or with -1 went.
func (w *Wheel) count(r *Record, n int) {
	size := r.Size() * int64(n)
	w.n += n
	w.bytes += size
	w.marked += marks(r.State) * n
	if r.State&Stale != 0 {
		w.stale += size
	}
}

// tidy looks at a slot of which records were taken out: at one that is empty, or of whose
// memory more than half, and much, is of those that are gone. Records move then.
func (w *Wheel) tidy(level, slot int) {
	b := &w.buckets[level][slot]
	switch {
	case b.n == 0:
		*b = bucket{}
		w.occupied[level] &^= 1 << slot
	case b.wasteful() && !w.open(level, slot):
		old := *b
		*b = bucket{}
		w.spread(&old)
	}
}

func (b *bucket) wasteful() bool {
	return b.held+len(b.chunks)*chunkHeader > 2*b.live+chunkBytes
}

// open reports whether a slot is the one whose records are given out: these do not move.
func (w *Wheel) open(level, slot int) bool {
	return level == 0 && slot == int(w.taken&(slots-1))
}

// spread puts the records of a bucket, which is in no slot any more, into theirs.
func (w *Wheel) spread(b *bucket) {
	for i := range b.chunks {
		c := &b.chunks[i]
		for offset := 0; offset < len(c.b); {
			r, next := c.read(offset)
			offset = next
			if r.State&alive == 0 {
				continue
			}
			id, at, _ := timer.DecodePlace(r.Bytes)
			w.put(&r, w.index.Sum(id), at.Due)
		}
		c.b = nil // it may be a lot, and what it held is elsewhere
	}
}

package memtable

import (
	"encoding/binary"
	"unsafe"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// MaxBytes is the size of the largest timer that may be a record. Compared with a larger timer the memory of an
	// object does not matter.
	MaxBytes = 4 << 10
	// maxShared is the size of the largest timer that is kept in memory for its ID: see IDIn.
	maxShared = 512
	// overhead is about how many bytes a record takes besides those of the timer: 21 to 85 in the index, its header,
	// and its share of the room in the last chunks. Dead records may take as much again, and 16 KiB a slot.
	overhead = 48

	// minChunk is room for two references. If a record is alone in its slot, its chunk is as large as the record.
	minChunk, chunkBytes = 64, 16 << 10
	// chunkHeader is how many bytes a chunk takes when no record is left in it.
	chunkHeader = 32
)

// State says whether the store has a record.
type State uint8

const (
	// Dirty: committed steps have changed it, and the store does not have that.
	Dirty State = 1 << iota
	// Flushing: a checkpoint is writing it in its current state.
	Flushing

	alive
	placed    // Stored is not Absent, and stands behind the bytes
	reference // to an object: a key and a number
)

// Record is a timer as the bytes that it is stored in, or the ID of a tombstone.
type Record struct {
	Bytes  []byte // see timer.Decode
	State  State
	Stored timer.Ref // the place of a dirty record in the store
}

// Size is about how many bytes of memory the record takes. A reference takes none: the caller counts the object.
func (r *Record) Size() int64 {
	if r.State&reference != 0 {
		return 0
	}
	return int64(len(r.Bytes)) + overhead
}

// ID returns the ID of the timer.
func (r *Record) ID() []byte {
	id, _, _ := timer.DecodePlace(r.Bytes)
	return id
}

func (r *Record) key() timer.Ref {
	_, k := r.place()
	return k
}

// place returns the record's place in the order of firing, and its ID unless it is a reference.
func (r *Record) place() (id []byte, k timer.Ref) {
	if r.State&reference != 0 {
		return nil, timer.Ref{Due: int64(binary.LittleEndian.Uint64(r.Bytes)),
			Offset: int64(binary.LittleEndian.Uint64(r.Bytes[8:]))}
	}
	id, k, _ = timer.DecodePlace(r.Bytes)
	return id, k
}

// IDIn returns an ID that is part of b, which is never written to. It shares that memory, unless the ID could keep much
// of it alive when the timer is gone: an object whose timer was cancelled has its ID until that is committed.
func IDIn(b, id []byte) string {
	if len(b) > maxShared {
		return string(id)
	}
	return unsafe.String(unsafe.SliceData(id), len(id))
}

// length returns how many bytes of a chunk the record takes.
func (r *Record) length() int {
	n := 1 + 1 + len(r.Bytes)
	if len(r.Bytes) >= 1<<7 {
		n++
	}
	if len(r.Bytes) >= 1<<14 {
		n++
	}
	if r.State&placed != 0 {
		n += 16
	}
	return n
}

// appendReference appends the bytes of a reference to an object.
func appendReference(b []byte, k timer.Ref, number int32) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(k.Due))
	b = binary.LittleEndian.AppendUint64(b, uint64(k.Offset))
	return binary.LittleEndian.AppendUint32(b, uint32(number))
}

// number returns the number of the object that a reference refers to.
func (r *Record) number() int32 { return int32(binary.LittleEndian.Uint32(r.Bytes[16:])) }

// public removes the flags that callers do not see.
func (r Record) public() Record {
	r.State &= Dirty | Flushing
	return r
}

// bucket is some records in chunks. New records are appended. A removed record stays where it is, dead.
type bucket struct {
	chunks []chunk
	n      int // records
	marked int // records that are dirty or being flushed
	live   int // bytes of the records
	held   int // bytes of all records, including dead ones
}

// chunk is some records, one behind the other:
//
//	state, 1 byte | length of bytes, varint | bytes | if placed: due and offset of the stored version, 8 bytes each
//
// Its memory does not move.
type chunk struct {
	b      []byte
	n      int16 // records; if there are none left, b is nil
	marked int16 // that are dirty or being flushed
	shared bool  // a Chunk has b, too. So b is copied before a byte of a record changes
}

func marks(s State) int {
	if s&(Dirty|Flushing) != 0 {
		return 1
	}
	return 0
}

// mark counts records of a chunk that are dirty or being flushed.
func (b *bucket) mark(i, n int) {
	b.chunks[i].marked += int16(n)
	b.marked += n
}

// append adds a copy of a record behind the others.
func (b *bucket) append(r *Record) (at, offset int) {
	state, size := r.State&(Dirty|Flushing|reference)|alive, 1+binary.MaxVarintLen16+len(r.Bytes)
	if r.State&Dirty != 0 && !r.Stored.IsAbsent() {
		state, size = state|placed, size+16
	}
	at = len(b.chunks) - 1
	if at < 0 || cap(b.chunks[at].b)-len(b.chunks[at].b) < size {
		room := 0
		if at >= 0 { // no more than all records take, and little if the last chunk is empty
			room = min(chunkBytes, b.live, 2*cap(b.chunks[at].b))
		}
		at++
		b.chunks = append(b.chunks, chunk{b: make([]byte, 0, max(room, minChunk, size))})
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
	b.mark(at, marks(state))
	return at, offset
}

// read returns the record at an offset, and the offset of the next one. The record may be dead.
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

// isAlive reports whether there is a live record at an offset of a chunk.
func (b *bucket) isAlive(i, offset int) bool {
	return i < len(b.chunks) && b.chunks[i].n > 0 && State(b.chunks[i].b[offset])&alive != 0
}

// at returns the record at an offset of a chunk.
func (b *bucket) at(i, offset int) Record {
	r, _ := b.chunks[i].read(offset)
	return r
}

// remove makes a record dead.
func (b *bucket) remove(r *Record, i, offset int) {
	c := &b.chunks[i]
	b.n--
	b.live -= r.length()
	b.mark(i, -marks(r.State))
	if c.n--; c.n == 0 {
		b.held -= len(c.b)
		c.b = nil
		return
	}
	c.set(offset, State(c.b[offset])&placed) // needed to find the next one
}

// set changes the state of a record, which is its first byte.
func (c *chunk) set(offset int, s State) {
	if c.shared {
		c.b, c.shared = append(make([]byte, 0, cap(c.b)), c.b...), false
	}
	c.b[offset] = byte(s)
}

// wasteful reports whether dead records take more than half of the memory, and much of it.
func (b *bucket) wasteful() bool {
	return b.held+len(b.chunks)*chunkHeader > 2*b.live+chunkBytes
}

// each calls fn with each record, and with its chunk and offset. fn may remove the record, and must not keep it.
func (b *bucket) each(fn func(r *Record, i, offset int)) {
	var r Record // one: it escapes
	for i := range b.chunks {
		b.eachOf(i, &r, fn)
	}
}

// eachMarked calls fn with each record that is dirty or flushing. It reads all records of the chunks that have one.
func (b *bucket) eachMarked(fn func(r *Record, i, offset int)) {
	var r Record
	for i := range b.chunks {
		if b.chunks[i].marked == 0 {
			continue
		}
		b.eachOf(i, &r, func(r *Record, i, offset int) {
			if marks(r.State) != 0 {
				fn(r, i, offset)
			}
		})
	}
}

// eachOf calls fn with each record of a chunk.
func (b *bucket) eachOf(i int, r *Record, fn func(r *Record, i, offset int)) {
	c := chunk{b: b.chunks[i].b} // fn may empty it
	for offset, next := 0, 0; offset < len(c.b); offset = next {
		if *r, next = c.read(offset); r.State&alive != 0 {
			fn(r, i, offset)
		}
	}
}

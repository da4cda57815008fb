package partlog

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordFields is a record as it stands in a batch. Its slices share the batch's memory.
type recordFields struct {
	size           int // in the batch
	timestampDelta int64
	offsetDelta    int32
	key, value     []byte
	headers        int    // how many
	headerBytes    []byte // the first MaxHeaders of them
}

// bytes is how many bytes of the record are copied.
func (r *recordFields) bytes() int { return len(r.key) + len(r.value) + len(r.headerBytes) }

// memory is about the memory of the record once it is built.
func (r *recordFields) memory() int64 {
	return recordMemory + int64(r.bytes()) + headerMemory*int64(r.built())
}

// built is how many of the headers are built.
func (r *recordFields) built() int { return min(r.headers, MaxHeaders) }

// parseRecord parses the record at the beginning of in. It accepts the same as Kafka's own consumer
// (DefaultRecord.readFrom): a length below zero is null, except that of a header's key, and a record is exactly as long
// as it says.
func parseRecord(in []byte) (f recordFields, ok bool) {
	c := cursor{in: in}
	size := c.varint()
	if c.bad || size < 0 || int(size) > len(in)-c.at {
		return f, false
	}
	f.size = c.at + int(size)
	c.in = in[:f.size]
	c.skip(1) // attributes; none is defined
	f.timestampDelta, f.offsetDelta = c.varlong(), c.varint()
	f.key, f.value = c.bytes(), c.bytes()
	f.headers = int(c.varint())
	begin := c.at
	if f.headers < 0 || f.headers > len(c.in)-begin {
		return f, false
	}
	for i := range f.headers {
		if i == MaxHeaders {
			f.headerBytes = c.in[begin:c.at]
		}
		if c.bytes() == nil { // the key
			return f, false
		}
		c.bytes()
	}
	if f.headers <= MaxHeaders {
		f.headerBytes = c.in[begin:c.at]
	}
	return f, !c.bad && c.at == f.size
}

// build builds the first MaxHeaders headers at the beginning of room, and returns the rest of it.
func (r *recordFields) build(room []kgo.RecordHeader) (headers, rest []kgo.RecordHeader) {
	n, c := r.built(), cursor{in: r.headerBytes}
	if n == 0 {
		return nil, room
	}
	headers = room[:n:n]
	for i := range headers {
		key := c.bytes()
		name := unsafe.String(unsafe.SliceData(key), len(key)) // never written to
		headers[i] = kgo.RecordHeader{Key: name, Value: c.bytes()}
	}
	return headers, room[n:]
}

// cursor reads the fields of a record. Once it is bad, its results mean nothing.
type cursor struct {
	in  []byte
	at  int
	bad bool
}

func (c *cursor) skip(n int) []byte {
	if c.bad || n < 0 || n > len(c.in)-c.at {
		c.bad = true
		return nil
	}
	c.at += n
	return c.in[c.at-n : c.at : c.at]
}

// bytes reads a length and as many bytes: nil if the length is below zero.
func (c *cursor) bytes() []byte {
	if n := c.varint(); n >= 0 {
		return c.skip(int(n))
	}
	return nil
}

// varint reads a number of 32 bits in at most five bytes. Bits beyond the 32 are dropped, as Java does.
func (c *cursor) varint() int32 {
	u := uint32(c.uvarint(5))
	return int32(u>>1) ^ -int32(u&1)
}

// varlong reads a number of 64 bits in at most ten bytes.
func (c *cursor) varlong() int64 {
	u := c.uvarint(10)
	return int64(u>>1) ^ -int64(u&1)
}

func (c *cursor) uvarint(most int) (u uint64) {
	for i := range most {
		if c.at >= len(c.in) {
			break
		}
		b := c.in[c.at]
		c.at++
		if u |= uint64(b&0x7f) << (7 * i); b < 0x80 {
			return u
		}
	}
	c.bad = true
	return 0
}

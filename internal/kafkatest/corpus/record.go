package corpus

import (
	"encoding/binary"
	"strconv"
)

// header is a header of a record.
type header struct{ key, value []byte }

// record is a record of format 2. What it claims need not be so.
type record struct {
	attributes byte
	timestamp  int64 // delta
	offset     int64 // delta
	key, value []byte
	headers    []header

	size   int64 // is added to the right one
	number int64 // is added to the right number of headers
	behind []byte
}

// data is a byte slice as a varint and its bytes; nil is -1.
func data(p, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(p, -1)
	}
	return append(binary.AppendVarint(p, int64(len(b))), b...)
}

// body is the record without its size.
func (r *record) body() []byte {
	p := append([]byte(nil), r.attributes)
	p = binary.AppendVarint(p, r.timestamp)
	p = binary.AppendVarint(p, r.offset)
	p = data(data(p, r.key), r.value)
	p = binary.AppendVarint(p, int64(len(r.headers))+r.number)
	for _, h := range r.headers {
		p = data(data(p, h.key), h.value)
	}
	return append(p, r.behind...)
}

func (r *record) bytes() []byte {
	return sized(r.body(), r.size)
}

// sized is a body behind its size, to which wrong is added.
func sized(body []byte, wrong int64) []byte {
	return append(binary.AppendVarint(nil, int64(len(body))+wrong), body...)
}

// good is the i-th of plain records.
func good(i int) record {
	n := strconv.Itoa(i)
	return record{offset: int64(i), key: []byte("key-" + n), value: []byte("value of record " + n)}
}

// records are n plain records.
func records(n int) (p []byte) {
	for i := range n {
		r := good(i)
		p = append(p, r.bytes()...)
	}
	return p
}

// among is the record r as the second of three, the others being plain.
func among(r record) []byte {
	r.offset = 1
	return bodyAmong(r.bytes())
}

// bodyAmong is such a record from its bytes.
func bodyAmong(middle []byte) []byte {
	first, last := good(0), good(2)
	return append(append(first.bytes(), middle...), last.bytes()...)
}

// varint is v, zig-zag encoded, in exactly n bytes: over-long if fewer would do. With n 5 or 10, top goes into the bits
// of the last byte that Java shifts out.
func varint(v int64, n int, top byte) []byte {
	u := uint64(v<<1) ^ uint64(v>>63)
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(u)&0x7f | 0x80
		u >>= 7
	}
	p[n-1] = p[n-1]&0x7f | top
	return p
}

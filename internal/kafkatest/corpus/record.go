package corpus

import (
	"encoding/binary"
	"slices"
	"strconv"
)

// Header is a header of a record.
type Header struct{ Key, Value []byte }

// Record is a record of format 2. Its sizes and counts may be wrong.
type Record struct {
	Attributes byte
	Timestamp  int64 // delta
	Offset     int64 // delta
	Key, Value []byte
	Headers    []Header

	Size   int64 // is added to the right one
	Number int64 // is added to the right number of headers
	Behind []byte
}

// data is a byte slice as a varint and its bytes; nil is -1.
func data(p, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(p, -1)
	}
	return append(binary.AppendVarint(p, int64(len(b))), b...)
}

// Body is the record without its size.
func (r *Record) Body() []byte {
	p := append([]byte(nil), r.Attributes)
	p = binary.AppendVarint(p, r.Timestamp)
	p = binary.AppendVarint(p, r.Offset)
	p = data(data(p, r.Key), r.Value)
	p = binary.AppendVarint(p, int64(len(r.Headers))+r.Number)
	for _, h := range r.Headers {
		p = data(data(p, h.Key), h.Value)
	}
	return append(p, r.Behind...)
}

// Bytes is the record behind its size.
func (r *Record) Bytes() []byte {
	body := r.Body()
	return append(binary.AppendVarint(nil, int64(len(body))+r.Size), body...)
}

// Good is the i-th of plain records.
func Good(i int) Record {
	n := strconv.Itoa(i)
	return Record{Offset: int64(i), Key: []byte("key-" + n), Value: []byte("value of record " + n)}
}

// Records are n plain records.
func Records(n int) (p []byte) {
	for i := range n {
		r := Good(i)
		p = append(p, r.Bytes()...)
	}
	return p
}

// Among is the record r as the second of three, the others being plain.
func Among(r Record) []byte {
	first, last := Good(0), Good(2)
	r.Offset = 1
	return slices.Concat(first.Bytes(), r.Bytes(), last.Bytes())
}

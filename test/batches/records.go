package batches

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
)

// recordCases are records that are odd, most of them between two plain ones.
func recordCases() (cases []corpus.Case) {
	odd := func(name string, change func(r *corpus.Record)) {
		cases = append(cases, both("record: "+name, 3, func() []byte {
			r := corpus.Good(1)
			change(&r)
			return corpus.Among(r)
		})...)
	}
	odd("null key", func(r *corpus.Record) { r.Key = nil })
	odd("null value", func(r *corpus.Record) { r.Value = nil })
	odd("null key and value", func(r *corpus.Record) { r.Key, r.Value = nil, nil })
	odd("empty key and value", func(r *corpus.Record) { r.Key, r.Value = []byte{}, []byte{} })
	odd("attributes 255", func(r *corpus.Record) { r.Attributes = 255 })
	odd("bytes behind its headers", func(r *corpus.Record) { r.Behind = garbage })
	cases = append(cases, sizeCases()...)

	// The size is right, but a field inside is wrong: brokers skip keys, values and headers of compressed records.
	within := func(name string, body ...byte) {
		cases = append(cases, both("body: "+name, 3, func() []byte { return bodyAmong(sized(body)) })...)
	}
	within("empty")
	within("attributes alone", 0)
	within("up to the timestamp", 0, 0)
	within("up to the offset", 0, 0, 2)
	within("up to the key", 0, 0, 2, 2, 'k')
	within("up to the value", 0, 0, 2, 2, 'k', 2, 'v')
	within("key longer than the record", 0, 0, 2, 40, 'k', 2, 'v', 0)
	within("value longer than the record", 0, 0, 2, 2, 'k', 40, 'v', 0)
	within("key a byte shorter than it claims", 0, 0, 2, 4, 'k', 2, 'v', 0)
	within("key of length -2", append(append([]byte{0, 0, 2}, 3), 2, 'v', 0)...)
	within("key of length -2147483648",
		append(append([]byte{0, 0, 2}, binary.AppendVarint(nil, math.MinInt32)...), 2, 'v', 0)...)
	within("value of length -2", 0, 0, 2, 2, 'k', 3, 0)
	within("value of length 2147483647",
		append(append([]byte{0, 0, 2, 2, 'k'}, binary.AppendVarint(nil, math.MaxInt32)...), 0)...)
	within("key of length 1 GiB", append(append([]byte{0, 0, 2}, binary.AppendVarint(nil, 1<<30)...), 0)...)
	within("zeros", make([]byte, 20)...)
	within("ones", slices.Repeat([]byte{0xff}, 20)...)

	deltas := func(name string, offsets ...int64) {
		cases = append(cases, both("offset deltas: "+name, len(offsets), func() (p []byte) {
			for i, o := range offsets {
				r := corpus.Good(i)
				r.Offset = o
				p = append(p, r.Bytes()...)
			}
			return p
		})...)
	}
	deltas("0 0 0", 0, 0, 0)
	deltas("2 1 0", 2, 1, 0)
	deltas("0 5 2", 0, 5, 2)
	deltas("0 1 1", 0, 1, 1)
	deltas("0 -5 2", 0, -5, 2)
	deltas("0 1 3", 0, 1, 3)
	deltas("0 1 9", 0, 1, 9)
	deltas("1 2 3", 1, 2, 3)
	deltas("-1 0 1", -1, 0, 1)
	deltas("0 -2147483648 2", 0, math.MinInt32, 2)
	deltas("0 2147483647 2", 0, math.MaxInt32, 2)
	deltas("0 4294967297 2", 0, 1<<32+1, 2) // 1, and a bit that an int32 does not have
	return cases
}

// sizeCases are records with a wrong size. Brokers accept compressed ones: they do not check sizes there.
func sizeCases() (cases []corpus.Case) {
	for _, size := range []struct {
		name  string
		wrong func(right int64) int64
	}{
		{"one too large", func(right int64) int64 { return right + 1 }},
		{"one too small", func(right int64) int64 { return right - 1 }},
		{"0", func(int64) int64 { return 0 }},
		{"5", func(int64) int64 { return 5 }},
		{"-5", func(int64) int64 { return -5 }},
		{"-2147483648", func(int64) int64 { return math.MinInt32 }},
		{"1000", func(int64) int64 { return 1000 }},
		{"64 MiB", func(int64) int64 { return 64 << 20 }},
		{"2147483647", func(int64) int64 { return math.MaxInt32 }},
	} {
		for _, c := range corpus.Codecs() {
			for at, which := range []string{"first", "second", "last"} {
				if c.ID != corpus.Gzip && at != 1 {
					continue // their records are read by the same code
				}
				name := fmt.Sprintf("size: %s of the %s record, %s", size.name, which, c.Name)
				cases = append(cases, corpus.Of(name, c.ID, 3, func() (p []byte) {
					for i := range 3 {
						r := corpus.Good(i)
						if i == at {
							right := int64(len(r.Body()))
							r.Size = size.wrong(right) - right
						}
						p = append(p, r.Bytes()...)
					}
					return p
				}))
			}
		}
	}
	return cases
}

// varintCases are integers of unusual lengths.
func varintCases() (cases []corpus.Case) {
	// field is a record with one of its integers in exactly n bytes.
	fields := []struct {
		name string
		body func(v func(int64) []byte) []byte
	}{
		{"timestamp delta", func(v func(int64) []byte) []byte {
			return slices.Concat([]byte{0}, v(0), []byte{2, 2, 'k', 2, 'v', 0})
		}},
		{"offset delta", func(v func(int64) []byte) []byte {
			return slices.Concat([]byte{0, 0}, v(1), []byte{2, 'k', 2, 'v', 0})
		}},
		{"key length", func(v func(int64) []byte) []byte {
			return slices.Concat([]byte{0, 0, 2}, v(1), []byte{'k', 2, 'v', 0})
		}},
		{"value length", func(v func(int64) []byte) []byte {
			return slices.Concat([]byte{0, 0, 2, 2, 'k'}, v(1), []byte{'v', 0})
		}},
		{"header count", func(v func(int64) []byte) []byte {
			return slices.Concat([]byte{0, 0, 2, 2, 'k', 2, 'v'}, v(1), []byte{2, 'h', 2, 'w'})
		}},
		{"header key length", func(v func(int64) []byte) []byte {
			return slices.Concat([]byte{0, 0, 2, 2, 'k', 2, 'v', 2}, v(1), []byte{'h', 2, 'w'})
		}},
		{"header value length", func(v func(int64) []byte) []byte {
			return slices.Concat([]byte{0, 0, 2, 2, 'k', 2, 'v', 2, 2, 'h'}, v(1), []byte{'w'})
		}},
	}
	for _, f := range fields {
		lengths := []int{2, 5, 6}
		if f.name == "timestamp delta" {
			lengths = []int{2, 5, 6, 9, 10, 11}
		}
		for _, n := range lengths {
			cases = append(cases, both(fmt.Sprintf("varint: %s in %d bytes", f.name, n), 3, func() []byte {
				return bodyAmong(sized(f.body(func(v int64) []byte { return varint(v, n, 0) })))
			})...)
		}
		n := lengths[len(lengths)-2]
		name := fmt.Sprintf("varint: %s in %d bytes with bits that do not fit", f.name, n)
		cases = append(cases, both(name, 3, func() []byte {
			return bodyAmong(sized(f.body(func(v int64) []byte { return varint(v, n, 0x70) })))
		})...)
	}
	body := corpus.Good(1)
	for n := 1; n <= 6; n++ {
		cases = append(cases, both(fmt.Sprintf("varint: record size in %d bytes", n), 3, func() []byte {
			return bodyAmong(append(varint(int64(len(body.Body())), n, 0), body.Body()...))
		})...)
	}
	return append(cases, both("varint: record size in 5 bytes with bits that do not fit", 3, func() []byte {
		return bodyAmong(append(varint(int64(len(body.Body())), 5, 0x70), body.Body()...))
	})...)
}

// headerCases are headers that are odd.
func headerCases() (cases []corpus.Case) {
	two := []corpus.Header{{Key: []byte("h"), Value: []byte("1")}, {Key: []byte("i"), Value: []byte("2")}}
	odd := func(name string, number int64, headers ...corpus.Header) {
		cases = append(cases, both("headers: "+name, 3, func() []byte {
			r := corpus.Good(1)
			r.Headers, r.Number = headers, number
			return corpus.Among(r)
		})...)
	}
	odd("two", 0, two...)
	odd("the same key twice", 0, two[0], two[0])
	odd("null value", 0, corpus.Header{Key: []byte("h"), Value: nil})
	odd("null key", 0, corpus.Header{Key: nil, Value: []byte("1")})
	odd("empty key", 0, corpus.Header{Key: []byte{}, Value: []byte("1")})
	odd("key is not UTF-8", 0, corpus.Header{Key: []byte("\xff\xfe\xc0"), Value: []byte("1")})
	odd("key with a zero byte", 0, corpus.Header{Key: []byte("a\x00b"), Value: []byte("1")})
	odd("count -1", -3, two...)
	odd("count -2147483648", math.MinInt32-2, two...)
	odd("count one too many", 1, two...)
	odd("count one too few", -1, two...)
	odd("count 0 though there are two", -2, two...)
	odd("count 2147483647", math.MaxInt32-2, two...)
	odd("count 1000000000", 1_000_000_000-2, two...)
	odd("count 1000", 998, two...)
	broken := func(name string, behind ...byte) {
		cases = append(cases, both("headers: "+name, 3, func() []byte {
			return bodyAmong(sized(slices.Concat([]byte{0, 0, 2, 2, 'k', 2, 'v', 2}, behind)))
		})...)
	}
	broken("key longer than the record", 60, 'h', 2, 'w')
	broken("value longer than the record", 2, 'h', 60, 'w')
	broken("key of length -2", 3, 2, 'w')
	broken("value of length -2", 2, 'h', 3)
	broken("key of length 2147483647", append(binary.AppendVarint(nil, math.MaxInt32), 'h', 2, 'w')...)
	broken("none, where one is claimed")
	return cases
}

// sized is a body behind its size.
func sized(body []byte) []byte { return append(binary.AppendVarint(nil, int64(len(body))), body...) }

// bodyAmong is a record, from its bytes, as the second of three.
func bodyAmong(middle []byte) []byte {
	first, last := corpus.Good(0), corpus.Good(2)
	return slices.Concat(first.Bytes(), middle, last.Bytes())
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

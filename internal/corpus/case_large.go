package corpus

import (
	"bytes"
	"slices"
)

// large has a topic take batches of 8 MiB.
func large() map[string]string { return map[string]string{"max.message.bytes": "8388608"} }

// largeCases are batches that are large, on the wire or in memory.
func largeCases() (cases []Case) {
	emptyHeaders := func() []byte {
		r := good(0)
		r.headers = slices.Repeat([]header{{[]byte{}, nil}}, 100_000)
		return r.bytes()
	}
	tiny := func() (p []byte) {
		for i := range 250_000 {
			r := record{offset: int64(i)}
			p = append(p, r.bytes()...)
		}
		return p
	}
	for _, c := range codecs() {
		cases = append(cases,
			of("large: 100000 empty headers, "+c.name, c.id, 1, emptyHeaders),
			of("large: 250000 tiny records, "+c.name, c.id, 250_000, tiny).with(large()))
	}
	huge := func() []byte {
		r := good(0)
		r.value = bytes.Repeat([]byte("0123456789abcdef"), 2<<20/16)
		return r.bytes()
	}
	return append(cases,
		of("large: 2 MiB, none", none, 1, huge).with(large()),
		of("large: 2 MiB, topic as it is", none, 1, huge),
		of("large: 2 MiB of text, zstd", zstded, 1, huge),
		of("large: 64 MiB of zeros, gzip", gzipped, 1, func() []byte {
			r := good(0)
			r.value = make([]byte, 64<<20)
			return r.bytes()
		}),
	)
}

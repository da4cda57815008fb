package corpus

import (
	"bytes"
	"fmt"
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

// recompressed makes brokers compress batches, with a codec at a level.
func recompressed(codec, level string) map[string]string {
	return map[string]string{"compression.type": codec, "compression." + codec + ".level": level}
}

// topicCases are batches that brokers compress. A fake broker does not.
func topicCases() (cases []Case) {
	for _, to := range [][2]string{
		{"zstd", "19"}, {"zstd", "20"}, {"zstd", "21"}, {"zstd", "22"}, {"gzip", "9"}, {"lz4", "17"},
	} {
		name := fmt.Sprintf("topic: 2000 records, none to %s level %s", to[0], to[1])
		c := of(name, none, 2000, func() []byte { return records(2000) })
		cases = append(cases, c.with(recompressed(to[0], to[1])))
	}
	to := recompressed("zstd", "22")
	return append(cases,
		raw("topic: lz4 with bytes behind the end to zstd level 22", lz4ed, func(p []byte) []byte {
			return append(compress(lz4ed, p), garbage...)
		}).with(to),
		of("topic: wrong size of a record, gzip to zstd level 22", gzipped, 3, func() []byte {
			r := good(1)
			r.size = 1
			return among(r)
		}).with(to),
		of("topic: wrong size of a record, zstd to zstd level 22", zstded, 3, func() []byte {
			r := good(1)
			r.size = 1
			return among(r)
		}).with(to),
	)
}

// Heavy are batches that are small on the wire and take gigabytes, or hundreds of megabytes, as records. They are not
// among Cases: brokers take them, and Kafka's own consumer needs as much.
func Heavy() []Case {
	return []Case{
		of("heavy: 15700000 empty headers, zstd", zstded, 1, func() []byte {
			r := good(0)
			r.number = 15_700_000
			r.behind = bytes.Repeat([]byte{0, 1}, int(r.number)) // an empty key, no value
			return r.bytes()
		}),
		of("heavy: 1000000 tiny records, zstd", zstded, 1_000_000, func() (p []byte) {
			for i := range 1_000_000 {
				r := record{offset: int64(i)}
				p = append(p, r.bytes()...)
			}
			return p
		}),
		of("heavy: 256 MiB of zeros, zstd", zstded, 1, func() []byte {
			r := good(0)
			r.value = make([]byte, 256<<20)
			return r.bytes()
		}),
	}
}

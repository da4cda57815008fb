package corpus

import (
	"fmt"
	"slices"
	"strings"
)

// Case is one kind of batch that a producer may write.
type Case struct {
	Name string
	// Batch makes the batch for a producer. It is sound except for the fault in the name.
	Batch func(Writer) []byte
	// Config are settings that its topic needs for a broker to take it, or for the case to mean something.
	Config map[string]string
}

// Cases are all cases, each with a name of its own.
func Cases() []Case {
	return slices.Concat(recorded(), javaCases(), several(), largeCases(), topicCases())
}

// Group is the part of the name before the colon.
func (c Case) Group() string {
	group, _, _ := strings.Cut(c.Name, ":")
	return group
}

// Of returns a case of count records, compressed by the codec.
func Of(name string, codec int16, count int, records func() []byte) Case {
	return Case{Name: name, Batch: func(w Writer) []byte {
		return NewBatch(w, codec, count, Compress(codec, records())).Bytes()
	}}
}

// With is a case on a topic with settings.
func (c Case) With(config map[string]string) Case {
	c.Config = config
	return c
}

// several are cases of two batches, of none, of half of one, and of one with bytes behind it.
func several() []Case {
	three := func(w Writer, codec int16) []byte { return NewBatch(w, codec, 3, Compress(codec, Records(3))).Bytes() }
	two := func(name string, first, second int16) Case {
		return Case{Name: name, Batch: func(w Writer) []byte {
			p := three(w, first)
			if w.Sequence >= 0 {
				w.Sequence += 3
			}
			return append(p, three(w, second)...)
		}}
	}
	return []Case{
		two("batch: two in one request", None, None),
		two("batch: two in one request, gzip and zstd", Gzip, Zstd),
		{Name: "batch: none at all", Batch: func(Writer) []byte { return []byte{} }},
		{Name: "batch: half of one", Batch: func(w Writer) []byte { p := three(w, None); return p[:len(p)/2] }},
		{Name: "batch: bytes behind it", Batch: func(w Writer) []byte { return append(three(w, None), Garbage...) }},
	}
}

// Garbage is what stands behind the end of something.
const Garbage = "trailing garbage"

// large has a topic take batches of 8 MiB.
func large() map[string]string { return map[string]string{"max.message.bytes": "8388608"} }

// largeCases are batches that are large, on the wire or in memory.
func largeCases() (cases []Case) {
	for _, c := range Codecs() {
		cases = append(cases,
			Of("sound: 2000 records, "+c.Name, c.ID, 2000, func() []byte { return Records(2000) }),
			Of("large: 100000 empty headers, "+c.Name, c.ID, 1, func() []byte {
				r := Good(0)
				r.Headers = slices.Repeat([]Header{{[]byte{}, nil}}, 100_000)
				return r.Bytes()
			}),
			Of("large: 250000 tiny records, "+c.Name, c.ID, 250_000, tiny(250_000)).With(large()))
	}
	huge := valued([]byte("0123456789abcdef"), 2<<20/16)
	return append(cases,
		Of("large: 2 MiB, none", None, 1, huge).With(large()),
		Of("large: 2 MiB, topic as it is", None, 1, huge),
		Of("large: 2 MiB of text, zstd", Zstd, 1, huge),
		Of("large: 64 MiB of zeros, gzip", Gzip, 1, valued([]byte{0}, 64<<20)),
	)
}

// tiny makes n records without key and value.
func tiny(n int) func() []byte {
	return func() (p []byte) {
		for i := range n {
			r := Record{Offset: int64(i)}
			p = append(p, r.Bytes()...)
		}
		return p
	}
}

// valued makes a record whose value is a part n times.
func valued(part []byte, n int) func() []byte {
	return func() []byte {
		r := Good(0)
		r.Value = slices.Repeat(part, n)
		return r.Bytes()
	}
}

// topicCases are batches that brokers compress, with a codec at a level. A fake broker does not.
func topicCases() (cases []Case) {
	on := func(codec, level string, c Case) {
		cases = append(cases,
			c.With(map[string]string{"compression.type": codec, "compression." + codec + ".level": level}))
	}
	for _, to := range [][2]string{
		{"zstd", "19"}, {"zstd", "20"}, {"zstd", "21"}, {"zstd", "22"}, {"gzip", "9"}, {"lz4", "17"},
	} {
		on(to[0], to[1], Of(fmt.Sprintf("topic: 2000 records, none to %s level %s", to[0], to[1]), None, 2000,
			func() []byte { return Records(2000) }))
	}
	on("zstd", "22", Case{Name: "topic: lz4 with bytes behind the end to zstd level 22", Batch: func(w Writer) []byte {
		return NewBatch(w, LZ4, 3, append(Compress(LZ4, Records(3)), Garbage...)).Bytes()
	}})
	for _, c := range []Codec{{"gzip", Gzip}, {"zstd", Zstd}} {
		on("zstd", "22", Of("topic: wrong size of a record, "+c.Name+" to zstd level 22", c.ID, 3, func() []byte {
			r := Good(1)
			r.Size = 1
			return Among(r)
		}))
	}
	return cases
}

// Heavy are batches that are small on the wire and take gigabytes, or hundreds of megabytes, as records. They are not
// among Cases: brokers take them, and Kafka's own consumer needs as much.
func Heavy() []Case {
	return []Case{
		Of("heavy: 15700000 empty headers, zstd", Zstd, 1, func() []byte {
			r := Good(0)
			r.Number = 15_700_000
			r.Behind = slices.Repeat([]byte{0, 1}, int(r.Number)) // an empty key, no value
			return r.Bytes()
		}),
		Of("heavy: 1000000 tiny records, zstd", Zstd, 1_000_000, tiny(1_000_000)),
		Of("heavy: 256 MiB of zeros, zstd", Zstd, 1, valued([]byte{0}, 256<<20)),
	}
}

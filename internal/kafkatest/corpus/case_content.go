package corpus

import (
	"fmt"
	"math"
)

// anyTime has a topic take every timestamp, and keep it.
func anyTime() map[string]string {
	return map[string]string{
		"message.timestamp.after.max.ms":  fmt.Sprint(int64(math.MaxInt64)),
		"message.timestamp.before.max.ms": fmt.Sprint(int64(math.MaxInt64)),
	}
}

// contentCases are batches whose fields say something odd.
func contentCases() (cases []Case) {
	for _, c := range codecs() {
		cases = append(cases,
			of("count: one record too many claimed, "+c.name, c.id, 4, func() []byte { return records(3) }),
			of("count: one record too few claimed, "+c.name, c.id, 2, func() []byte { return records(3) }),
			of("count: byte behind the last record, "+c.name, c.id, 3, func() []byte { return append(records(3), 0) }),
			of("count: bytes behind the last record, "+c.name, c.id, 3, func() []byte {
				return append(records(3), garbage...)
			}),
			of("count: last byte of the last record missing, "+c.name, c.id, 3, func() []byte {
				p := records(3)
				return p[:len(p)-1]
			}),
			of("count: 0 records, "+c.name, c.id, 0, func() []byte { return nil }),
		)
	}
	set := func(name string, change func(b *batch)) { cases = append(cases, bothClaim(name, change)...) }
	set("count: 0 claimed", func(b *batch) { b.count = 0 })
	set("count: 0 claimed, last offset delta too", func(b *batch) { b.count, b.lastDelta = 0, -1 })
	set("count: 0 records, last offset delta 0", func(b *batch) {
		b.count, b.lastDelta, b.records = 0, 0, compress(b.attributes&7, nil)
	})
	set("count: -1", func(b *batch) { b.count = -1 })
	set("count: -1, last offset delta too", func(b *batch) { b.count, b.lastDelta = -1, -2 })
	set("count: 2147483647", func(b *batch) { b.count, b.lastDelta = math.MaxInt32, math.MaxInt32-1 })
	set("last offset delta: too large", func(b *batch) { b.lastDelta = 9 })
	set("last offset delta: too small", func(b *batch) { b.lastDelta = 1 })
	set("last offset delta: -1", func(b *batch) { b.lastDelta = -1 })

	set("batch: wrong CRC", func(b *batch) { b.crc = 1 })
	set("batch: size one too large", func(b *batch) { b.size = 1 })
	set("batch: size one too small", func(b *batch) { b.size = -1 })
	set("batch: size 0", func(b *batch) { b.size = -int32(overhead - upToSize + len(b.records)) })
	set("batch: base offset 1000", func(b *batch) { b.base = 1000 })
	set("batch: base offset -1", func(b *batch) { b.base = -1 })
	set("batch: base offset 2^63-1", func(b *batch) { b.base = math.MaxInt64 })
	set("batch: leader epoch 1000", func(b *batch) { b.leaderEpoch = 1000 })
	set("batch: leader epoch -2", func(b *batch) { b.leaderEpoch = -2 })
	for _, magic := range []byte{0, 1, 3, 255} {
		set(fmt.Sprintf("batch: magic %d", int8(magic)), func(b *batch) { b.magic = magic })
	}
	for id := int16(5); id <= 7; id++ {
		cases = append(cases, claims(fmt.Sprintf("batch: codec %d", id), none, func(b *batch) { b.attributes |= id }))
	}
	set("attributes: control", func(b *batch) { b.attributes |= control })
	set("attributes: control and transactional", func(b *batch) { b.attributes |= control | transactional })
	set("attributes: transactional, without a producer", func(b *batch) {
		b.attributes |= transactional
		b.w = Writer{ID: -1, Epoch: -1, Sequence: -1}
	})
	set("attributes: log append time", func(b *batch) { b.attributes |= logAppendTime })
	set("attributes: delete horizon", func(b *batch) { b.attributes |= deleteHorizon })
	for bit := 7; bit < 16; bit++ {
		cases = append(cases, claims(fmt.Sprintf("attributes: unused bit %d", bit), none, func(b *batch) {
			b.attributes |= int16(uint16(1) << bit)
		}))
	}
	set("attributes: all unused bits", func(b *batch) { b.attributes |= -128 }) // 7 to 15
	set("producer: ID 5 without an epoch", func(b *batch) { b.w.ID, b.w.Epoch, b.w.Sequence = 5, -1, -1 })
	set("producer: ID 5, epoch 0, no sequence", func(b *batch) { b.w.ID, b.w.Epoch, b.w.Sequence = 5, 0, -1 })
	set("producer: an epoch and a sequence without an ID", func(b *batch) {
		b.w.ID, b.w.Epoch, b.w.Sequence = -1, 5, 5
	})
	set("producer: ID -2", func(b *batch) { b.w.ID, b.w.Epoch, b.w.Sequence = -2, -2, -2 })
	return append(append(cases, timeCases()...),
		several("batch: two in one request", none, none),
		several("batch: two in one request, gzip and zstd", gzipped, zstded),
		Case{Name: "batch: none at all", Batch: func(Writer) []byte { return []byte{} }},
		Case{Name: "batch: half of one", Batch: func(w Writer) []byte {
			p := newBatch(w, none, 3, records(3)).bytes()
			return p[:len(p)/2]
		}},
		Case{Name: "batch: bytes behind it", Batch: func(w Writer) []byte {
			return append(newBatch(w, none, 3, records(3)).bytes(), garbage...)
		}},
	)
}

// several are two batches one behind the other.
func several(name string, first, second int16) Case {
	return Case{Name: name, Batch: func(w Writer) []byte {
		p := newBatch(w, first, 3, compress(first, records(3))).bytes()
		if w.Sequence >= 0 {
			w.Sequence += 3
		}
		return append(p, newBatch(w, second, 3, compress(second, records(3))).bytes()...)
	}}
}

// timeCases are timestamps. Those of the batch count, or are added to those of records.
func timeCases() (cases []Case) {
	for _, at := range []struct {
		name string
		time int64
	}{{"-1", -1}, {"0", 0}, {"1", 1}, {"2^63-1", math.MaxInt64}, {"-2^63", math.MinInt64}, {"-2", -2}} {
		for _, c := range bothClaim("time: "+at.name, func(b *batch) { b.first, b.max = at.time, at.time }) {
			cases = append(cases, c.with(anyTime()))
		}
	}
	cases = append(cases, bothClaim("time: 2^63-1, topic as it is", func(b *batch) {
		b.first, b.max = math.MaxInt64, math.MaxInt64
	})...)
	for _, c := range bothClaim("time: topic with log append time", func(*batch) {}) {
		cases = append(cases, c.with(map[string]string{"message.timestamp.type": "LogAppendTime"}))
	}
	for _, c := range bothClaim("time: max below the first", func(b *batch) { b.max = b.first - 1000 }) {
		cases = append(cases, c.with(anyTime()))
	}
	for _, c := range bothClaim("time: max above the last", func(b *batch) { b.max = b.first + 1000 }) {
		cases = append(cases, c.with(anyTime()))
	}
	for _, delta := range []int64{-1000, math.MinInt64, math.MaxInt64, 1 << 40} {
		late := func() []byte {
			r := good(1)
			r.timestamp = delta
			return among(r)
		}
		for _, c := range both(fmt.Sprintf("time: delta %d", delta), 3, late) {
			cases = append(cases, c.with(anyTime()))
		}
	}
	return cases
}

package batches

import (
	"fmt"
	"math"

	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
)

// anyTime has a topic take every timestamp, and keep it.
func anyTime() map[string]string {
	return map[string]string{
		"message.timestamp.after.max.ms":  fmt.Sprint(int64(math.MaxInt64)),
		"message.timestamp.before.max.ms": fmt.Sprint(int64(math.MaxInt64)),
	}
}

// Bits of the attributes of a batch.
const (
	logAppendTime = 1 << 3
	transactional = 1 << 4
	control       = 1 << 5
	deleteHorizon = 1 << 6
)

// overhead is how many bytes of a batch its size counts besides the records.
const overhead = 49

// by sets the producer of a batch.
func by(b *corpus.Batch, id int64, epoch int16, sequence int32) {
	b.Writer.ID, b.Writer.Epoch, b.Writer.Sequence = id, epoch, sequence
}

// contentCases are batches whose fields say something odd.
func contentCases() (cases []corpus.Case) {
	three := func() []byte { return corpus.Records(3) }
	for _, c := range corpus.Codecs() {
		cases = append(cases,
			corpus.Of("count: one record too many claimed, "+c.Name, c.ID, 4, three),
			corpus.Of("count: one record too few claimed, "+c.Name, c.ID, 2, three),
			corpus.Of("count: byte behind the last record, "+c.Name, c.ID, 3, func() []byte {
				return append(three(), 0)
			}),
			corpus.Of("count: bytes behind the last record, "+c.Name, c.ID, 3, func() []byte {
				return append(three(), garbage...)
			}),
			corpus.Of("count: last byte of the last record missing, "+c.Name, c.ID, 3, func() []byte {
				p := three()
				return p[:len(p)-1]
			}),
			corpus.Of("count: 0 records, "+c.Name, c.ID, 0, func() []byte { return nil }),
		)
	}
	set := func(name string, change func(b *corpus.Batch)) { cases = append(cases, bothClaim(name, change)...) }
	set("count: 0 claimed", func(b *corpus.Batch) { b.Count = 0 })
	set("count: 0 claimed, last offset delta too", func(b *corpus.Batch) { b.Count, b.LastDelta = 0, -1 })
	set("count: 0 records, last offset delta 0", func(b *corpus.Batch) {
		b.Count, b.LastDelta, b.Records = 0, 0, corpus.Compress(b.Attributes&7, nil)
	})
	set("count: -1", func(b *corpus.Batch) { b.Count = -1 })
	set("count: -1, last offset delta too", func(b *corpus.Batch) { b.Count, b.LastDelta = -1, -2 })
	set("count: 2147483647", func(b *corpus.Batch) { b.Count, b.LastDelta = math.MaxInt32, math.MaxInt32-1 })
	set("last offset delta: too large", func(b *corpus.Batch) { b.LastDelta = 9 })
	set("last offset delta: too small", func(b *corpus.Batch) { b.LastDelta = 1 })
	set("last offset delta: -1", func(b *corpus.Batch) { b.LastDelta = -1 })

	set("batch: wrong CRC", func(b *corpus.Batch) { b.CRC = 1 })
	set("batch: size one too large", func(b *corpus.Batch) { b.Size = 1 })
	set("batch: size one too small", func(b *corpus.Batch) { b.Size = -1 })
	set("batch: size 0", func(b *corpus.Batch) { b.Size = -int32(overhead + len(b.Records)) })
	set("batch: base offset 1000", func(b *corpus.Batch) { b.Base = 1000 })
	set("batch: base offset -1", func(b *corpus.Batch) { b.Base = -1 })
	set("batch: base offset 2^63-1", func(b *corpus.Batch) { b.Base = math.MaxInt64 })
	set("batch: leader epoch 1000", func(b *corpus.Batch) { b.LeaderEpoch = 1000 })
	set("batch: leader epoch -2", func(b *corpus.Batch) { b.LeaderEpoch = -2 })
	for _, magic := range []byte{0, 1, 3, 255} {
		set(fmt.Sprintf("batch: magic %d", int8(magic)), func(b *corpus.Batch) { b.Magic = magic })
	}
	for id := int16(5); id <= 7; id++ {
		cases = append(cases,
			claims(fmt.Sprintf("batch: codec %d", id), corpus.None, func(b *corpus.Batch) { b.Attributes |= id }))
	}
	set("attributes: control", func(b *corpus.Batch) { b.Attributes |= control })
	set("attributes: control and transactional", func(b *corpus.Batch) { b.Attributes |= control | transactional })
	set("attributes: transactional, without a producer", func(b *corpus.Batch) {
		b.Attributes |= transactional
		by(b, -1, -1, -1)
	})
	set("attributes: log append time", func(b *corpus.Batch) { b.Attributes |= logAppendTime })
	set("attributes: delete horizon", func(b *corpus.Batch) { b.Attributes |= deleteHorizon })
	for bit := 7; bit < 16; bit++ {
		name := fmt.Sprintf("attributes: unused bit %d", bit)
		cases = append(cases,
			claims(name, corpus.None, func(b *corpus.Batch) { b.Attributes |= int16(uint16(1) << bit) }))
	}
	set("attributes: all unused bits", func(b *corpus.Batch) { b.Attributes |= -128 }) // 7 to 15
	set("producer: ID 5 without an epoch", func(b *corpus.Batch) { by(b, 5, -1, -1) })
	set("producer: ID 5, epoch 0, no sequence", func(b *corpus.Batch) { by(b, 5, 0, -1) })
	set("producer: an epoch and a sequence without an ID", func(b *corpus.Batch) { by(b, -1, 5, 5) })
	set("producer: ID -2", func(b *corpus.Batch) { by(b, -2, -2, -2) })
	return append(cases, timeCases()...)
}

// timeCases are timestamps. Those of the batch count, or are added to those of records.
func timeCases() (cases []corpus.Case) {
	for _, at := range []struct {
		name string
		time int64
	}{{"-1", -1}, {"0", 0}, {"1", 1}, {"2^63-1", math.MaxInt64}, {"-2^63", math.MinInt64}, {"-2", -2}} {
		for _, c := range bothClaim("time: "+at.name, func(b *corpus.Batch) { b.First, b.Max = at.time, at.time }) {
			cases = append(cases, c.With(anyTime()))
		}
	}
	cases = append(cases, bothClaim("time: 2^63-1, topic as it is", func(b *corpus.Batch) {
		b.First, b.Max = math.MaxInt64, math.MaxInt64
	})...)
	for _, c := range bothClaim("time: topic with log append time", func(*corpus.Batch) {}) {
		cases = append(cases, c.With(map[string]string{"message.timestamp.type": "LogAppendTime"}))
	}
	for _, c := range bothClaim("time: max below the first", func(b *corpus.Batch) { b.Max = b.First - 1000 }) {
		cases = append(cases, c.With(anyTime()))
	}
	for _, c := range bothClaim("time: max above the last", func(b *corpus.Batch) { b.Max = b.First + 1000 }) {
		cases = append(cases, c.With(anyTime()))
	}
	for _, delta := range []int64{-1000, math.MinInt64, math.MaxInt64, 1 << 40} {
		late := func() []byte {
			r := corpus.Good(1)
			r.Timestamp = delta
			return corpus.Among(r)
		}
		for _, c := range both(fmt.Sprintf("time: delta %d", delta), 3, late) {
			cases = append(cases, c.With(anyTime()))
		}
	}
	return cases
}

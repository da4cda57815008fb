package load

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
)

// shape is what requests look like. A unit of it is a record, or a batch.
type shape struct {
	name  string
	units int
	sound int // timers of all units
	bad   int // dead letters of all units
	// record makes unit n, which is timer n if it is sound. It need not name the target, which is the default.
	record func(n int, due time.Time, target string) *kgo.Record
	batch  func() []byte // makes each unit, in place of record
	opts   []kgo.Opt     // of its producer
	tenant []string      // settings of the topic
}

const (
	// tiny requests have 45 bytes in a log.
	tinyUnits = 300_000
	// smallUnits have valueBytes.
	smallUnits = 100_000
	// largeUnits have about a MiB, and so have their dead letters.
	largeUnits = 120
	// wide is how many headers a request of a MiB has: an empty one takes two bytes.
	wide = 500_000
	// zerosBatch is what a batch of zeros has, in bytes. With snappy it is just below the broker's limit.
	zerosBatch = 16 * mib
	heavyUnits = 6
)

var shapes = slices.Concat([]shape{
	{name: "tiny-snappy", units: tinyUnits, sound: tinyUnits, record: tiny, opts: compressed(kgo.SnappyCompression())},
	{name: "tiny-plain", units: tinyUnits, sound: tinyUnits, record: tiny, opts: compressed(kgo.NoCompression())},
	{name: "small-lz4", units: smallUnits, sound: smallUnits, record: small, opts: compressed(kgo.Lz4Compression())},
	{name: "events", units: smallUnits, sound: smallUnits, record: small, opts: compressed(kgo.ZstdCompression()),
		tenant: []string{"events: true"}},
	{name: "megabytes", units: largeUnits, sound: largeUnits, record: megabyte, opts: compressed(kgo.NoCompression())},
	{name: "letters", units: largeUnits, bad: largeUnits, record: undue, opts: compressed(kgo.NoCompression())},
	{name: "wide", units: largeUnits, bad: largeUnits, record: wideRecord, opts: compressed(kgo.NoCompression())},
	{name: "sky", units: largeUnits, sound: largeUnits * 3 / 4, bad: largeUnits / 4, record: sky,
		opts: compressed(kgo.NoCompression()), tenant: []string{"dialect: sky"}},
	{name: "headers", units: heavyUnits, bad: heavyUnits, batch: heavy(0)},
	{name: "records", units: 1, bad: 1_000_000, batch: heavy(1)},
}, zeros())

func zeros() (all []shape) {
	for _, z := range []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		// The best level of each.
		{"gzip", kgo.GzipCompression().WithLevel(9)}, {"snappy", kgo.SnappyCompression()},
		{"lz4", kgo.Lz4Compression().WithLevel(1 << 17)}, {"zstd", kgo.ZstdCompression().WithLevel(4)},
	} {
		opts := append(compressed(z.codec), kgo.ProducerBatchMaxBytes(zerosBatch),
			kgo.ProducerLinger(50*time.Millisecond))
		all = append(all, shape{name: "zeros-" + z.name, units: largeUnits, sound: largeUnits, record: zero,
			opts: opts})
	}
	return all
}

func shapeOf(name string) *shape {
	return &shapes[slices.IndexFunc(shapes, func(s shape) bool { return s.name == name })]
}

// batched are options of a client that sends compressed batches.
func batched(codec kgo.CompressionCodec) []kgo.Opt {
	return []kgo.Opt{
		kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(5 * time.Millisecond),
		kgo.MaxBufferedRecords(maxBuffered),
	}
}

// compressed is batched for topics that take batches of largeBytes.
func compressed(codec kgo.CompressionCodec) []kgo.Opt {
	return append(batched(codec), kgo.ProducerBatchMaxBytes(largeBytes), kgo.MaxBufferedBytes(64*mib))
}

// request is a record with a key and a due time.
func request(n int, due time.Time, value []byte) *kgo.Record {
	return &kgo.Record{Key: strconv.AppendInt(nil, int64(n), 10), Value: value, Headers: []kgo.RecordHeader{
		{Key: "timer-at", Value: strconv.AppendInt(nil, due.UnixMilli(), 10)},
	}}
}

func tiny(n int, due time.Time, _ string) *kgo.Record { return request(n, due, []byte{}) }

// small requests have values that do not compress.
func small(n int, due time.Time, _ string) *kgo.Record { return request(n, due, noise(n, valueBytes)) }

func megabyte(n int, due time.Time, _ string) *kgo.Record {
	return request(n, due, noise(n, largeSize))
}

func zero(n int, due time.Time, _ string) *kgo.Record {
	return request(n, due, make([]byte, largeSize))
}

// undue requests are rejected, and their dead letters have the value.
func undue(n int, _ time.Time, _ string) *kgo.Record {
	r := request(n, time.Time{}, noise(n, largeSize))
	r.Headers[0].Value = []byte("tomorrow")
	return r
}

// wideRecord is rejected for its headers, which its dead letter has not.
func wideRecord(n int, due time.Time, _ string) *kgo.Record {
	r := request(n, due, []byte{})
	r.Headers = append(r.Headers, emptyHeaders()...)
	return r
}

var emptyHeaders = sync.OnceValue(func() []kgo.RecordHeader { return make([]kgo.RecordHeader, wide) })

// sky is a schedule of kafka-message-scheduler in Avro with as many headers as are allowed, and each fourth has all
// that fit into a MiB.
func sky(n int, due time.Time, target string) *kgo.Record {
	headers := 120
	if n%4 == 3 {
		headers = wide
	}
	b := binary.AppendVarint(nil, due.UnixMilli())
	for _, text := range []string{target, strconv.Itoa(n)} {
		b = append(binary.AppendVarint(b, int64(len(text))), text...)
	}
	b = append(binary.AppendVarint(b, 1), binary.AppendVarint(nil, 5)...)
	b = append(b, "value"...)
	b = append(binary.AppendVarint(b, int64(headers)), make([]byte, 2*headers)...) // each with an empty name and value
	return &kgo.Record{Key: strconv.AppendInt(nil, int64(n), 10), Value: append(b, 0)}
}

// heavy makes one of corpus.Heavy, which takes long to compress.
func heavy(i int) func() []byte {
	return sync.OnceValue(func() []byte { return corpus.Heavy()[i].Batch(corpus.Nobody(time.Now())) })
}

// noise is a value that does not compress, another one for each number.
func noise(number, size int) []byte {
	b := make([]byte, size)
	var seed [32]byte
	copy(seed[:], strconv.Itoa(number))
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
	return b
}

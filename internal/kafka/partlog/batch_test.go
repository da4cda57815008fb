package partlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

// fuzzLimit is the limit to which a batch may decompress in the tests of the decoder, in bytes.
const fuzzLimit = 4 << 20

var decoderLog = Log{Topic: "t", Partition: 3}

// sealed returns batches with correct checksums, so that the decoder does not reject fuzzed ones unread.
func sealed(raw []byte) []byte {
	raw = slices.Clone(raw)
	for rest := raw; len(rest) >= batchHeader; {
		size := lengthFrom + int(int32(binary.BigEndian.Uint32(rest[8:])))
		if size < batchHeader || size > len(rest) {
			break
		}
		binary.BigEndian.PutUint32(rest[crcAt:], crc32.Checksum(rest[crcFrom:size], crc32.MakeTable(crc32.Castagnoli)))
		rest = rest[size:]
	}
	return raw
}

// rebased returns a batch at another offset, which its checksum does not cover.
func rebased(raw []byte, first int64) []byte {
	raw = slices.Clone(raw)
	if len(raw) >= 8 {
		binary.BigEndian.PutUint64(raw, uint64(first))
	}
	return raw
}

// decoded is the result of decoding the batches of an answer.
type decoded struct {
	recs  []*kgo.Record
	skips []Unreadable
	next  int64
}

// decodeAll takes the batches apart: each time as many records as there is random room for, sometimes leaving a batch
// in the middle and opening it again. Without random numbers it takes all at once. It checks the invariants of each
// piece.
func decodeAll(t testing.TB, raw []byte, from int64, random *rand.Rand) (d decoded) {
	t.Helper()
	s := batchesOf(&kmsg.FetchResponseTopicPartition{RecordBatches: raw}, from, readCommitted)
	moved := func(before int64) {
		t.Helper()
		if s.position < before {
			t.Fatalf("the position went from %d back to %d", before, s.position)
		}
	}
	for {
		before := s.position
		b, err := s.next()
		moved(before)
		at := s.position
		var o *opened
		if b != nil {
			o, err = shared.open(s, b, decoderLog, fuzzLimit)
		}
		if bad := err; bad != nil {
			if bad.First < at || bad.Next <= bad.First {
				t.Fatalf("[%d, %d) cannot be read, at %d", bad.First, bad.Next, at)
			}
			d.skips = append(d.skips, *bad)
			s.skipTo(bad)
			continue
		}
		if b == nil {
			d.next = s.position
			return d
		}
		end := b.FirstOffset + int64(b.LastOffsetDelta) + 1
		for o.left > 0 {
			room, left := timer.Unlimited, o.left
			if random != nil {
				room = timer.Size{Entries: random.IntN(4), Bytes: random.Int64N(2000)}
			}
			next := o.nextMemory()
			recs := o.take(room)
			checkTaken(t, recs, room, next, at, end)
			if len(recs) != left-o.left {
				t.Fatalf("%d records of %d are taken, and %d are left", len(recs), left, o.left)
			}
			at = recs[len(recs)-1].Offset + 1
			d.recs = append(d.recs, recs...)
			if random != nil && o.left > 0 && random.IntN(8) == 0 {
				s.stopAt(o)
				break
			}
		}
		if o.left == 0 {
			s.pass(b)
		}
		moved(at)
	}
}

// checkTaken checks the records that were taken of a batch whose next offset is at, and which ends below end.
func checkTaken(t testing.TB, recs []*kgo.Record, room timer.Size, next, at, end int64) {
	t.Helper()
	if len(recs) == 0 || len(recs) > max(1, room.Entries) {
		t.Fatalf("%d records are taken, with room for %+v", len(recs), room)
	}
	if Memory(recs[0]) > next {
		t.Fatalf("a record takes %d bytes, and was said to take %d", Memory(recs[0]), next)
	}
	var memory int64
	for _, r := range recs {
		if memory += Memory(r); r.Offset < at || r.Offset >= end || len(r.Headers) > MaxHeaders ||
			len(r.Headers) > HeaderCount(r) {
			t.Fatalf("offset %d outside of [%d, %d), %d headers of %d", r.Offset, at, end, len(r.Headers),
				HeaderCount(r))
		}
		at = r.Offset + 1
		_ = append(r.Headers, kgo.RecordHeader{Key: "appended"}) // which does not change the next record
	}
	if len(recs) > 1 && memory > room.Bytes {
		t.Fatalf("%d records take %d bytes, of %d", len(recs), memory, room.Bytes)
	}
}

// line is a record as text. Its time is cut to 64 bits of nanoseconds, as kgo does.
func line(r *kgo.Record) string {
	return fmt.Sprintf("%s/%d@%d %q(%t) %q(%t) %q of %d at %d by %d, producer %d/%d, leader %d", r.Topic,
		r.Partition, r.Offset,
		r.Key, r.Key == nil, r.Value, r.Value == nil, headerLines(r), HeaderCount(r),
		time.Unix(0, r.Timestamp.UnixMilli()*1e6).UnixMilli(), r.Attrs.TimestampType(),
		r.ProducerID, r.ProducerEpoch, r.LeaderEpoch)
}

func headerLines(r *kgo.Record) (lines []string) {
	for _, h := range r.Headers {
		lines = append(lines, fmt.Sprintf("%s: %s(%t)", h.Key, h.Value, h.Value == nil))
	}
	return lines
}

// alike fails the test at the first record that differs.
func alike(t testing.TB, what string, got, want []*kgo.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d records, want %d", what, len(got), len(want))
	}
	for i := range got {
		if a, b := line(got[i]), line(want[i]); a != b {
			t.Fatalf("%s: record %d\n is %s\nwant %s", what, i, a, b)
		}
	}
}

// byKgo returns the records of a single batch as kgo decodes it; whole says that it decodes all of them, at valid
// offsets.
func byKgo(raw []byte, from int64) (recs []*kgo.Record, whole bool) {
	if len(raw) < batchHeader || raw[magicAt] != 2 ||
		lengthFrom+int64(int32(binary.BigEndian.Uint32(raw[8:]))) != int64(len(raw)) {
		return nil, false
	}
	var b kmsg.RecordBatch
	if b.ReadFrom(raw) != nil || b.Attributes&control != 0 || b.FirstOffset < from {
		return nil, false
	}
	if b.Attributes&(1<<7) != 0 {
		return nil, false // for kgo the bit says that there is no timestamp
	}
	o := kgo.ProcessFetchPartitionOpts{Topic: decoderLog.Topic, Partition: decoderLog.Partition, Offset: from,
		IsolationLevel: kgo.ReadCommitted()}
	got, _ := kgo.ProcessFetchPartition(
		o, &kmsg.FetchResponseTopicPartition{Partition: decoderLog.Partition, RecordBatches: raw},
		kgo.DefaultDecompressor(), nil)
	last := b.FirstOffset - 1
	for _, r := range got.Records {
		if r.Offset <= last || r.Offset > b.FirstOffset+int64(b.LastOffsetDelta) || len(r.Headers) > MaxHeaders {
			return nil, false
		}
		last = r.Offset
	}
	return got.Records, got.Err == nil && b.NumRecords >= 0 && len(got.Records) == int(b.NumRecords)
}

// FuzzBatches decodes any answer of a broker.
func FuzzBatches(f *testing.F) {
	runs.NotRaced(f)
	at := time.UnixMilli(1_700_000_000_000)
	for i, c := range corpus.Cases() {
		if c.Group() == "large" {
			continue // TestLargeBatches
		}
		raw := c.Batch(corpus.Nobody(at))
		f.Add(raw, int64(0), uint64(i))
		if i%5 == 0 {
			w := corpus.Writer{ID: 7, Epoch: 2, Sequence: 40, Transactional: true, At: at.UnixMilli()}
			f.Add(append(rebased(c.Batch(w), 10), rebased(raw, 5000)...), int64(11), uint64(i))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, from int64, seed uint64) {
		if from < 0 || from > math.MaxInt64-math.MaxUint32 {
			return // no offset
		}
		for _, raw := range [][]byte{raw, sealed(raw)} {
			whole := decodeAll(t, raw, from, nil)
			pieces := decodeAll(t, raw, from, rand.New(rand.NewPCG(seed, 0)))
			alike(t, "in pieces", pieces.recs, whole.recs)
			if pieces.next != whole.next || len(pieces.skips) != len(whole.skips) {
				t.Fatalf("in pieces to %d with %d skipped, at once to %d with %d", pieces.next, len(pieces.skips),
					whole.next, len(whole.skips))
			}
			if want, ok := byKgo(raw, from); ok && len(whole.skips) == 0 {
				alike(t, "beside kgo", whole.recs, want)
			}
		}
	})
}

// The table holds for the decoder alone, and kgo decodes the same records if it decodes all.
func TestBatchesOfTheCorpus(t *testing.T) {
	verdicts, beside := corpus.Verdicts(), 0
	for _, c := range corpus.Cases() {
		v := verdicts[c.Name]
		if !v.Taken() || c.Group() == "large" || c.Group() == "topic" || strings.Contains(c.Name, "log append time") {
			continue
		}
		raw := c.Batch(corpus.Nobody(time.UnixMilli(1_700_000_000_000)))
		got := decodeAll(t, raw, 0, nil)
		result := fmt.Sprintf("%d records", len(got.recs))
		if len(got.recs) > 0 {
			result += ", " + corpus.Digest(got.recs...)
		}
		for _, u := range got.skips {
			result = fmt.Sprintf("dead letter %s for %d offsets: %v", u.Refusal("records").Reason, u.Next-u.First,
				u.Err)
		}
		if result != v.Service {
			t.Errorf("%s: %s, want %s", c.Name, result, v.Service)
		}
		if want, ok := byKgo(raw, 0); ok && len(got.skips) == 0 {
			beside++
			alike(t, c.Name, got.recs, want)
		}
	}
	if beside < 100 {
		t.Errorf("only %d cases are compared with kgo", beside)
	}
}

// Timestamps that a broker has set are those of the batch, and the record says so.
func TestTimestampsOfTheBroker(t *testing.T) {
	raw := batch(5, 3, 3)
	raw[crcFrom+1] |= logAppendTime
	binary.BigEndian.PutUint64(raw[35:], 1_700_000_000_123) // the maximum
	raw = sealed(raw)
	got := decodeAll(t, raw, 0, nil).recs
	want, whole := byKgo(raw, 0)
	if !whole {
		t.Fatal("kgo does not decode it")
	}
	alike(t, "beside kgo", got, want)
	if got[2].Timestamp.UnixMilli() != 1_700_000_000_123 || got[2].Attrs.TimestampType() != 1 {
		t.Error(line(got[2]))
	}
}

// Large batches come in pieces, and a record has no more headers than MaxHeaders.
func TestLargeBatches(t *testing.T) {
	runs.NotRaced(t)
	for _, c := range corpus.Cases() {
		if c.Group() != "large" || strings.HasSuffix(c.Name, "gzip") || strings.HasSuffix(c.Name, "lz4") {
			continue
		}
		raw := c.Batch(corpus.Nobody(time.UnixMilli(0)))
		s := batchesOf(&kmsg.FetchResponseTopicPartition{RecordBatches: raw}, 0, readCommitted)
		n, last := 0, int64(-1)
		for n == 0 || len(s.rest) > 0 {
			b, err := s.next()
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			o, err := shared.open(s, b, decoderLog, MaxUnpacked)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			room := timer.Size{Entries: 50_000, Bytes: 1 << 20}
			next, at := o.nextMemory(), last+1
			recs := o.take(room)
			checkTaken(t, recs, room, next, at, corpus.Span(raw))
			n, last = n+len(recs), recs[len(recs)-1].Offset
			if o.left > 0 {
				s.stopAt(o)
			} else {
				s.pass(b)
			}
			if strings.Contains(c.Name, "headers") &&
				(HeaderCount(recs[0]) != 100_000 || len(recs[0].Headers) != MaxHeaders) {
				t.Errorf("%s: %d headers of %d", c.Name, len(recs[0].Headers), HeaderCount(recs[0]))
			}
		}
		if int64(n) != corpus.Span(raw) || s.position != int64(n) {
			t.Errorf("%s: %d records of %d, to %d", c.Name, n, corpus.Span(raw), s.position)
		}
	}
}

// A reader that stops before the first record of a batch has read none of it: the batch before was read last. Otherwise
// a log that loses the batch looks as if it had lost a batch that was read (KIP-320).
func TestABatchThatIsNotTakenIsNotReadLast(t *testing.T) {
	epoch := func(raw []byte, e int32) []byte {
		binary.BigEndian.PutUint32(raw[lengthFrom:], uint32(e))
		return raw
	}
	raw := append(epoch(batch(0, 3, 3), 4), epoch(batch(3, 3, 3), 6)...)
	s := batchesOf(&kmsg.FetchResponseTopicPartition{RecordBatches: raw}, 0, readCommitted)
	for i, want := range []batchEnd{{EpochOf(4), 3}, {EpochOf(6), 4}} {
		b, _ := s.next()
		if i == 0 {
			s.pass(b)
			b, _ = s.next()
		}
		o, bad := shared.open(s, b, decoderLog, fuzzLimit)
		if bad != nil {
			t.Fatal(bad)
		}
		for range i {
			o.take(timer.Size{Entries: 1, Bytes: math.MaxInt64})
		}
		if s.stopAt(o); s.last != want || s.position != want.behind {
			t.Errorf("after %d records of the second batch %+v was read last, at %d; want %+v", i, s.last,
				s.position, want)
		}
	}
}

// marker is a control batch of a producer at an offset.
func marker(at, producer int64, commit bool) []byte {
	kind := byte(0)
	if commit {
		kind = 1
	}
	rec := kmsg.Record{Key: []byte{0, 0, 0, kind}, Value: []byte{0, 0, 0, 0, 0, 0}}
	rec.Length = int32(len(rec.AppendTo(nil)) - 1)
	b := kmsg.RecordBatch{
		FirstOffset: at, Magic: 2, ProducerID: producer, Attributes: transactional | control, FirstSequence: -1,
		NumRecords: 1,
		Records:    rec.AppendTo(nil),
	}
	b.Length = int32(len(b.AppendTo(nil)) - lengthFrom)
	return sealed(b.AppendTo(nil))
}

// undecodable is the name of a batch that brokers accept, even in a transaction, and that cannot be decoded.
const undecodable = "size: one too large of the second record, gzip"

// caseOf returns the case of a name.
func caseOf(t testing.TB, name string) corpus.Case {
	t.Helper()
	for _, c := range slices.Concat(corpus.Cases(), corpus.Heavy()) {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no case %q", name)
	return corpus.Case{}
}

// Batches of aborted transactions are passed by their headers: an undecodable or oversized one is skipped only if it
// may be committed.
func TestAbortedBatchesAreNotOpened(t *testing.T) {
	const one, other = 7, 8
	broken := func(at, producer int64) []byte { // takes three offsets
		w := corpus.Writer{ID: producer, Transactional: true}
		return rebased(caseOf(t, undecodable).Batch(w), at)
	}
	good := func(at, producer int64) []byte { // takes two
		raw := batch(at, 2, 2)
		raw[crcFrom+1] |= transactional
		binary.BigEndian.PutUint64(raw[43:], uint64(producer))
		return sealed(raw)
	}
	plain := func(at int64) []byte { return batch(at, 1, 1) }
	aborted := func(pairs ...int64) (list []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
		for i := 0; i < len(pairs); i += 2 {
			a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			a.ProducerID, a.FirstOffset = pairs[i], pairs[i+1]
			list = append(list, a)
		}
		return list
	}
	for _, tt := range []struct {
		name    string
		batches [][]byte
		aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
		from    int64
		offsets []int64
		skipped []int64
		next    int64
	}{
		{
			name:    "one",
			batches: [][]byte{plain(0), broken(1, one), marker(4, one, false), plain(5)},
			aborted: aborted(one, 1), offsets: []int64{0, 5}, next: 6,
		},
		{
			name:    "its marker lies behind a hanging transaction",
			batches: [][]byte{plain(0), broken(1, one)},
			aborted: aborted(one, 1), offsets: []int64{0}, next: 4,
		},
		{
			name:    "from within",
			batches: [][]byte{broken(0, one), good(3, one), marker(5, one, false), good(6, one)},
			aborted: aborted(one, 0), from: 1, offsets: []int64{6, 7}, next: 8,
		},
		{
			name: "several of one producer, in any order",
			batches: [][]byte{
				broken(0, one), marker(3, one, false), good(4, one), marker(6, one, true), broken(7, one),
				good(10, one), marker(12, one, false), good(13, one),
			},
			aborted: aborted(one, 7, one, 0), offsets: []int64{4, 5, 13, 14}, next: 15,
		},
		{
			name: "of two producers, one within the other",
			batches: [][]byte{
				broken(0, one), good(3, other), broken(5, one), marker(8, other, true), marker(9, one, false),
				broken(10, other), marker(13, other, false),
			},
			aborted: aborted(other, 10, one, 0), offsets: []int64{3, 4}, next: 14,
		},
		{
			name:    "the same batch is not aborted",
			batches: [][]byte{broken(0, one), marker(3, one, true), good(4, other)},
			aborted: aborted(other, 90, one, 50), offsets: []int64{4, 5}, skipped: []int64{0}, next: 6,
		},
		{
			name: "a batch outside of transactions has the producer of an aborted one",
			batches: [][]byte{func() []byte { b := good(0, one); b[crcFrom+1] &^= transactional; return sealed(b) }(),
				marker(2, one, false)},
			aborted: aborted(one, 0), offsets: []int64{0, 1}, next: 3,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp := &kmsg.FetchResponseTopicPartition{RecordBatches: slices.Concat(tt.batches...),
				AbortedTransactions: tt.aborted}
			s := batchesOf(resp, tt.from, readCommitted)
			var offsets, skipped []int64
			for {
				b, err := s.next()
				if err == nil && b == nil {
					break
				}
				var o *opened
				if err == nil {
					o, err = shared.open(s, b, decoderLog, fuzzLimit)
				}
				if bad := err; bad != nil {
					skipped = append(skipped, bad.First)
					s.skipTo(bad)
					continue
				}
				for o.left > 0 {
					offsets = append(offsets, o.take(timer.Size{Entries: 1})[0].Offset)
				}
				s.pass(b)
			}
			if !slices.Equal(offsets, tt.offsets) || !slices.Equal(skipped, tt.skipped) || s.position != tt.next {
				t.Errorf("read %v, skipped %v, to %d; want %v, %v, %d", offsets, skipped, s.position, tt.offsets,
					tt.skipped, tt.next)
			}
		})
	}
}

// FuzzUnpack decompresses any data that a producer may write.
func FuzzUnpack(f *testing.F) {
	runs.NotRaced(f)
	seen := make(map[string]bool)
	for i, c := range corpus.Cases() {
		raw := c.Batch(corpus.Nobody(time.UnixMilli(0)))
		if len(raw) < batchHeader {
			continue
		}
		codec, src := raw[crcFrom+1]&codecBits, raw[batchHeader:]
		if key := fmt.Sprint(codec, string(src)); len(src) < 64<<10 && codec > 0 && !seen[key] {
			seen[key] = true
			f.Add(codec, src, uint32(1<<20))
			if i%7 == 0 {
				f.Add(codec, src, uint32(17*i))
			}
		}
	}
	for codec := range byte(8) {
		f.Add(codec, []byte(nil), uint32(0))
	}
	f.Fuzz(func(t *testing.T, codec byte, src []byte, most uint32) {
		limit := int(most % (8 << 20))
		input := slices.Clone(src)
		out, err := shared.unpack(kgo.CompressionCodecType(codec&codecBits), src, limit)
		if len(out) > limit {
			t.Fatalf("%d bytes, of %d at most", len(out), limit)
		}
		if !slices.Equal(input, src) {
			t.Fatal("the input was written to")
		}
		kept := slices.Clone(out)
		again, err2 := shared.unpack(kgo.CompressionCodecType(codec&codecBits), src, limit+1000)
		if !slices.Equal(kept, out) {
			t.Fatal("what was returned was written to")
		}
		if n := min(len(out), len(again)); !slices.Equal(out[:n], again[:n]) || err == nil &&
			(err2 != nil || len(out) != len(again)) {
			t.Fatalf("%d bytes, %v; with a larger limit %d bytes, %v, and not the same", len(out), err,
				len(again), err2)
		}
	})
}

// A record keeps no more memory than it counts as, however many headers it has in its log; nor do decoders keep their
// output.
func TestARecordKeepsWhatItCounts(t *testing.T) {
	runs.NotRaced(t)
	raw := caseOf(t, "heavy: 15700000 empty headers, zstd").Batch(corpus.Nobody(time.UnixMilli(0)))
	s := batchesOf(&kmsg.FetchResponseTopicPartition{RecordBatches: raw}, 0, readCommitted)
	before := heap(true)
	recs := func() []*kgo.Record {
		b, _ := s.next()
		o, bad := shared.open(s, b, decoderLog, MaxUnpacked)
		if bad != nil {
			t.Fatal(bad)
		}
		if next := o.nextMemory(); next > 1<<20 {
			t.Errorf("a record of which %d headers are built is said to take %d bytes", MaxHeaders, next)
		}
		return o.take(timer.Unlimited)
	}()
	if held := heap(true) - before; held > 4<<20 || HeaderCount(recs[0]) != 15_700_000 {
		t.Errorf("a record of %d headers holds %d bytes, and counts as %d", HeaderCount(recs[0]), held, Memory(recs[0]))
	}
}

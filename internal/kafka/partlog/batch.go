package partlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// MaxUnpacked is the size, in bytes, to which a batch may decompress, unless the topic takes larger records.
	MaxUnpacked = 32 << 20
	// MaxHeaders is how many headers of a record are built. A valid request or emission has fewer. A header takes two
	// bytes in a log and headerMemory here, so further ones are only counted: see HeaderCount.
	MaxHeaders = 1 << 10

	// pageRecords is the maximum number of records built together. They share memory, so keeping one keeps all.
	pageRecords = 1 << 10
	// pageMemory is the maximum memory of the records of a Reader's page, in bytes, unless SetRoom is called.
	pageMemory = 16 << 20

	recordMemory = int64(unsafe.Sizeof(kgo.Record{})) + 8
	headerMemory = int64(unsafe.Sizeof(kgo.RecordHeader{}))
)

// Unreadable is a batch whose records cannot be read. Reading on at Next misses nothing else.
type Unreadable struct {
	First, Next int64 // its offsets are [First, Next)
	Epoch       Epoch // of its leader
	TooLarge    bool  // it is not broken, but larger than the limit
	Err         error // its fault
}

func (u *Unreadable) Error() string {
	return fmt.Sprintf("the batch at offsets %d to %d cannot be read: %v", u.First, u.Next-1, u.Err)
}

func (u *Unreadable) Unwrap() error { return u.Err }

// Refusal is why a dead letter stands for the batch. noun names its records, such as "requests".
func (u *Unreadable) Refusal(noun string) *timer.Refusal {
	offsets := fmt.Sprintf("the batch of %s at the offsets %d to %d", noun, u.First, u.Next-1)
	if u.TooLarge {
		return &timer.Refusal{Reason: string(waterclock.ReasonBatchTooLarge), Detail: offsets +
			" is larger when decompressed than the service takes, and none of them was read: send them again in " +
			"smaller batches."}
	}
	return &timer.Refusal{Reason: string(waterclock.ReasonBatchUnreadable), Detail: fmt.Sprintf(
		"%s cannot be decoded (%v), and none of them was read: fix the producer, and send them again.", offsets, u.Err)}
}

// Bytes at the begin of a record batch of version 2 (KIP-98).
const (
	batchHeader = 61 // all of it
	lengthFrom  = 12 // its length does not count these
	magicAt     = 16
	crcAt       = 17
	crcFrom     = 21 // the checksum counts from here
)

// Bits of a batch's attributes.
const (
	codecBits     = 7
	logAppendTime = 1 << 3
	transactional = 1 << 4
	control       = 1 << 5
)

// errDamaged: the checksum is wrong. Another fetch may return the batch intact.
var errDamaged = errors.New("wrong checksum")

// batches iterates over the batches of one partition in the answer to a fetch.
//
// Invariant: all records in [the first position, position) have been returned by next, or hidden by it because they are
// markers or aborted.
type batches struct {
	position int64
	end      int64    // the end of the log for this reader, by the broker; nothing at or above it is read
	last     batchEnd // of the last batch below the position
	rest     []byte   // not parsed yet
	cut      bool     // a Reader's page had no room for the rest
	open     *opened  // the batch at the beginning of the rest, if the page took only a part of it; else nil
	// aborted has the offsets at which aborted transactions begin, by producer, in order. nil: all records are
	// returned.
	aborted map[int64][]int64
}

// batchEnd is where a batch ends, and its leader epoch.
type batchEnd struct {
	epoch  Epoch
	behind int64
}

// batchesOf returns the batches of an answer, for a reader at a position.
func batchesOf(resp *kmsg.FetchResponseTopicPartition, position int64, isolation int8) *batches {
	s := &batches{position: position, end: resp.HighWatermark, rest: resp.RecordBatches}
	if isolation == readCommitted {
		s.end = resp.LastStableOffset
		s.aborted = make(map[int64][]int64, len(resp.AbortedTransactions))
		for _, a := range resp.AbortedTransactions {
			s.aborted[a.ProducerID] = append(s.aborted[a.ProducerID], a.FirstOffset)
		}
		for _, first := range s.aborted {
			slices.Sort(first) // some brokers do not
		}
	}
	return s
}

// next returns the next batch that may have records at or above the position, and moves the position up to it. It
// returns nil if no whole batch follows. An Unreadable from next is about the batch's header: next does not parse the
// records.
func (ba *batches) next() (*kmsg.RecordBatch, *Unreadable) {
	for len(ba.rest) > magicAt {
		size := ba.size()
		if size <= magicAt || size > len(ba.rest) {
			return nil, nil // cut off, like the end of an answer may be
		}
		raw, b := ba.rest[:size], new(kmsg.RecordBatch)
		switch {
		case raw[magicAt] != 2 || size < batchHeader || b.ReadFrom(raw) != nil:
			if at := int64(binary.BigEndian.Uint64(raw)); at >= ba.position {
				err := fmt.Errorf("unsupported record format %d", raw[magicAt])
				return nil, ba.unreadable(ba.position, at+1, 0, err)
			}
			ba.rest = ba.rest[size:]
		case uint32(b.CRC) != crc32.Checksum(raw[crcFrom:], crc32.MakeTable(crc32.Castagnoli)):
			return nil, ba.unreadable(ba.position, ba.behind(b, size), 0, errDamaged)
		case nextOf(b) <= ba.position:
			ba.rest = ba.rest[size:]
		case ba.hidden(b):
			ba.pass(b)
		default:
			return b, nil
		}
	}
	return nil, nil
}

func nextOf(b *kmsg.RecordBatch) int64 { return b.FirstOffset + int64(b.LastOffsetDelta) + 1 }

// behind returns the offset to continue from behind a damaged batch of this size: the beginning of the next batch or,
// if the answer does not have that, the end that the batch claims, unless that is beyond the log's end.
func (ba *batches) behind(b *kmsg.RecordBatch, size int) int64 {
	if next := ba.rest[size:]; len(next) >= 8 {
		if at := int64(binary.BigEndian.Uint64(next)); at > ba.position && at < ba.end {
			return at
		}
	}
	if at := nextOf(b); at > ba.position && at < ba.end {
		return at
	}
	return ba.end
}

// size is that of the batch at the begin of the rest, whole or not.
func (ba *batches) size() int { return lengthFrom + int(int32(binary.BigEndian.Uint32(ba.rest[8:]))) }

// skipTo passes a batch that cannot be read.
func (ba *batches) skipTo(bad *Unreadable) {
	ba.rest = ba.rest[ba.size():]
	ba.position, ba.last = bad.Next, batchEnd{bad.Epoch, bad.Next}
}

// hidden reports whether a batch holds a marker, or records of an aborted transaction.
func (ba *batches) hidden(b *kmsg.RecordBatch) bool {
	first := ba.aborted[b.ProducerID]
	aborted := b.Attributes&transactional != 0 && len(first) > 0 && first[0] <= b.FirstOffset
	if b.Attributes&control == 0 {
		return aborted
	}
	if aborted && isAbort(b) {
		ba.aborted[b.ProducerID] = first[1:]
	}
	return true
}

// isAbort reports whether a control batch holds the marker of an aborted transaction: its record's key is a version
// and a type of two bytes each, and the type is 0 (Kafka, ControlRecordType).
func isAbort(b *kmsg.RecordBatch) bool {
	f, ok := parseRecord(b.Records)
	return ok && len(f.key) >= 4 && f.key[2] == 0 && f.key[3] == 0
}

// pass moves the position behind the batch that next has returned.
func (ba *batches) pass(b *kmsg.RecordBatch) {
	ba.rest = ba.rest[lengthFrom+int(b.Length):]
	ba.position = nextOf(b)
	ba.last = batchEnd{EpochOf(b.PartitionLeaderEpoch), ba.position}
}

// stopAt moves the position up to the next record of a batch that was not taken whole. next returns the batch again. If
// the position is where the batch begins, none of it was read, and another batch was read last.
func (ba *batches) stopAt(o *opened) {
	f, _ := parseRecord(o.raw)
	if ba.position = o.FirstOffset + int64(f.offsetDelta); ba.position > o.FirstOffset {
		ba.last = batchEnd{EpochOf(o.PartitionLeaderEpoch), ba.position}
	}
}

func (ba *batches) unreadable(first, next int64, epoch Epoch, err error) *Unreadable {
	next = max(next, ba.position+1)
	return &Unreadable{
		First: min(max(first, ba.position), next-1), Next: next, Epoch: epoch,
		TooLarge: errors.Is(err, errTooLarge), Err: err,
	}
}

// opened is a batch whose records were checked, with the records that were not taken yet.
//
// It exists because a batch of a few kilobytes may hold millions of records, and a record is many times as large here
// as in a log. A record is built only once there is room for it.
type opened struct {
	*kmsg.RecordBatch
	topic     string
	partition int32
	raw       []byte // from the next record on
	left      int    // how many records raw has
}

// openNext opens the next batch that may have records at or above the position; nil if no whole batch follows.
func (ba *batches) openNext(l Log, limit int) (*opened, *Unreadable) {
	b, bad := ba.next()
	if b == nil {
		return nil, bad
	}
	return shared.open(ba, b, l, limit)
}

// open decompresses a batch to limit bytes at most, checks all its records and skips those below the position.
func (u *unpacker) open(s *batches, b *kmsg.RecordBatch, l Log, limit int) (*opened, *Unreadable) {
	o := &opened{RecordBatch: b, topic: l.Topic, partition: l.Partition, raw: b.Records, left: int(b.NumRecords)}
	var err error
	if codec := kgo.CompressionCodecType(b.Attributes & codecBits); codec != kgo.CodecNone {
		o.raw, err = u.unpack(codec, b.Records, limit)
	}
	if bad := o.check(); bad != nil {
		if err != nil {
			bad = err // the reason why records are missing
		}
		return nil, s.unreadable(b.FirstOffset, nextOf(b), EpochOf(b.PartitionLeaderEpoch), bad)
	}
	for o.left > 0 {
		f, _ := parseRecord(o.raw)
		if b.FirstOffset+int64(f.offsetDelta) >= s.position {
			break
		}
		o.raw, o.left = o.raw[f.size:], o.left-1
	}
	return o, nil
}

// check returns the first fault of the records, or nil. It ignores bytes after them.
func (o *opened) check() error {
	if o.left < 0 {
		return fmt.Errorf("negative record count %d", o.left)
	}
	last := int32(-1)
	for n, in := 0, o.raw; n < o.left; n++ {
		f, ok := parseRecord(in)
		switch {
		case !ok:
			return fmt.Errorf("record %d of %d is malformed", n+1, o.left)
		case f.offsetDelta <= last || f.offsetDelta > o.LastOffsetDelta:
			return fmt.Errorf("record %d of %d has the offset %d after %d, in a batch that ends at %d",
				n+1, o.left, f.offsetDelta, last, o.LastOffsetDelta)
		}
		last, in = f.offsetDelta, in[f.size:]
	}
	return nil
}

// nextMemory is how much memory the next record takes. There is one.
func (o *opened) nextMemory() int64 {
	f, _ := parseRecord(o.raw)
	return f.memory()
}

// take returns the next records: at least one, and as many more as fit. Their bytes are copies, so that a few kept
// records do not keep a whole fetch, nor a record its headers beyond MaxHeaders.
func (o *opened) take(room timer.Size) []*kgo.Record {
	n, size, memory, bytes, headers := 0, 0, int64(0), 0, 0
	for n < o.left && (n == 0 || n < room.Entries) {
		f, _ := parseRecord(o.raw[size:])
		if memory += f.memory(); n > 0 && memory > room.Bytes {
			break
		}
		n, size, bytes, headers = n+1, size+f.size, bytes+f.bytes(), headers+f.built()
	}
	copies, built, recs := make(arena, 0, bytes), make([]kgo.Record, n), make([]*kgo.Record, n)
	all := make([]kgo.RecordHeader, headers)
	for i := range built {
		f, _ := parseRecord(o.raw)
		o.raw = o.raw[f.size:]
		f.key, f.value, f.headerBytes = copies.add(f.key), copies.add(f.value), copies.add(f.headerBytes)
		o.build(&built[i], &f)
		built[i].Headers, all = f.build(all)
		recs[i] = &built[i]
	}
	o.left -= n
	return recs
}

// arena is memory for copies. It is made as large as all of them together.
type arena []byte

// add returns a copy, nil of nil.
func (a *arena) add(p []byte) []byte {
	if p == nil {
		return nil
	}
	at := len(*a)
	*a = append(*a, p...)
	return (*a)[at:len(*a):len(*a)]
}

func (o *opened) build(r *kgo.Record, f *recordFields) {
	r.Topic, r.Partition, r.Offset = o.topic, o.partition, o.FirstOffset+int64(f.offsetDelta)
	r.ProducerID, r.ProducerEpoch, r.LeaderEpoch = o.ProducerID, o.ProducerEpoch, o.PartitionLeaderEpoch
	r.Key, r.Value = f.key, f.value
	r.Timestamp = time.UnixMilli(o.FirstTimestamp + f.timestampDelta)
	if o.Attributes&logAppendTime != 0 {
		r.Timestamp, r.Attrs = time.UnixMilli(o.MaxTimestamp), appended()
	}
	if f.headers > MaxHeaders {
		r.Context = context.WithValue(context.Background(), headerCount{}, f.headers)
	}
}

// appended returns the attributes of a record whose timestamp the broker has set. Only kgo can make them.
var appended = sync.OnceValue(func() kgo.RecordAttrs {
	b := kmsg.RecordBatch{Magic: 2, Attributes: logAppendTime, NumRecords: 1, Records: []byte{12, 0, 0, 0, 1, 1, 0}}
	b.Length = int32(len(b.AppendTo(nil)) - lengthFrom)
	resp := &kmsg.FetchResponseTopicPartition{RecordBatches: b.AppendTo(nil)}
	fetched, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{DisableCRCValidation: true}, resp, nil, nil)
	return fetched.Records[0].Attrs
})

// headerCount is the key of the number of headers in the context of a record that has more than MaxHeaders.
type headerCount struct{}

// HeaderCount returns how many headers a record has in its log. If there are more than MaxHeaders, its Headers are the
// first of them.
func HeaderCount(r *kgo.Record) int {
	if r.Context != nil {
		if n, ok := r.Context.Value(headerCount{}).(int); ok {
			return n
		}
	}
	return len(r.Headers)
}

// Memory is about how much memory a record takes, in bytes.
func Memory(r *kgo.Record) int64 {
	n := recordMemory + int64(len(r.Key)+len(r.Value)) + headerMemory*int64(len(r.Headers))
	for i := range r.Headers {
		n += int64(len(r.Headers[i].Key) + len(r.Headers[i].Value))
	}
	return n
}

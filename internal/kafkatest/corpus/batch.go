package corpus

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// Writer has the fields of a batch about its producer and its time.
type Writer struct {
	ID            int64 // -1: a producer that is not idempotent
	Epoch         int16
	Sequence      int32
	Transactional bool
	At            int64 // milliseconds since 1970
}

// Nobody is a producer that is not idempotent.
func Nobody(at time.Time) Writer { return Writer{ID: -1, Epoch: -1, Sequence: -1, At: at.UnixMilli()} }

// Bits of the attributes of a batch.
const (
	logAppendTime = 1 << 3
	transactional = 1 << 4
	control       = 1 << 5
	deleteHorizon = 1 << 6
)

// Compression types, as in the attributes.
const (
	none = iota
	gzipped
	snappied
	lz4ed
	zstded
)

// Sizes of the parts of a batch, in bytes.
const (
	overhead  = 61 // before the records
	upToSize  = 12 // the base offset, and the size itself
	upToCRC   = 17
	behindCRC = 21
)

// batch is a batch of format 2, field by field. What it claims need not be so.
//
//	 0 base offset   8 | 21 attributes        2 | 43 producer ID    8
//	 8 size          4 | 23 last offset delta 4 | 51 producer epoch 2
//	12 leader epoch  4 | 27 first timestamp   8 | 53 base sequence  4
//	16 magic         1 | 35 max timestamp     8 | 57 record count   4
//	17 CRC           4 |                        | 61 records
type batch struct {
	base        int64
	leaderEpoch int32
	magic       byte
	attributes  int16
	lastDelta   int32
	first, max  int64
	w           Writer
	count       int32
	records     []byte // compressed, if attributes say so
	crc         uint32 // difference from the correct one
	size        int32  // difference from the correct one
}

// newBatch is a sound batch of count records.
func newBatch(w Writer, codec int16, count int, records []byte) *batch {
	b := &batch{
		leaderEpoch: -1, magic: 2, attributes: codec, lastDelta: int32(count - 1), first: w.At, max: w.At, w: w,
		count: int32(count), records: records,
	}
	if w.Transactional {
		b.attributes |= transactional
	}
	return b
}

// bytes are the batch as it is on the wire.
func (b *batch) bytes() []byte {
	p := binary.BigEndian.AppendUint64(make([]byte, 0, overhead+len(b.records)), uint64(b.base))
	p = binary.BigEndian.AppendUint32(p, uint32(overhead-upToSize+len(b.records))+uint32(b.size))
	p = binary.BigEndian.AppendUint32(p, uint32(b.leaderEpoch))
	p = append(p, b.magic, 0, 0, 0, 0)
	p = binary.BigEndian.AppendUint16(p, uint16(b.attributes))
	p = binary.BigEndian.AppendUint32(p, uint32(b.lastDelta))
	p = binary.BigEndian.AppendUint64(p, uint64(b.first))
	p = binary.BigEndian.AppendUint64(p, uint64(b.max))
	p = binary.BigEndian.AppendUint64(p, uint64(b.w.ID))
	p = binary.BigEndian.AppendUint16(p, uint16(b.w.Epoch))
	p = binary.BigEndian.AppendUint32(p, uint32(b.w.Sequence))
	p = binary.BigEndian.AppendUint32(p, uint32(b.count))
	p = append(p, b.records...)
	crc := crc32.Checksum(p[behindCRC:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(p[upToCRC:], crc+b.crc)
	return p
}

// Span is how many offsets a batch takes in a log, by its last offset delta.
func Span(raw []byte) int64 { return int64(int32(binary.BigEndian.Uint32(raw[23:]))) + 1 }

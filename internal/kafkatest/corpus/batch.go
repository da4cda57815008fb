package corpus

import (
	"encoding/binary"
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
const transactional = 1 << 4

// Compression types, as in the attributes.
const (
	None = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// Sizes of the parts of a batch, in bytes.
const (
	overhead  = 61 // before the records
	upToSize  = 12 // the base offset, and the size itself
	upToCRC   = 17
	behindCRC = 21
)

// Batch is a batch of format 2, field by field. Its fields may contradict its records.
//
//	 0 base offset   8 | 21 attributes        2 | 43 producer ID    8
//	 8 size          4 | 23 last offset delta 4 | 51 producer epoch 2
//	12 leader epoch  4 | 27 first timestamp   8 | 53 base sequence  4
//	16 magic         1 | 35 max timestamp     8 | 57 record count   4
//	17 CRC           4 |                        | 61 records
type Batch struct {
	Base        int64
	LeaderEpoch int32
	Magic       byte
	Attributes  int16
	LastDelta   int32
	First, Max  int64
	Writer      Writer
	Count       int32
	Records     []byte // compressed, if the attributes say so
	CRC         uint32 // difference from the correct one
	Size        int32  // difference from the correct one
}

// NewBatch is a sound batch of count records.
func NewBatch(w Writer, codec int16, count int, records []byte) *Batch {
	b := &Batch{
		LeaderEpoch: -1, Magic: 2, Attributes: codec, LastDelta: int32(count - 1), First: w.At, Max: w.At, Writer: w,
		Count: int32(count), Records: records,
	}
	if w.Transactional {
		b.Attributes |= transactional
	}
	return b
}

// Bytes are the batch as it is on the wire.
func (b *Batch) Bytes() []byte {
	p := binary.BigEndian.AppendUint64(make([]byte, 0, overhead+len(b.Records)), uint64(b.Base))
	p = binary.BigEndian.AppendUint32(p, uint32(overhead-upToSize+len(b.Records))+uint32(b.Size))
	p = binary.BigEndian.AppendUint32(p, uint32(b.LeaderEpoch))
	p = append(p, b.Magic, 0, 0, 0, 0)
	p = binary.BigEndian.AppendUint16(p, uint16(b.Attributes))
	p = binary.BigEndian.AppendUint32(p, uint32(b.LastDelta))
	p = binary.BigEndian.AppendUint64(p, uint64(b.First))
	p = binary.BigEndian.AppendUint64(p, uint64(b.Max))
	p = binary.BigEndian.AppendUint64(p, uint64(b.Writer.ID))
	p = binary.BigEndian.AppendUint16(p, uint16(b.Writer.Epoch))
	p = binary.BigEndian.AppendUint32(p, uint32(b.Writer.Sequence))
	p = binary.BigEndian.AppendUint32(p, uint32(b.Count))
	p = append(p, b.Records...)
	binary.BigEndian.PutUint32(p[upToCRC:], checksum(p)+b.CRC)
	return p
}

// Span is how many offsets a batch takes in a log, by its last offset delta.
func Span(raw []byte) int64 { return int64(int32(binary.BigEndian.Uint32(raw[23:]))) + 1 }

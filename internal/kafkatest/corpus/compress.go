package corpus

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is a compression type with its name.
type Codec struct {
	Name string
	ID   int16
}

// Codecs are all of them.
func Codecs() []Codec {
	return []Codec{{"none", None}, {"gzip", Gzip}, {"snappy", Snappy}, {"lz4", LZ4}, {"zstd", Zstd}}
}

// Compress compresses as Java's producer does: gzip, snappy with xerial's framing, lz4 in blocks of 64 KiB without
// checksums, zstd with a content checksum.
func Compress(codec int16, p []byte) []byte {
	switch codec {
	case Gzip:
		return GzipMember(p, gzip.DefaultCompression)
	case Snappy:
		return Xerial(p, 32<<10)
	case LZ4:
		return LZ4Frame(p, lz4.ChecksumOption(false), lz4.BlockSizeOption(lz4.Block64Kb))
	case Zstd:
		return ZstdEncoded(p, zstd.WithEncoderCRC(false))
	}
	return p
}

// GzipMember is p at a level.
func GzipMember(p []byte, level int) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, level)
	must(err)
	_, err = w.Write(p)
	must(err)
	must(w.Close())
	return b.Bytes()
}

// Xerial is p in xerial's framing: a magic, versions 1 and 1, and blocks, each behind its size.
func Xerial(p []byte, block int) []byte {
	b := append([]byte("\x82SNAPPY\x00"), 0, 0, 0, 1, 0, 0, 0, 1)
	for len(p) > 0 {
		n := min(block, len(p))
		z := snappy.Encode(nil, p[:n])
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(z))), z...)
		p = p[n:]
	}
	return b
}

// LZ4Frame is p in a frame.
func LZ4Frame(p []byte, opts ...lz4.Option) []byte {
	var b bytes.Buffer
	w := lz4.NewWriter(&b)
	must(w.Apply(opts...))
	_, err := w.Write(p)
	must(err)
	must(w.Close())
	return b.Bytes()
}

// ZstdEncoded is p in a frame that says how large it is.
func ZstdEncoded(p []byte, opts ...zstd.EOption) []byte {
	w, err := zstd.NewWriter(nil, append([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, opts...)...)
	must(err)
	defer func() { _ = w.Close() }()
	return w.EncodeAll(p, nil)
}

// must ends the program. All writes here go to memory.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

package corpus

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"math/bits"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// compress compresses as Java's producer does: gzip, snappy with xerial's framing, lz4 in blocks of 64 KiB without
// checksums, zstd with a content checksum.
func compress(codec int16, p []byte) []byte {
	switch codec {
	case gzipped:
		return gzipMember(p, gzip.DefaultCompression)
	case snappied:
		return xerial(p, 32<<10)
	case lz4ed:
		return lz4Frame(p, lz4.ChecksumOption(false), lz4.BlockSizeOption(lz4.Block64Kb))
	case zstded:
		return zstdEncoded(p, zstd.WithEncoderCRC(false))
	}
	return p
}

func gzipMember(p []byte, level int) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, level)
	must(err)
	_, err = w.Write(p)
	must(err)
	must(w.Close())
	return b.Bytes()
}

// xerial is p in xerial's framing: a magic, versions 1 and 1, and blocks, each behind its size.
func xerial(p []byte, block int) []byte {
	b := append([]byte("\x82SNAPPY\x00"), 0, 0, 0, 1, 0, 0, 0, 1)
	for len(p) > 0 {
		n := min(block, len(p))
		b = append(b, sizedBlock(snappy.Encode(nil, p[:n]))...)
		p = p[n:]
	}
	return b
}

func sizedBlock(p []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
}

func lz4Frame(p []byte, opts ...lz4.Option) []byte {
	var b bytes.Buffer
	w := lz4.NewWriter(&b)
	must(w.Apply(opts...))
	_, err := w.Write(p)
	must(err)
	must(w.Close())
	return b.Bytes()
}

// lz4Raw is a frame of one uncompressed block, with these flags; between are the bytes behind the two bytes of flags.
func lz4Raw(flags, blocks byte, between, p []byte) []byte {
	descriptor := append([]byte{flags, blocks}, between...)
	b := append([]byte{0x04, 0x22, 0x4d, 0x18}, descriptor...)
	b = append(b, byte(xxh32(descriptor)>>8))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p))|1<<31)
	b = append(b, p...)
	return append(b, 0, 0, 0, 0)
}

// xxh32 is the hash of less than 16 bytes with seed 0.
func xxh32(p []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := uint32(p5) + uint32(len(p))
	for ; len(p) >= 4; p = p[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(p)*p3, 17) * p4
	}
	for _, c := range p {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}

func zstdEncoded(p []byte, opts ...zstd.EOption) []byte {
	w, err := zstd.NewWriter(nil, append([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, opts...)...)
	must(err)
	defer func() { _ = w.Close() }()
	return w.EncodeAll(p, nil)
}

// zstdStream is a frame that does not say how large its content is.
func zstdStream(p []byte, opts ...zstd.EOption) []byte {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, append([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, opts...)...)
	must(err)
	half := len(p) / 2
	for _, part := range [][]byte{p[:half], p[half:]} {
		_, err = w.Write(part)
		must(err)
		must(w.Flush())
	}
	must(w.Close())
	return b.Bytes()
}

// zstdRaw is a frame of raw blocks that names a window of 1<<log bytes, and eighths of it more.
func zstdRaw(log, eighths int, p []byte) []byte {
	return zstdBlocks([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, byte(log-10)<<3 | byte(eighths)}, p)
}

// zstdSingle is a single-segment frame of raw blocks that claims this size of its content.
func zstdSingle(claimed int, p []byte) []byte {
	return zstdBlocks(binary.LittleEndian.AppendUint32([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0}, uint32(claimed)), p)
}

// zstdDictionary is a frame that names the dictionary 1.
func zstdDictionary(p []byte) []byte {
	return zstdBlocks([]byte{0x28, 0xb5, 0x2f, 0xfd, 1, 0, 1}, p)
}

func zstdBlocks(b, p []byte) []byte {
	const most = 1000 // bytes of a block, which may not be larger than a window; the smallest has 1 KiB
	for {
		n := min(most, len(p))
		head := uint32(n) << 3
		if n == len(p) {
			head |= 1
		}
		b = append(append(b, byte(head), byte(head>>8), byte(head>>16)), p[:n]...)
		if p = p[n:]; len(p) == 0 {
			return b
		}
	}
}

// skippable is a skippable frame.
func skippable(p []byte) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte{0x53, 0x2a, 0x4d, 0x18}, uint32(len(p))), p...)
}

// must ends the program. All writes here go to memory.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

package batches

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/klauspost/compress/zstd"
)

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

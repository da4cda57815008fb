package corpus

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

var garbage = []byte("trailing garbage")

// soundCases are batches of ordinary producers.
func soundCases() (cases []Case) {
	for _, c := range codecs() {
		cases = append(cases,
			of("sound: 3 records, "+c.name, c.id, 3, func() []byte { return records(3) }),
			of("sound: 2000 records, "+c.name, c.id, 2000, func() []byte { return records(2000) }))
	}
	for level := gzip.BestSpeed; level <= gzip.BestCompression; level++ {
		cases = append(cases, raw(fmt.Sprintf("gzip: level %d", level), gzipped, func(p []byte) []byte {
			return gzipMember(p, level)
		}))
	}
	for i, level := range []lz4.CompressionLevel{lz4.Fast, lz4.Level1, lz4.Level5, lz4.Level9} {
		cases = append(cases, raw(fmt.Sprintf("lz4: level %d", []int{0, 1, 5, 9}[i]), lz4ed, func(p []byte) []byte {
			return lz4Frame(p, lz4.CompressionLevelOption(level))
		}))
	}
	for _, level := range []zstd.EncoderLevel{
		zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBetterCompression, zstd.SpeedBestCompression,
	} {
		cases = append(cases, raw("zstd: level "+level.String(), zstded, func(p []byte) []byte {
			return zstdEncoded(p, zstd.WithEncoderLevel(level))
		}))
	}
	return cases
}

// framingCases are frames of gzip, snappy and lz4.
func framingCases() (cases []Case) {
	for _, c := range codecs()[1:] {
		c := c
		cases = append(cases,
			raw(c.name+": bytes behind the end", c.id, func(p []byte) []byte {
				return append(compress(c.id, p), garbage...)
			}),
			raw(c.name+": one byte behind the end", c.id, func(p []byte) []byte {
				return append(compress(c.id, p), 0)
			}),
			raw(c.name+": zeros behind the end", c.id, func(p []byte) []byte {
				return append(compress(c.id, p), make([]byte, 20)...)
			}),
			raw(c.name+": twice", c.id, func(p []byte) []byte {
				return append(compress(c.id, p), compress(c.id, p)...)
			}),
			raw(c.name+": records in two parts", c.id, func(p []byte) []byte {
				return append(compress(c.id, p[:len(p)/2]), compress(c.id, p[len(p)/2:])...)
			}),
			raw(c.name+": an empty part before", c.id, func(p []byte) []byte {
				return append(compress(c.id, nil), compress(c.id, p)...)
			}),
			raw(c.name+": cut in the middle", c.id, func(p []byte) []byte {
				z := compress(c.id, p)
				return z[:len(z)/2]
			}),
			raw(c.name+": last byte missing", c.id, func(p []byte) []byte {
				z := compress(c.id, p)
				return z[:len(z)-1]
			}),
			raw(c.name+": last 4 bytes missing", c.id, func(p []byte) []byte {
				z := compress(c.id, p)
				return z[:len(z)-4]
			}),
			raw(c.name+": last 8 bytes missing", c.id, func(p []byte) []byte {
				z := compress(c.id, p)
				return z[:len(z)-8]
			}),
			raw(c.name+": a bit changed in the middle", c.id, func(p []byte) []byte {
				z := compress(c.id, p)
				z[len(z)/2] ^= 0x10
				return z
			}),
			raw(c.name+": nothing at all", c.id, func([]byte) []byte { return nil }),
			raw(c.name+": not compressed at all", c.id, func(p []byte) []byte { return p }),
		)
	}
	return append(cases,
		raw("gzip: wrong checksum", gzipped, func(p []byte) []byte {
			z := compress(gzipped, p)
			z[len(z)-8]++
			return z
		}),
		raw("gzip: wrong size", gzipped, func(p []byte) []byte { z := compress(gzipped, p); z[len(z)-4]++; return z }),
		raw("gzip: name, comment and extra field", gzipped, gzipWithNames),
		raw("gzip: header checksum", gzipped, func(p []byte) []byte { return gzipFlag(p, 2, []byte{0xde, 0xad}) }),
		raw("gzip: reserved flag", gzipped, func(p []byte) []byte { return gzipFlag(p, 0x80, nil) }),
		raw("snappy: raw, as librdkafka writes it", snappied, func(p []byte) []byte { return snappy.Encode(nil, p) }),
		raw("snappy: raw, bytes behind the end", snappied, func(p []byte) []byte {
			return append(snappy.Encode(nil, p), garbage...)
		}),
		raw("snappy: raw, claims 2 GiB", snappied, func([]byte) []byte {
			return append(binary.AppendUvarint(nil, 1<<31-1), 0)
		}),
		raw("snappy: xerial, blocks of 10 bytes", snappied, func(p []byte) []byte { return xerial(p, 10) }),
		raw("snappy: xerial, version 2", snappied, func(p []byte) []byte { z := xerial(p, 100); z[11] = 2; return z }),
		raw("snappy: xerial, compatible with version 2", snappied, func(p []byte) []byte {
			z := xerial(p, 100)
			z[15] = 2
			return z
		}),
		raw("snappy: xerial, an empty block before", snappied, func(p []byte) []byte {
			z := xerial(p, 100)
			return append(append(bytes.Clone(z[:16]), sizedBlock(snappy.Encode(nil, nil))...), z[16:]...)
		}),
		raw("snappy: xerial, a block of size 0 before", snappied, func(p []byte) []byte {
			z := xerial(p, 100)
			return append(append(bytes.Clone(z[:16]), 0, 0, 0, 0), z[16:]...)
		}),
		raw("snappy: xerial, header again between blocks", snappied, func(p []byte) []byte {
			return append(xerial(p[:20], 100), xerial(p[20:], 100)...)
		}),
		raw("snappy: xerial, negative size of a block", snappied, func(p []byte) []byte {
			return append(xerial(p, 100), 0xff, 0xff, 0xff, 0xf0)
		}),
		raw("snappy: xerial, a block claims 1 GiB", snappied, func(p []byte) []byte {
			return append(xerial(p, 100), 0x40, 0, 0, 0)
		}),
		raw("lz4: checksum of the content", lz4ed, func(p []byte) []byte {
			return lz4Frame(p, lz4.ChecksumOption(true))
		}),
		raw("lz4: wrong checksum of the content", lz4ed, func(p []byte) []byte {
			z := lz4Frame(p, lz4.ChecksumOption(true))
			z[len(z)-1]++
			return z
		}),
		raw("lz4: checksums of blocks", lz4ed, func(p []byte) []byte {
			return lz4Frame(p, lz4.ChecksumOption(false), lz4.BlockChecksumOption(true))
		}),
		raw("lz4: wrong checksum of a block", lz4ed, func(p []byte) []byte {
			z := lz4Frame(p, lz4.ChecksumOption(false), lz4.BlockChecksumOption(true))
			z[len(z)-5]++
			return z
		}),
		raw("lz4: wrong checksum of the header", lz4ed, func(p []byte) []byte {
			z := compress(lz4ed, p)
			z[6]++
			return z
		}),
		raw("lz4: size of the content", lz4ed, func(p []byte) []byte {
			return lz4Raw(0x68, 0x40, binary.LittleEndian.AppendUint64(nil, uint64(len(p))), p)
		}),
		raw("lz4: wrong size of the content", lz4ed, func(p []byte) []byte {
			return lz4Raw(0x68, 0x40, binary.LittleEndian.AppendUint64(nil, 7), p)
		}),
		raw("lz4: a raw block", lz4ed, func(p []byte) []byte { return lz4Raw(0x60, 0x40, nil, p) }),
		raw("lz4: blocks that depend on each other", lz4ed, func(p []byte) []byte {
			return lz4Raw(0x40, 0x40, nil, p)
		}),
		raw("lz4: dictionary", lz4ed, func(p []byte) []byte { return lz4Raw(0x61, 0x40, []byte{1, 0, 0, 0}, p) }),
		raw("lz4: version 2", lz4ed, func(p []byte) []byte { return lz4Raw(0xa0, 0x40, nil, p) }),
		raw("lz4: reserved bits", lz4ed, func(p []byte) []byte { return lz4Raw(0x62, 0x4f, nil, p) }),
		raw("lz4: blocks of 4 MiB", lz4ed, func(p []byte) []byte {
			return lz4Frame(p, lz4.ChecksumOption(false), lz4.BlockSizeOption(lz4.Block4Mb))
		}),
		raw("lz4: legacy frame", lz4ed, func(p []byte) []byte { return lz4Frame(p, lz4.LegacyOption(true)) }),
		raw("lz4: skippable frame before", lz4ed, func(p []byte) []byte {
			return append(skippable(garbage), compress(lz4ed, p)...)
		}),
		raw("lz4: skippable frame behind", lz4ed, func(p []byte) []byte {
			return append(compress(lz4ed, p), skippable(garbage)...)
		}),
		raw("lz4: no end mark", lz4ed, func(p []byte) []byte { z := compress(lz4ed, p); return z[:len(z)-4] }),
	)
}

func gzipWithNames(p []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Name, w.Comment, w.Extra = "name", "comment", []byte("extra")
	_, err := w.Write(p)
	must(err)
	must(w.Close())
	return b.Bytes()
}

// gzipFlag is a member with a flag set and its field behind the header.
func gzipFlag(p []byte, flag byte, behind []byte) []byte {
	z := compress(gzipped, p)
	z[3] |= flag
	return append(append(bytes.Clone(z[:10]), behind...), z[10:]...)
}

// zstdCases are frames of zstd.
func zstdCases() (cases []Case) {
	for _, log := range []int{10, 23, 25, 26, 27, 28, 31, 41} {
		name := fmt.Sprintf("zstd: window of %d MiB", max(0, 1<<log>>20))
		if log == 10 {
			name = "zstd: window of 1 KiB"
		}
		cases = append(cases, raw(name, zstded, func(p []byte) []byte { return zstdRaw(log, 0, p) }))
	}
	for _, mib := range []int{8, 32, 64, 128} {
		name := fmt.Sprintf("zstd: window of %d MiB, compressed", mib)
		cases = append(cases, raw(name, zstded, func(p []byte) []byte {
			return zstdStream(p, zstd.WithWindowSize(mib<<20), zstd.WithSingleSegment(false))
		}))
	}
	return append(cases,
		raw("zstd: window of 72 MiB", zstded, func(p []byte) []byte { return zstdRaw(26, 1, p) }),
		raw("zstd: window of 144 MiB", zstded, func(p []byte) []byte { return zstdRaw(27, 1, p) }),
		raw("zstd: single segment", zstded, func(p []byte) []byte { return zstdSingle(len(p), p) }),
		raw("zstd: single segment that claims 100 MiB", zstded, func(p []byte) []byte {
			return zstdSingle(100<<20, p)
		}),
		raw("zstd: single segment that claims 1 GiB", zstded, func(p []byte) []byte { return zstdSingle(1<<30, p) }),
		raw("zstd: single segment that claims one byte too many", zstded, func(p []byte) []byte {
			return zstdSingle(len(p)+1, p)
		}),
		raw("zstd: single segment that claims one byte too few", zstded, func(p []byte) []byte {
			return zstdSingle(len(p)-1, p)
		}),
		raw("zstd: checksum of the content", zstded, func(p []byte) []byte {
			return zstdEncoded(p, zstd.WithEncoderCRC(true))
		}),
		raw("zstd: wrong checksum of the content", zstded, func(p []byte) []byte {
			z := zstdEncoded(p, zstd.WithEncoderCRC(true))
			z[len(z)-1]++
			return z
		}),
		raw("zstd: no size of the content, two blocks", zstded, func(p []byte) []byte { return zstdStream(p) }),
		raw("zstd: three frames", zstded, func(p []byte) []byte {
			return append(append(zstdRaw(20, 0, p[:9]), zstdRaw(27, 0, p[9:20])...), zstdSingle(len(p)-20, p[20:])...)
		}),
		raw("zstd: second frame with a window of 128 MiB", zstded, func(p []byte) []byte {
			return append(zstdRaw(20, 0, p[:9]), zstdRaw(27, 0, p[9:])...)
		}),
		raw("zstd: second frame with a window of 256 MiB, behind the records", zstded, func(p []byte) []byte {
			return append(zstdRaw(20, 0, p), zstdRaw(28, 0, p)...)
		}),
		raw("zstd: skippable frame before", zstded, func(p []byte) []byte {
			return append(skippable(garbage), compress(zstded, p)...)
		}),
		raw("zstd: skippable frame behind", zstded, func(p []byte) []byte {
			return append(compress(zstded, p), skippable(garbage)...)
		}),
		raw("zstd: skippable frame behind, cut", zstded, func(p []byte) []byte {
			return append(compress(zstded, p), skippable(garbage)[:12]...)
		}),
		raw("zstd: skippable frame in between", zstded, func(p []byte) []byte {
			return append(append(zstdRaw(20, 0, p[:9]), skippable(garbage)...), zstdRaw(20, 0, p[9:])...)
		}),
		raw("zstd: names a dictionary", zstded, zstdDictionary),
		raw("zstd: reserved bit", zstded, func(p []byte) []byte { z := zstdRaw(20, 0, p); z[4] |= 8; return z }),
		raw("zstd: unused bit", zstded, func(p []byte) []byte { z := zstdRaw(20, 0, p); z[4] |= 16; return z }),
		raw("zstd: reserved block type behind the records", zstded, func(p []byte) []byte {
			z := zstdRaw(20, 0, p)
			z[6] &^= 1 // not the last block
			return append(z, 7, 0, 0)
		}),
		raw("zstd: no last block", zstded, func(p []byte) []byte { z := zstdRaw(20, 0, p); z[6] &^= 1; return z }),
	)
}

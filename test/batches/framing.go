package batches

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
)

// soundCases are batches of ordinary producers.
func soundCases() (cases []corpus.Case) {
	for _, c := range corpus.Codecs() {
		cases = append(cases,
			corpus.Of("sound: 3 records, "+c.Name, c.ID, 3, func() []byte { return corpus.Records(3) }))
	}
	for level := gzip.BestSpeed; level <= gzip.BestCompression; level++ {
		cases = append(cases, raw(fmt.Sprintf("gzip: level %d", level), corpus.Gzip, func(p []byte) []byte {
			return corpus.GzipMember(p, level)
		}))
	}
	for i, level := range []lz4.CompressionLevel{lz4.Fast, lz4.Level1, lz4.Level5, lz4.Level9} {
		name := fmt.Sprintf("lz4: level %d", []int{0, 1, 5, 9}[i])
		cases = append(cases, raw(name, corpus.LZ4, func(p []byte) []byte {
			return corpus.LZ4Frame(p, lz4.CompressionLevelOption(level))
		}))
	}
	for _, level := range []zstd.EncoderLevel{
		zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBetterCompression, zstd.SpeedBestCompression,
	} {
		cases = append(cases, raw("zstd: level "+level.String(), corpus.Zstd, func(p []byte) []byte {
			return corpus.ZstdEncoded(p, zstd.WithEncoderLevel(level))
		}))
	}
	return cases
}

// framingCases are frames of gzip, snappy and lz4.
func framingCases() (cases []corpus.Case) {
	for _, c := range corpus.Codecs()[1:] {
		cases = append(cases,
			raw(c.Name+": bytes behind the end", c.ID, func(p []byte) []byte {
				return append(corpus.Compress(c.ID, p), garbage...)
			}),
			raw(c.Name+": one byte behind the end", c.ID, func(p []byte) []byte {
				return append(corpus.Compress(c.ID, p), 0)
			}),
			raw(c.Name+": zeros behind the end", c.ID, func(p []byte) []byte {
				return append(corpus.Compress(c.ID, p), make([]byte, 20)...)
			}),
			raw(c.Name+": twice", c.ID, func(p []byte) []byte {
				return append(corpus.Compress(c.ID, p), corpus.Compress(c.ID, p)...)
			}),
			raw(c.Name+": records in two parts", c.ID, func(p []byte) []byte {
				return append(corpus.Compress(c.ID, p[:len(p)/2]), corpus.Compress(c.ID, p[len(p)/2:])...)
			}),
			raw(c.Name+": an empty part before", c.ID, func(p []byte) []byte {
				return append(corpus.Compress(c.ID, nil), corpus.Compress(c.ID, p)...)
			}),
			raw(c.Name+": cut in the middle", c.ID, func(p []byte) []byte {
				z := corpus.Compress(c.ID, p)
				return z[:len(z)/2]
			}),
			raw(c.Name+": last byte missing", c.ID, func(p []byte) []byte {
				z := corpus.Compress(c.ID, p)
				return z[:len(z)-1]
			}),
			raw(c.Name+": last 4 bytes missing", c.ID, func(p []byte) []byte {
				z := corpus.Compress(c.ID, p)
				return z[:len(z)-4]
			}),
			raw(c.Name+": last 8 bytes missing", c.ID, func(p []byte) []byte {
				z := corpus.Compress(c.ID, p)
				return z[:len(z)-8]
			}),
			raw(c.Name+": a bit changed in the middle", c.ID, func(p []byte) []byte {
				z := corpus.Compress(c.ID, p)
				z[len(z)/2] ^= 0x10
				return z
			}),
			raw(c.Name+": nothing at all", c.ID, func([]byte) []byte { return nil }),
			raw(c.Name+": not compressed at all", c.ID, func(p []byte) []byte { return p }),
		)
	}
	return append(cases,
		raw("gzip: wrong checksum", corpus.Gzip, func(p []byte) []byte {
			z := corpus.Compress(corpus.Gzip, p)
			z[len(z)-8]++
			return z
		}),
		raw("gzip: wrong size", corpus.Gzip, func(p []byte) []byte {
			z := corpus.Compress(corpus.Gzip, p)
			z[len(z)-4]++
			return z
		}),
		raw("gzip: name, comment and extra field", corpus.Gzip, gzipWithNames),
		raw("gzip: header checksum", corpus.Gzip, func(p []byte) []byte {
			return gzipFlag(p, 2, []byte{0xde, 0xad})
		}),
		raw("gzip: reserved flag", corpus.Gzip, func(p []byte) []byte { return gzipFlag(p, 0x80, nil) }),
		raw("snappy: raw, as librdkafka writes it", corpus.Snappy, func(p []byte) []byte {
			return snappy.Encode(nil, p)
		}),
		raw("snappy: raw, bytes behind the end", corpus.Snappy, func(p []byte) []byte {
			return append(snappy.Encode(nil, p), garbage...)
		}),
		raw("snappy: raw, claims 2 GiB", corpus.Snappy, func([]byte) []byte {
			return append(binary.AppendUvarint(nil, 1<<31-1), 0)
		}),
		raw("snappy: xerial, blocks of 10 bytes", corpus.Snappy, func(p []byte) []byte {
			return corpus.Xerial(p, 10)
		}),
		raw("snappy: xerial, version 2", corpus.Snappy, func(p []byte) []byte {
			z := corpus.Xerial(p, 100)
			z[11] = 2
			return z
		}),
		raw("snappy: xerial, compatible with version 2", corpus.Snappy, func(p []byte) []byte {
			z := corpus.Xerial(p, 100)
			z[15] = 2
			return z
		}),
		raw("snappy: xerial, an empty block before", corpus.Snappy, func(p []byte) []byte {
			z := corpus.Xerial(p, 100)
			return append(append(bytes.Clone(z[:16]), 0, 0, 0, 1, 0), z[16:]...)
		}),
		raw("snappy: xerial, a block of size 0 before", corpus.Snappy, func(p []byte) []byte {
			z := corpus.Xerial(p, 100)
			return append(append(bytes.Clone(z[:16]), 0, 0, 0, 0), z[16:]...)
		}),
		raw("snappy: xerial, header again between blocks", corpus.Snappy, func(p []byte) []byte {
			return append(corpus.Xerial(p[:20], 100), corpus.Xerial(p[20:], 100)...)
		}),
		raw("snappy: xerial, negative size of a block", corpus.Snappy, func(p []byte) []byte {
			return append(corpus.Xerial(p, 100), 0xff, 0xff, 0xff, 0xf0)
		}),
		raw("snappy: xerial, a block claims 1 GiB", corpus.Snappy, func(p []byte) []byte {
			return append(corpus.Xerial(p, 100), 0x40, 0, 0, 0)
		}),
		raw("lz4: checksum of the content", corpus.LZ4, func(p []byte) []byte {
			return corpus.LZ4Frame(p, lz4.ChecksumOption(true))
		}),
		raw("lz4: wrong checksum of the content", corpus.LZ4, func(p []byte) []byte {
			z := corpus.LZ4Frame(p, lz4.ChecksumOption(true))
			z[len(z)-1]++
			return z
		}),
		raw("lz4: checksums of blocks", corpus.LZ4, func(p []byte) []byte {
			return corpus.LZ4Frame(p, lz4.ChecksumOption(false), lz4.BlockChecksumOption(true))
		}),
		raw("lz4: wrong checksum of a block", corpus.LZ4, func(p []byte) []byte {
			z := corpus.LZ4Frame(p, lz4.ChecksumOption(false), lz4.BlockChecksumOption(true))
			z[len(z)-5]++
			return z
		}),
		raw("lz4: wrong checksum of the header", corpus.LZ4, func(p []byte) []byte {
			z := corpus.Compress(corpus.LZ4, p)
			z[6]++
			return z
		}),
		raw("lz4: size of the content", corpus.LZ4, func(p []byte) []byte {
			return lz4Raw(0x68, 0x40, binary.LittleEndian.AppendUint64(nil, uint64(len(p))), p)
		}),
		raw("lz4: wrong size of the content", corpus.LZ4, func(p []byte) []byte {
			return lz4Raw(0x68, 0x40, binary.LittleEndian.AppendUint64(nil, 7), p)
		}),
		raw("lz4: a raw block", corpus.LZ4, func(p []byte) []byte { return lz4Raw(0x60, 0x40, nil, p) }),
		raw("lz4: blocks that depend on each other", corpus.LZ4, func(p []byte) []byte {
			return lz4Raw(0x40, 0x40, nil, p)
		}),
		raw("lz4: dictionary", corpus.LZ4, func(p []byte) []byte {
			return lz4Raw(0x61, 0x40, []byte{1, 0, 0, 0}, p)
		}),
		raw("lz4: version 2", corpus.LZ4, func(p []byte) []byte { return lz4Raw(0xa0, 0x40, nil, p) }),
		raw("lz4: reserved bits", corpus.LZ4, func(p []byte) []byte { return lz4Raw(0x62, 0x4f, nil, p) }),
		raw("lz4: blocks of 4 MiB", corpus.LZ4, func(p []byte) []byte {
			return corpus.LZ4Frame(p, lz4.ChecksumOption(false), lz4.BlockSizeOption(lz4.Block4Mb))
		}),
		raw("lz4: legacy frame", corpus.LZ4, func(p []byte) []byte {
			return corpus.LZ4Frame(p, lz4.LegacyOption(true))
		}),
		raw("lz4: skippable frame before", corpus.LZ4, func(p []byte) []byte {
			return append(skippable(garbage), corpus.Compress(corpus.LZ4, p)...)
		}),
		raw("lz4: skippable frame behind", corpus.LZ4, func(p []byte) []byte {
			return append(corpus.Compress(corpus.LZ4, p), skippable(garbage)...)
		}),
		raw("lz4: no end mark", corpus.LZ4, func(p []byte) []byte {
			z := corpus.Compress(corpus.LZ4, p)
			return z[:len(z)-4]
		}),
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
	z := corpus.Compress(corpus.Gzip, p)
	z[3] |= flag
	return append(append(bytes.Clone(z[:10]), behind...), z[10:]...)
}

// zstdCases are frames of zstd.
func zstdCases() (cases []corpus.Case) {
	for _, log := range []int{10, 23, 25, 26, 27, 28, 31, 41} {
		name := fmt.Sprintf("zstd: window of %d MiB", max(0, 1<<log>>20))
		if log == 10 {
			name = "zstd: window of 1 KiB"
		}
		cases = append(cases, raw(name, corpus.Zstd, func(p []byte) []byte { return zstdRaw(log, 0, p) }))
	}
	for _, mib := range []int{8, 32, 64, 128} {
		name := fmt.Sprintf("zstd: window of %d MiB, compressed", mib)
		cases = append(cases, raw(name, corpus.Zstd, func(p []byte) []byte {
			return zstdStream(p, zstd.WithWindowSize(mib<<20), zstd.WithSingleSegment(false))
		}))
	}
	return append(cases,
		raw("zstd: window of 72 MiB", corpus.Zstd, func(p []byte) []byte { return zstdRaw(26, 1, p) }),
		raw("zstd: window of 144 MiB", corpus.Zstd, func(p []byte) []byte { return zstdRaw(27, 1, p) }),
		raw("zstd: single segment", corpus.Zstd, func(p []byte) []byte { return zstdSingle(len(p), p) }),
		raw("zstd: single segment that claims 100 MiB", corpus.Zstd, func(p []byte) []byte {
			return zstdSingle(100<<20, p)
		}),
		raw("zstd: single segment that claims 1 GiB", corpus.Zstd, func(p []byte) []byte {
			return zstdSingle(1<<30, p)
		}),
		raw("zstd: single segment that claims one byte too many", corpus.Zstd, func(p []byte) []byte {
			return zstdSingle(len(p)+1, p)
		}),
		raw("zstd: single segment that claims one byte too few", corpus.Zstd, func(p []byte) []byte {
			return zstdSingle(len(p)-1, p)
		}),
		raw("zstd: checksum of the content", corpus.Zstd, func(p []byte) []byte {
			return corpus.ZstdEncoded(p, zstd.WithEncoderCRC(true))
		}),
		raw("zstd: wrong checksum of the content", corpus.Zstd, func(p []byte) []byte {
			z := corpus.ZstdEncoded(p, zstd.WithEncoderCRC(true))
			z[len(z)-1]++
			return z
		}),
		raw("zstd: no size of the content, two blocks", corpus.Zstd, func(p []byte) []byte { return zstdStream(p) }),
		raw("zstd: three frames", corpus.Zstd, func(p []byte) []byte {
			return append(append(zstdRaw(20, 0, p[:9]), zstdRaw(27, 0, p[9:20])...), zstdSingle(len(p)-20, p[20:])...)
		}),
		raw("zstd: second frame with a window of 128 MiB", corpus.Zstd, func(p []byte) []byte {
			return append(zstdRaw(20, 0, p[:9]), zstdRaw(27, 0, p[9:])...)
		}),
		raw("zstd: second frame with a window of 256 MiB, behind the records", corpus.Zstd, func(p []byte) []byte {
			return append(zstdRaw(20, 0, p), zstdRaw(28, 0, p)...)
		}),
		raw("zstd: skippable frame before", corpus.Zstd, func(p []byte) []byte {
			return append(skippable(garbage), corpus.Compress(corpus.Zstd, p)...)
		}),
		raw("zstd: skippable frame behind", corpus.Zstd, func(p []byte) []byte {
			return append(corpus.Compress(corpus.Zstd, p), skippable(garbage)...)
		}),
		raw("zstd: skippable frame behind, cut", corpus.Zstd, func(p []byte) []byte {
			return append(corpus.Compress(corpus.Zstd, p), skippable(garbage)[:12]...)
		}),
		raw("zstd: skippable frame in between", corpus.Zstd, func(p []byte) []byte {
			return append(append(zstdRaw(20, 0, p[:9]), skippable(garbage)...), zstdRaw(20, 0, p[9:])...)
		}),
		raw("zstd: names a dictionary", corpus.Zstd, zstdDictionary),
		raw("zstd: reserved bit", corpus.Zstd, func(p []byte) []byte { z := zstdRaw(20, 0, p); z[4] |= 8; return z }),
		raw("zstd: unused bit", corpus.Zstd, func(p []byte) []byte { z := zstdRaw(20, 0, p); z[4] |= 16; return z }),
		raw("zstd: reserved block type behind the records", corpus.Zstd, func(p []byte) []byte {
			z := zstdRaw(20, 0, p)
			z[6] &^= 1 // not the last block
			return append(z, 7, 0, 0)
		}),
		raw("zstd: no last block", corpus.Zstd, func(p []byte) []byte {
			z := zstdRaw(20, 0, p)
			z[6] &^= 1
			return z
		}),
	)
}

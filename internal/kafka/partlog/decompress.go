package partlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// errTooLarge says that a batch decompresses to more than the reader's limit.
var errTooLarge = errors.New("larger than the limit")

const (
	// maxWindow is the largest zstd window, in bytes, that Kafka's own consumer takes: zstd's
	// ZSTD_WINDOWLOG_LIMIT_DEFAULT. Frames of level 22 declare it, however small they are. It costs no memory here,
	// because the output is the window.
	maxWindow = 128 << 20
	// firstTry is the size, in bytes, up to which any batch is decompressed.
	firstTry = 1 << 20
)

// unpacker decompresses batches as leniently as Kafka's own consumer, which stops after the number of records that
// the batch declares and ignores the rest. It is safe for concurrent use.
type unpacker struct {
	zstd    func() *zstd.Decoder
	gzips   sync.Pool // of *gzip.Reader
	lz4s    sync.Pool // of *lz4.Reader
	scratch sync.Pool // of *bytes.Buffer, with firstTry bytes at least
}

// shared serves all readers, so that idle buffers do not pile up for each partition.
var shared = newUnpacker()

func newUnpacker() *unpacker {
	u := &unpacker{
		zstd: sync.OnceValue(func() *zstd.Decoder { return newZstd(0) }),
	}
	u.gzips.New = func() any { return new(gzip.Reader) }
	u.lz4s.New = func() any { return lz4.NewReader(nil) }
	u.scratch.New = func() any { return bytes.NewBuffer(make([]byte, 0, firstTry+spare)) }
	return u
}

// newZstd returns a decoder for this many goroutines at a time, or for as many as there are processors.
func newZstd(concurrency int) *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxWindow), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderConcurrency(concurrency), zstd.WithDecoderLowmem(true), zstd.IgnoreChecksum(true))
	if err != nil {
		panic(err) // an option is out of its range
	}
	return d
}

// unpack decompresses src, to limit bytes at most. An error with an output says why the output ends there. The output
// may still hold all records.
func (u *unpacker) unpack(codec kgo.CompressionCodecType, src []byte, limit int) ([]byte, error) {
	scratch := u.scratch.Get().(*bytes.Buffer)
	defer u.scratch.Put(scratch)
	scratch.Reset()
	switch codec {
	case kgo.CodecGzip:
		return grown(scratch, limit, func(out *bytes.Buffer, limit int) error { return u.gunzip(out, src, limit) })
	case kgo.CodecLz4:
		return grown(scratch, limit, func(out *bytes.Buffer, limit int) error {
			r := u.lz4s.Get().(*lz4.Reader)
			defer u.lz4s.Put(r)
			r.Reset(bytes.NewReader(src))
			return copyTo(out, r, limit)
		})
	case kgo.CodecSnappy:
		return unsnap(src, limit)
	case kgo.CodecZstd:
		return u.unzstd(scratch.AvailableBuffer(), src, limit)
	}
	return nil, fmt.Errorf("unknown compression codec %d", codec)
}

// grown decompresses into the scratch buffer, and if that is too small, from the beginning into larger ones. A buffer
// that grows by itself is twice as large as its contents, and is copied from another one.
func grown(scratch *bytes.Buffer, limit int, decompress func(out *bytes.Buffer, limit int) error) ([]byte, error) {
	size := min(firstTry, limit)
	if err := decompress(scratch, size); size == limit || !errors.Is(err, errTooLarge) {
		return slices.Clone(scratch.Bytes()), err
	}
	for {
		size = min(limit, 4*size)
		out := bytes.NewBuffer(make([]byte, 0, size+spare))
		if err := decompress(out, size); size == limit || !errors.Is(err, errTooLarge) {
			return out.Bytes(), err
		}
	}
}

// spare is how much larger a buffer is than the data copied to it, so that it does not grow.
const spare = 1 + bytes.MinRead

// copyTo reads r to its end, or until limit bytes are in out.
func copyTo(out *bytes.Buffer, r io.Reader, limit int) error {
	_, err := out.ReadFrom(&io.LimitedReader{R: r, N: int64(limit - out.Len() + 1)})
	if out.Len() > limit {
		out.Truncate(limit)
		return errTooLarge
	}
	return err
}

// The flags of a gzip member, and those of them that RFC 1952 reserves.
const gzipFlags, gzipReserved = 3, 0xe0

// gunzip decompresses members one after the other. As in Java, other data behind a member ends the data.
func (u *unpacker) gunzip(out *bytes.Buffer, src []byte, limit int) error {
	r := u.gzips.Get().(*gzip.Reader)
	defer u.gzips.Put(r)
	if len(src) > gzipFlags && src[gzipFlags]&gzipReserved != 0 { // Java ignores them
		src = slices.Clone(src)
		src[gzipFlags] &^= gzipReserved
	}
	in := bytes.NewReader(src)
	for first := true; in.Len() > 0; first = false {
		if err := r.Reset(in); err != nil {
			if !first {
				return nil
			}
			return err
		}
		r.Multistream(false)
		if err := copyTo(out, r, limit); err != nil {
			return err
		}
	}
	return nil
}

// unzstd decompresses into the scratch buffer, if that is large enough. A frame may declare its decompressed size;
// otherwise larger buffers are tried one after the other. They get a decoder of their own, because a decoder keeps the
// buffer that it wrote to last, and the shared one is as many as there are processors.
func (u *unpacker) unzstd(scratch, src []byte, limit int) ([]byte, error) {
	size := cap(scratch)
	if h := (zstd.Header{}); h.Decode(src) == nil && h.HasFCS {
		if h.FrameContentSize > uint64(limit) {
			return nil, errTooLarge
		}
		size = max(size, int(h.FrameContentSize))
	}
	for size = min(size, limit); ; size = min(limit, 4*size) {
		dst, d := scratch, u.zstd()
		if size > cap(scratch) {
			dst, d = make([]byte, 0, size), newZstd(1)
			defer d.Close()
		}
		out, err := d.DecodeAll(src, dst[:0:size])
		switch {
		case errors.Is(err, zstd.ErrDecoderSizeExceeded) && size < limit:
			continue
		case errors.Is(err, zstd.ErrDecoderSizeExceeded):
			out, err = out[:min(len(out), limit)], errTooLarge
		}
		if size <= cap(scratch) {
			out = slices.Clone(out)
		}
		return out, err
	}
}

// xerial frames snappy blocks as snappy-java does: this, two versions of four bytes each, and then blocks behind their
// lengths.
const (
	xerial       = "\x82SNAPPY\x00"
	xerialHeader = len(xerial) + 8
)

// unsnap decompresses one snappy block, or snappy-java's framing. Another such header may follow the blocks. Fewer
// bytes than a length has are ignored, as snappy-java does.
func unsnap(src []byte, limit int) (out []byte, err error) {
	if !bytes.HasPrefix(src, []byte(xerial)) || len(src) < xerialHeader {
		return snap(nil, src, limit)
	}
	for rest := src[xerialHeader:]; len(rest) >= 4; {
		if bytes.HasPrefix(rest, []byte(xerial)) && len(rest) >= xerialHeader {
			rest = rest[xerialHeader:]
			continue
		}
		size := binary.BigEndian.Uint32(rest)
		if rest = rest[4:]; uint64(size) > uint64(len(rest)) {
			return out, io.ErrUnexpectedEOF
		}
		if out, err = snap(out, rest[:size], limit); err != nil {
			return out, err
		}
		rest = rest[size:]
	}
	return out, nil
}

// snap appends one decompressed block.
func snap(out, block []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return out, err
	}
	if n > limit-len(out) {
		return out, errTooLarge
	}
	at := len(out)
	out = slices.Grow(out, n)[:at+n]
	if _, err := s2.Decode(out[at:], block); err != nil {
		return out[:at], err
	}
	return out, nil
}

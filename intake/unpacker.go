package intake

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// maxUnpacked is how much of a fetch is decompressed before it is handed over:
	// the batch that reaches it is the last one, the rest is fetched again. The
	// brokers' limits count compressed bytes, and there are codecs that make 30,000
	// bytes of one.
	maxUnpacked = 1 << 20
	// maxUnpackedBatch is what a batch may decompress to, unless the request topic
	// takes records that are larger. One that would be larger is refused.
	maxUnpackedBatch = 32 << 20
)

// errNoRoom is why a batch is not decompressed now. It will be after the next
// Reset.
var errNoRoom = errors.New("enough is decompressed")

// Unpacker decompresses batches, each up to a limit of its own, and only so many
// until the next Reset. It implements kgo.Decompressor; a batch beyond its limit
// is a kgo.ErrMaxDecompress, of which a kgo.Client's polls make an
// ErrDecompressTooLarge with the batch's offsets.
type Unpacker struct {
	bounded kgo.Decompressor
	used    atomic.Int64
	refused atomic.Int64 // when a batch was too large last, Unix nanoseconds; 0: never
}

// newUnpacker returns one for topics whose largest record has so many bytes.
func newUnpacker(largest int) (*Unpacker, error) {
	// kgo bounds the decompressor of a client, and none that is made alone.
	cl, err := kgo.NewClient(kgo.MaxDecompressBatchBytes(max(largest, maxUnpackedBatch)))
	if err != nil {
		return nil, fmt.Errorf("build a decompressor: %w", err)
	}
	defer cl.Close()
	return &Unpacker{bounded: cl.OptValue(kgo.WithDecompressor).(kgo.Decompressor)}, nil
}

// Decompress implements kgo.Decompressor.
func (u *Unpacker) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if u.used.Load() >= maxUnpacked {
		return nil, errNoRoom
	}
	out, err := u.bounded.Decompress(src, codec)
	u.used.Add(int64(len(out)))
	if errors.Is(err, kgo.ErrMaxDecompress) {
		u.refused.Store(time.Now().UnixNano())
	}
	return out, err
}

// refusedAt is when a batch was refused last, as far as nobody has dealt with that.
func (u *Unpacker) refusedAt() (at time.Time) {
	if n := u.refused.Load(); n != 0 {
		at = time.Unix(0, n)
	}
	return at
}

// Reset makes room again. What is decompressed and not handed over yet is no more
// than what one Reset allows.
func (u *Unpacker) Reset() { u.used.Store(0) }

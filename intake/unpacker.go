package intake

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// maxUnpacked bounds what is decompressed of a fetch before it is delivered. The batch that
	// reaches it is the last one; the rest is fetched again. The brokers' limits count compressed
	// bytes, and some codecs make 30,000 bytes of one.
	maxUnpacked = 1 << 20
	// maxUnpackedBatch is the size to which a batch may decompress, unless the request topic takes
	// larger records. A larger batch is refused.
	maxUnpackedBatch = 32 << 20
)

// errNoRoom says that a batch is not decompressed before the next Reset.
var errNoRoom = errors.New("enough is decompressed")

// Unpacker decompresses batches. Each batch has a limit, and so has the sum until the next Reset.
// It implements kgo.Decompressor: a batch beyond its limit is a kgo.ErrMaxDecompress, which a
// kgo.Client's poll turns into an ErrDecompressTooLarge with the batch's offsets.
type Unpacker struct {
	bounded kgo.Decompressor
	used    atomic.Int64
	refused atomic.Int64 // when the last batch was too large, Unix nanoseconds; 0: never
}

// newUnpacker returns an Unpacker for topics whose largest record has largest bytes.
func newUnpacker(largest int) (*Unpacker, error) {
	// kgo bounds only the decompressor of a client.
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

// refusedAt is when a batch was last refused, zero if the reader has dealt with it.
func (u *Unpacker) refusedAt() (at time.Time) {
	if n := u.refused.Load(); n != 0 {
		at = time.Unix(0, n)
	}
	return at
}

// Reset makes room again. The data that is decompressed and not delivered yet is at most what one Reset
// allows.
func (u *Unpacker) Reset() { u.used.Store(0) }

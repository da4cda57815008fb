package partlog

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where the fields of a record batch of version 2 are (KIP-98), and the size of the batch's header. The length does not
// count itself, nor what is before it.
const (
	lengthAt          = 8
	epochAt           = 12
	magicAt           = 16
	attributesAt      = 21
	lastOffsetDeltaAt = 23
	producerIDAt      = 43
	batchHeader       = 61

	transactional = 1 << 4 // of the attributes
)

// Aborted reports whether the batch at the position belongs to an aborted
// transaction. It reads only the batch's header, so the batch may have any size, and
// does not move. The position must lie below the last stable offset. Errors are those
// of Next.
func (r *Reader) Aborted(ctx context.Context) (aborted bool, err error) {
	err = r.leader.do(ctx, func(ctx context.Context, leader *kgo.Broker) error {
		resp, err := r.answer(ctx, leader, 0)
		if err != nil {
			return err
		}
		if len(resp.RecordBatches) == 0 {
			r.replica = NoLeader
			return kerr.OffsetNotAvailable // the leader does not show it yet, or again
		}
		aborted, err = r.abortedIn(resp)
		return err
	})
	return aborted && err == nil, err
}

// abortedIn looks for the first batch of an answer in the answer's list of aborted
// transactions. The list has those that reach the position. A transaction of the same
// producer that began at or before the batch is the batch's own.
func (r *Reader) abortedIn(resp *kmsg.FetchResponseTopicPartition) (bool, error) {
	b := resp.RecordBatches
	if len(b) < batchHeader || b[magicAt] != 2 {
		return false, &finalError{fmt.Errorf("decode %v at %d: %d bytes are no batch", r.leader.t, r.position, len(b))}
	}
	first, last := offsetsOf(b)
	if r.position < first || r.position > last {
		return false, &finalError{fmt.Errorf("decode %v at %d: the batch there has the offsets %d to %d", r.leader.t, r.position, first, last)}
	}
	if binary.BigEndian.Uint16(b[attributesAt:])&transactional == 0 {
		return false, nil
	}
	producer := int64(binary.BigEndian.Uint64(b[producerIDAt:]))
	for _, a := range resp.AbortedTransactions {
		if a.ProducerID == producer && a.FirstOffset <= first {
			return true, nil
		}
	}
	return false, nil
}

func offsetsOf(batch []byte) (first, last int64) {
	first = int64(binary.BigEndian.Uint64(batch))
	return first, first + int64(int32(binary.BigEndian.Uint32(batch[lastOffsetDeltaAt:])))
}

// batchEnd is where a batch ends, and its leader epoch.
type batchEnd struct {
	epoch  Epoch
	behind int64
}

// below returns the end of the last of some batches that ends at or before an offset; e if none does.
func (e batchEnd) below(offset int64, batches []byte) batchEnd {
	for b := batches; len(b) >= batchHeader; {
		_, last := offsetsOf(b)
		size := epochAt + int(int32(binary.BigEndian.Uint32(b[lengthAt:])))
		if last >= offset || size < batchHeader || size > len(b) {
			break
		}
		e = batchEnd{EpochOf(int32(binary.BigEndian.Uint32(b[epochAt:]))), last + 1}
		b = b[size:]
	}
	return e
}

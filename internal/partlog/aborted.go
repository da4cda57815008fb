package partlog

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	batchHeader   = 61     // bytes, of a record batch of version 2 (KIP-98)
	lengthFrom    = 12     // bytes at the begin of a batch, which its length does not count
	transactional = 1 << 4 // of a batch's attributes
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
	var b kmsg.RecordBatch
	_ = b.ReadFrom(resp.RecordBatches) // it fills the header before it fails because records are missing
	if len(resp.RecordBatches) < batchHeader || b.Magic != 2 {
		return false, &finalError{fmt.Errorf("decode %v at %d: %d bytes are no batch", r.leader.t, r.position, len(resp.RecordBatches))}
	}
	if last := lastOf(&b); r.position < b.FirstOffset || r.position > last {
		return false, &finalError{fmt.Errorf("decode %v at %d: the batch there has the offsets %d to %d", r.leader.t, r.position, b.FirstOffset, last)}
	}
	return b.Attributes&transactional != 0 && slices.ContainsFunc(resp.AbortedTransactions, func(a kmsg.FetchResponseTopicPartitionAbortedTransaction) bool {
		return a.ProducerID == b.ProducerID && a.FirstOffset <= b.FirstOffset
	}), nil
}

func lastOf(b *kmsg.RecordBatch) int64 { return b.FirstOffset + int64(b.LastOffsetDelta) }

// batchEnd is where a batch ends, and its leader epoch.
type batchEnd struct {
	epoch  Epoch
	behind int64
}

// below returns the end of the last of some batches that ends at or before an offset; e if none does.
func (e batchEnd) below(offset int64, batches []byte) batchEnd {
	var b kmsg.RecordBatch
	for b.ReadFrom(batches) == nil && lastOf(&b) < offset {
		e = batchEnd{EpochOf(b.PartitionLeaderEpoch), lastOf(&b) + 1}
		batches = batches[lengthFrom+int(b.Length):]
	}
	return e
}

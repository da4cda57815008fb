package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// stepperTimeout is the transaction timeout of bare steps.
	stepperTimeout = 30 * time.Second
	// concurrentBackoff is the time before a retry after CONCURRENT_TRANSACTIONS.
	concurrentBackoff = 2 * time.Millisecond
)

// stepper commits bare steps: transactions like the service's, with transactional IDs in turn and one announcement of
// partitions, and nothing around them. It gives up at the first error, because it measures a healthy cluster.
type stepper struct {
	clients []*kgo.Client
	ids     []string
	group   string
	source  string // topic of the offset commits
	topicID [16]byte
	turn    int
}

func (b *bare) newStepper(ctx context.Context, name string) (*stepper, error) {
	s := &stepper{group: b.Name, source: b.In}
	for i := range b.IDs {
		id := fmt.Sprintf("%s-%d", name, i)
		s.ids = append(s.ids, id)
		cl, err := newClient(b.cfg, b.log, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ManualFlushing(),
			kgo.ProducerLinger(0), kgo.MaxBufferedRecords(8*MaxStep),
			kgo.TransactionalID(id), kgo.TransactionTimeout(stepperTimeout),
			kgo.ConcurrentTransactionsBackoff(concurrentBackoff))
		if err == nil {
			s.clients = append(s.clients, cl)
			_, _, err = cl.ProducerID(ctx)
		}
		if err != nil {
			s.close()
			return nil, fmt.Errorf("open producer %s: %w", id, err)
		}
	}
	details, err := kadm.NewClient(s.clients[0]).ListTopics(ctx, b.In)
	if err != nil {
		s.close()
		return nil, fmt.Errorf("look up topic %s: %w", b.In, err)
	}
	s.topicID = details[b.In].ID
	return s, nil
}

func (s *stepper) close() {
	for _, cl := range s.clients {
		cl.Close()
	}
}

// step writes recs and positions in one transaction.
func (s *stepper) step(ctx context.Context, positions map[int32]int64, recs []*kgo.Record) error {
	cl, id := s.clients[s.turn], s.ids[s.turn]
	s.turn = (s.turn + 1) % len(s.clients)
	if err := cl.BeginTransaction(); err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	pid, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("look up the producer ID: %w", err)
	}
	if err := announce(ctx, cl, id, pid, epoch, recs); err != nil {
		return fmt.Errorf("announce partitions: %w", err)
	}
	if err := s.commitPositions(ctx, cl, id, pid, epoch, positions); err != nil {
		return fmt.Errorf("commit offsets in the transaction: %w", err)
	}
	if err := write(ctx, cl, recs); err != nil {
		return err
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("end transaction: %w", err)
	}
	return nil
}

// write produces recs and waits until the brokers have them.
func write(ctx context.Context, cl *kgo.Client, recs []*kgo.Record) error {
	var failure atomic.Pointer[error]
	for _, rec := range recs {
		cl.Produce(ctx, rec, func(_ *kgo.Record, err error) {
			if err != nil {
				failure.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	if failed := failure.Load(); failed != nil {
		return fmt.Errorf("produce: %w", *failed)
	}
	return nil
}

func announce(ctx context.Context, cl *kgo.Client, id string, pid int64, epoch int16, recs []*kgo.Record) error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, pid, epoch
	touched := make(kadm.TopicsSet)
	for _, r := range recs {
		touched.Add(r.Topic, r.Partition)
	}
	for topic, partitions := range touched {
		req.Topics = append(
			req.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: topic,
				Partitions: slices.Collect(maps.Keys(partitions))})
	}
	return retryConcurrent(ctx, func() error {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// commitPositions commits offsets like the service's fence. The group has no members, so the broker does not look one
// up; that saves it little.
func (s *stepper) commitPositions(ctx context.Context, cl *kgo.Client, id string, pid int64, epoch int16,
	positions map[int32]int64) error {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = id, s.group, pid, epoch, -1
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.TopicID = s.source, s.topicID
	for partition, at := range positions {
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = partition, at
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return retryConcurrent(ctx, func() error {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// retryConcurrent repeats do while the last transaction of the transactional ID has not ended.
func retryConcurrent(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, kerr.ConcurrentTransactions) && !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			return err
		}
		if !beats.Sleep(ctx, concurrentBackoff) {
			return err
		}
	}
}

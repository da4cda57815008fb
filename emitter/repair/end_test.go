package repair

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// hanging returns a producer that has left a transaction open on changelog partitions.
func (s *setup) hanging(id string, partitions ...int32) *kgo.Client {
	s.t.Helper()
	cl := s.c.Client(s.t, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(s.t, cl.BeginTransaction())
	for _, p := range partitions {
		if err := cl.ProduceSync(s.ctx,
			&kgo.Record{Topic: s.changelog, Partition: p, Value: []byte(id)}).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
	return cl
}

// toEnd returns the Options for an acquisition of a partition.
func (s *setup) toEnd(partition int32) Options {
	return Options{Client: s.member, Group: s.group, Topic: s.changelog, Partition: partition,
		Logger: slog.New(slog.DiscardHandler)}
}

// End ends only the transactions that a former owner of this group left on the given partition, not those on other
// partitions or of other groups. The fenced producers cannot commit, the others can.
func TestEndEndsOursOnThePartitionAlone(t *testing.T) {
	s := newSetup(t)
	ours := TransactionalIDPrefix(s.group)
	hit := s.hanging(ours+"dead/0/1", 0)
	elsewhere := s.hanging(ours+"other/0/1", 1)
	foreign := s.hanging(TransactionalIDPrefix(s.group+"-2")+"x/0/1", 1)

	n, err := End(s.ctx, s.toEnd(0))
	if n != 1 || err != nil {
		t.Fatalf("ended %d, %v; want 1", n, err)
	}
	if n, err := End(s.ctx, s.toEnd(0)); n != 0 || err != nil {
		t.Errorf("again: ended %d, %v; want nothing to do", n, err)
	}
	if err := hit.EndTransaction(s.ctx, kgo.TryCommit); err == nil {
		t.Error("the former owner has committed after its transaction was ended")
	}
	for name, cl := range map[string]*kgo.Client{"another partition": elsewhere, "another group": foreign} {
		if err := cl.EndTransaction(s.ctx, kgo.TryCommit); err != nil {
			t.Errorf("the transaction of %s was hit: %v", name, err)
		}
	}
	s.nothingIsOpen(0)
}

// A group whose name is a prefix of another's does not end the other's.
func TestEndTellsGroupsApart(t *testing.T) {
	s := newSetup(t)
	for _, group := range []string{s.group + "-2", s.group + "/x"} {
		cl := s.hanging(TransactionalIDPrefix(group)+"p/0/1", 0)
		if n, err := End(s.ctx, s.toEnd(0)); n != 0 || err != nil {
			t.Errorf("group %q: ended %d, %v", group, n, err)
		}
		if err := cl.EndTransaction(s.ctx, kgo.TryCommit); err != nil {
			t.Errorf("group %q: the transaction was hit: %v", group, err)
		}
	}
}

// A transaction that was announced and has produced no record is found too.
func TestEndFindsAnnouncedTransactions(t *testing.T) {
	s := newSetup(t)
	id := TransactionalIDPrefix(s.group) + "p/0/1"
	cl := s.c.Client(t, kgo.TransactionalID(id))
	pid, epoch, err := cl.ProducerID(s.ctx)
	must(t, err)
	announce := kmsg.NewPtrAddPartitionsToTxnRequest()
	announce.TransactionalID, announce.ProducerID, announce.ProducerEpoch = id, pid, epoch
	announce.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: s.changelog, Partitions: []int32{0}}}
	resp, err := announce.RequestWith(s.ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	must(t, err)
	if n, err := End(s.ctx, s.toEnd(0)); n != 1 || err != nil {
		t.Errorf("ended %d, %v; want 1", n, err)
	}
}

// A transaction that blocks the partition and is not ours is reported and left alone.
func TestForeignTransactionIsNamedAndLeftAlone(t *testing.T) {
	s := newSetup(t)
	id := "somebody-else-" + kafkatest.Topic(t)
	cl := s.hanging(id, 0)
	n, err := End(s.ctx, s.toEnd(0))
	if n != 0 || !errors.Is(err, ErrForeignTransaction) || !strings.Contains(err.Error(), id) {
		t.Errorf("ended %d, error %v; want %v naming %s", n, err, ErrForeignTransaction, id)
	}
	if _, err := End(s.ctx, s.toEnd(1)); err != nil {
		t.Errorf("another partition: %v", err)
	}
	if err := cl.EndTransaction(s.ctx, kgo.TryCommit); err != nil {
		t.Errorf("the foreign transaction was hit: %v", err)
	}
}

// The offsets partition that Kafka 4.3.1 (Utils.abs of the group's hash code) chooses for groups, with 50 partitions:
// for hashes above 0, below, and one without an absolute value.
func TestOffsetsPartition(t *testing.T) {
	for group, want := range map[string]int32{
		"waterclock": 41, "g2": 43, "timers": 46, "billing": 9, "orders": 31, "payments-timers": 4,
		"polygenelubricants": 0,
	} {
		if got := offsetsPartition(group, 50); got != want {
			t.Errorf("group %s: partition %d, want %d", group, got, want)
		}
	}
}

// EndAll does not assume that a transaction has ended because its coordinator cannot tell.
func TestEndAllWantsAnAnswerForEachTransaction(t *testing.T) {
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...),
		kgo.TransactionalID(TransactionalIDPrefix("g")+"dead/0/1"), kgo.RequestRetries(0))
	must(t, cl.BeginTransaction())
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t"}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeTransactions}, Err: kerr.CoordinatorLoadInProgress, Count: 1})
	if err := EndAll(t.Context(), cl, "g"); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
		t.Errorf("EndAll: %v, want %v", err, kerr.CoordinatorLoadInProgress)
	}
	if err := EndAll(t.Context(), cl, "g"); err != nil {
		t.Error(err)
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("the transaction could still be committed")
	}
}

package emitter

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// hanging is a producer that has left a transaction open on changelog
// partitions.
func (s *stage) hanging(id string, partitions ...int32) *kgo.Client {
	s.t.Helper()
	cl := s.c.Client(s.t, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		s.t.Fatal(err)
	}
	for _, p := range partitions {
		if err := cl.ProduceSync(s.ctx, &kgo.Record{Topic: s.changelog, Partition: p, Value: []byte(id)}).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
	return cl
}

// toEnd is what an acquisition of a partition asks for.
func (s *stage) toEnd(partition int32) Hanging {
	return Hanging{Client: s.member, Group: s.group, Topic: s.changelog, Partition: partition, Logger: slog.New(slog.DiscardHandler)}
}

// EndHanging ends what a former owner of this group left on the partition
// asked for, and nothing else: not on other partitions, not of other groups. Who
// was hit cannot commit, the others can.
func TestEndHangingEndsOursOnThePartitionAlone(t *testing.T) {
	s := newStage(t)
	ours := TransactionalIDPrefix(s.group)
	hit := s.hanging(ours+"dead/0/1", 0)
	elsewhere := s.hanging(ours+"other/0/1", 1)
	foreign := s.hanging(TransactionalIDPrefix(s.group+"-2")+"x/0/1", 1)

	n, err := EndHanging(s.ctx, s.toEnd(0))
	if n != 1 || err != nil {
		t.Fatalf("ended %d, %v; want 1", n, err)
	}
	if n, err := EndHanging(s.ctx, s.toEnd(0)); n != 0 || err != nil {
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
	s.settled(0, nil, nil)
}

// A group whose name is a prefix of another's does not end the other's.
func TestEndHangingTellsGroupsApart(t *testing.T) {
	s := newStage(t)
	for _, group := range []string{s.group + "-2", s.group + "/x"} {
		cl := s.hanging(TransactionalIDPrefix(group)+"p/0/1", 0)
		if n, err := EndHanging(s.ctx, s.toEnd(0)); n != 0 || err != nil {
			t.Errorf("group %q: ended %d, %v", group, n, err)
		}
		if err := cl.EndTransaction(s.ctx, kgo.TryCommit); err != nil {
			t.Errorf("group %q: the transaction was hit: %v", group, err)
		}
	}
}

// A transaction that was announced and has produced nothing is found too.
func TestEndHangingFindsWhatIsOnlyAnnounced(t *testing.T) {
	s := newStage(t)
	l := oneLane(Options{Group: s.group, Process: "p", TransactionalIDs: 2})
	l.o.Client = []kgo.Opt{kgo.SeedBrokers(s.c.Seeds()...)}
	l.o.TransactionTimeout = testLimit
	l.o.BatchMaxBytes = func(string) int32 { return defaultBatchMaxBytes }
	c, err := newTxnClient(l.o, TransactionalIDPrefix(s.group)+"p/0/1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, _, err := c.ProducerID(s.ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.announce(s.ctx, map[string][]int32{s.changelog: {0}}); err != nil {
		t.Fatal(err)
	}
	if n, err := EndHanging(s.ctx, s.toEnd(0)); n != 1 || err != nil {
		t.Errorf("ended %d, %v; want 1", n, err)
	}
}

// What blocks the partition and is not ours is named, and left alone.
func TestForeignTransactionIsNamedAndLeftAlone(t *testing.T) {
	s := newStage(t)
	id := "somebody-else-" + kafkatest.Topic(t)
	cl := s.hanging(id, 0)
	n, err := EndHanging(s.ctx, s.toEnd(0))
	if n != 0 || !errors.Is(err, ErrForeignTransaction) || !strings.Contains(err.Error(), id) {
		t.Errorf("ended %d, error %v; want %v naming %s", n, err, ErrForeignTransaction, id)
	}
	if _, err := EndHanging(s.ctx, s.toEnd(1)); err != nil {
		t.Errorf("another partition: %v", err)
	}
	if err := cl.EndTransaction(s.ctx, kgo.TryCommit); err != nil {
		t.Errorf("the foreign transaction was hit: %v", err)
	}
}

// Where Kafka 4.3.1 (Utils.abs of the group's hash code) keeps the offsets of
// groups, with 50 partitions: hashes above 0, below, and one without an absolute
// value.
func TestOffsetsPartition(t *testing.T) {
	for group, want := range map[string]int32{
		"waterclock": 41, "g2": 43, "timers": 46, "billing": 9, "orders": 31, "payments-timers": 4, "polygenelubricants": 0,
	} {
		if got := offsetsPartition(group, 50); got != want {
			t.Errorf("group %s: partition %d, want %d", group, got, want)
		}
	}
}

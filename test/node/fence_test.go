package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// stranger writes claims of another group to changelogs.
type stranger struct {
	t  *testing.T
	cl *kgo.Client
}

func newStranger(t *testing.T, seeds []string) *stranger {
	t.Helper()
	cl := kafkatest.Client(t, kgo.SeedBrokers(seeds...), kgo.TransactionalID("waterclock/other/x/0/1"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	return &stranger{t, cl}
}

func (s *stranger) claim(partition int32) {
	s.t.Helper()
	if err := s.cl.BeginTransaction(); err != nil {
		s.t.Fatal(err)
	}
	var rs []*kgo.Record
	for range wire.ClaimRecords {
		c := wire.Claim{Step: "s", Group: "other"}
		rs = append(rs, &kgo.Record{Topic: topics.Changelog(requests), Partition: partition, Key: wire.ClaimKey(),
			Value: c.AppendTo(nil)})
	}
	if err := s.cl.ProduceSync(s.t.Context(), rs...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stranger) end(how kgo.TransactionEndTry) {
	s.t.Helper()
	if err := s.cl.EndTransaction(s.t.Context(), how); err != nil {
		s.t.Fatal(err)
	}
}

// The claim of another group stands before what a running owner writes next: that
// is not committed. If the claim is aborted the owner goes on, while it is open it
// waits, and if it is committed the owner ends.
func TestClaimOfAnotherGroupWhileRunning(t *testing.T) {
	c := fake(t, "c")
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(2, limit)
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...))
	fired := func() float64 { return in.Metric("waterclock_outcomes_total", "outcome", "fired") }
	sent := 0
	fire := func() {
		for range 10 {
			rig.Send(t, cl, rig.Timer(requests, target, fmt.Sprint("id", sent), time.Now()))
			sent++
		}
	}
	s := newStranger(t, c.ListenAddrs())
	all := func() bool { return fired() == float64(sent) }
	fire()
	await.Until(t, limit, "the first fire", all)
	for range 3 {
		for p := range int32(2) {
			s.claim(p)
			s.end(kgo.TryAbort)
		}
		fire()
		await.Until(t, limit, "those behind an aborted claim fire", all)
	}
	before := fired()
	s.claim(0)
	fire()
	await.Until(t, limit, "those of the other partition fire", func() bool { return fired() > before })
	await.For(t, time.Second)
	if all() {
		t.Error("timers behind an open claim have fired")
	}
	s.end(kgo.TryAbort)
	await.Until(t, limit, "those behind the claim fire when it is aborted", all)

	before = fired()
	for p := range int32(2) {
		s.claim(p)
		s.end(kgo.TryCommit)
	}
	fire()
	await.Until(t, limit, "both partitions refuse",
		func() bool { return in.Metric("waterclock_partitions", "state", "failed") == 2 })
	if got := fired(); got != before {
		t.Errorf("%v timers fired behind the claim of another group", got-before)
	}
	if _, body := in.Readyz(); strings.Count(body, "--accept-group") != 2 || len(log.Lines("--accept-group")) < 2 {
		t.Errorf("/readyz says %s", body)
	}
}

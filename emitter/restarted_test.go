package emitter

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// A coordinator is killed when the decision to commit is in its log but not in its followers', and is restarted at
// once. It finds the decision there and writes commit markers to partitions that others lead, while its successor does
// not know it. Its records are visible once, on every partition.
func TestCommitThatDiesWithItsCoordinator(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	// A broker that comes back is not registered before its session has ended. The session
	// is long enough for it to start in that time, even on a slow machine.
	c := kafkatest.Start(t, 3, kafkatest.WithProperty("broker.session.timeout.ms", "20000"))
	s := newSetupOn(t, c, swift)
	w := kafkatest.NewWire()
	t.Cleanup(w.Close)
	// No transaction timeout ends the transaction before the successor is there.
	l := s.laneOf(Options{Client: []kgo.Opt{swift, kgo.Dialer(w.Dial)}, Admin: c.Client(t, swift),
		TransactionTimeout: 5 * time.Minute})
	a := s.source(0, l)
	a.step("before", a.emit("before"))
	a.wants(Committed)
	// The changelog partition is led by the coordinator, so it cannot write a marker there. The target partition is led
	// by another broker.
	coordinator := s.alone()
	s.lead(coordinator, s.changelog)
	s.lead((coordinator+1)%3, s.target)

	end := w.Hold(kmsg.EndTxn.Int16())
	defer end.Release()
	a.step("x", a.emit("once"))
	must(t, end.Wait(s.ctx))
	for i := range c.Seeds() {
		if i != coordinator {
			c.Pause(i)
		}
	}
	// Longer than a follower's fetch waits (replica.fetch.wait.max.ms, 500 ms): nothing that is appended from now on
	// reaches it when it continues.
	await.For(t, 800*time.Millisecond)
	end.Release()
	await.For(t, 150*time.Millisecond) // until the coordinator has appended it
	c.Kill(coordinator)
	for i := range c.Seeds() {
		if i != coordinator {
			c.Resume(i)
		}
	}
	c.Restart(coordinator)
	for o := a.outcome(); o != Committed; o = a.outcome() {
	}
	c.AwaitInSync(t)
	a.step("y", a.emit("next"))
	for o := a.outcome(); o != Committed; o = a.outcome() {
	}
	s.settled(0, []string{"before", "once", "next"}, []string{"before", "x", "y"})
}

// lead makes a broker the leader of the first partition of a topic.
func (s *setup) lead(broker int, topic string) {
	s.t.Helper()
	first := int32(broker)
	kafkatest.AssignFirst(s.t, s.adm, []int32{first, (first + 1) % 3, (first + 2) % 3}, topic)
	elect := make(kadm.TopicsSet)
	elect.Add(topic, 0)
	await.Until(s.t, testLimit/2, fmt.Sprintf("broker %d leads %s/0", broker, topic), func() bool {
		if _, err := s.adm.ElectLeaders(s.ctx, kadm.ElectPreferredReplica, elect); err != nil {
			return false
		}
		now, err := s.adm.ListTopics(s.ctx, topic)
		return err == nil && now[topic].Partitions[0].Leader == first
	})
}

// alone returns the broker that coordinates all transactions: __transaction_state has one partition here.
func (s *setup) alone() int {
	s.t.Helper()
	found := s.adm.FindTxnCoordinators(s.ctx, "any")["any"]
	if found.Err != nil {
		s.t.Fatal(found.Err)
	}
	return int(found.NodeID)
}

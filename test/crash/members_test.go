package crash

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
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// The victim is a process that holds its own Produce requests: its step of firings has been announced and its offset
// commit accepted, and no broker has seen a record of it. The successor must end that transaction, which only the
// announce connects with the partition. Half of the timers whose firing was planned and is now aborted are cancelled
// before the successor acquires the partition; those do not fire.
func TestKilledBetweenOffsetCommitAndFirstProduce(t *testing.T) {
	t.Parallel()
	const n = 200
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	v := rig.StartVictim(t, settings(s))
	v.Ready(2, rig.Patience)
	begun := time.Now()
	heir, log := rig.ServeLogged(t, settings(s), node.Options{})
	heir.Ready(1, rig.Patience)
	v.Ready(1, rig.Patience)
	joined := time.Since(begun)
	victims := owned(s, v)[0]

	want := make(rig.Values)
	due := time.Now().Add(s.Lead)
	var recs, cancels []*kgo.Record
	for i := range n {
		recs = append(recs, s.Valued(fmt.Sprint("t-", i), "1", due))
	}
	s.Send(recs...)
	ended := 0
	for i, r := range recs {
		if r.Partition == victims && i%2 == 0 {
			cancels = append(cancels, s.Cancel(string(r.Key)))
			continue
		}
		want.Add(string(r.Key), "1")
		if r.Partition != victims {
			ended++
		}
	}
	await.Until(s, rig.Patience, "all pending", func() bool {
		return v.Metric("waterclock_pending_timers")+heir.Metric("waterclock_pending_timers") == n
	})
	v.Hold(kmsg.Produce.Int16())
	if time.Now().After(due) {
		t.Fatal("the machine is too slow for this test")
	}
	v.Held()
	v.Kill()
	died := time.Now()
	s.Send(cancels...)
	heir.Ready(2, rig.Patience)
	took := time.Since(died)
	t.Logf("live %s after the kill, session %s", took.Round(time.Millisecond), session)
	// A heartbeat tells the heir of the rebalance; the rest is for the machine: twice what it took for the heir's first
	// share.
	if limit := session + time.Second + session/5 + max(2*time.Second, 2*joined); took > limit {
		t.Errorf("live %s after the kill, want less than %s", took, limit)
	}
	s.Finish(want)
	// By the acquisition, or by the watch over the group's transactions: whoever was first.
	helped := heir.Metric("waterclock_hanging_transactions_ended_total") +
		heir.Metric("waterclock_open_transactions_ended_total")
	if helped < 1 || len(log.Lines("hanging transaction"))+len(log.Lines("open transaction")) == 0 {
		t.Error("no transaction of the victim had to be ended: the test did not make its interleaving")
	}
	t.Logf("%d cancelled after their firing was planned, %d of another partition fired", len(cancels), ended)
}

// A's JoinGroup hangs until the group has gone on without it; kgo then takes a new member ID silently, and the broker
// would accept an offset commit of the new member for a partition that B owns. A's step of firings hangs meanwhile, and
// goes on when A is a member again: in front of its offset commit (nothing but the lease stops it then), or with the
// offset commit on its way under the old member ID (which the group refuses). B has fired them.
func TestJoinHangsThroughAGenerationOldStepIsRefused(t *testing.T) {
	runs.NeedSlow(t) // on a machine that is too slow for sessions the join comes before the step
	t.Parallel()
	for _, step := range []struct {
		hangs string
		at    int16
	}{
		{"before its offset commit", kmsg.AddPartitionsToTxn.Int16()},
		{"with its offset commit on the way", kmsg.TxnOffsetCommit.Int16()},
	} {
		t.Run("step hangs "+step.hangs, func(t *testing.T) {
			t.Parallel()
			const n = 200
			s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
			wire := s.Wire()
			cfg := settings(s)
			cfg.RebalanceTimeout = session
			a, logA := rig.ServeLogged(t, cfg, node.Options{Dial: wire.Dial})
			a.Ready(2, rig.Patience)
			want := s.NearlyDue(&a.Web, n)
			joins, firings := wire.Hold(kmsg.JoinGroup.Int16()), wire.Hold(step.at)
			s.Hit(firings)
			cfgB := settings(s)
			cfgB.RebalanceTimeout = session
			b := rig.Serve(t, cfgB, node.Options{})
			s.Hit(joins)
			t.Logf("B live with both after %s", b.Ready(2, rig.Patience))
			s.Out.WaitFor(n, rig.Patience)
			joins.Release()
			await.Until(s, rig.Patience, "A is a member again", func() bool {
				g := describeGroup(s)
				return len(g.Members) == 2 && g.State == "Stable"
			})
			firings.Release()
			await.Until(s, rig.Patience, "A has noticed", func() bool { return len(logA.Lines("partition lost")) > 0 })
			a.Ready(1, rig.Patience)
			b.Ready(1, rig.Patience)
			for i := range 10 {
				id := fmt.Sprint("again-", i)
				s.Send(s.Valued(id, "1", time.Now()))
				want.Add(id, "1")
			}
			s.Finish(want)
			t.Logf("A: steps committed %v, fenced %v; %d partitions lost",
				a.Metric("waterclock_transactions_total", "outcome", "committed"),
				a.Metric("waterclock_transactions_total", "outcome", "fenced"), len(logA.Lines("partition lost")))
		})
	}
}

func describeGroup(s *rig.Setup) kadm.DescribedGroup {
	s.Helper()
	groups, err := s.Admin.DescribeGroups(s.Context(), s.Group())
	if err != nil {
		s.Fatalf("describe the group: %v", err)
	}
	return groups[s.Group()]
}

func TestTenMembersJoinWithinASecond(t *testing.T) {
	t.Parallel()
	const members, perSecond = 10, 100
	s := rig.NewSetup(t, kafkatest.Shared(t), members, 1)
	start := func() (*rig.Instance, *rig.Log) {
		cfg := settings(s)
		cfg.TransactionalIDs, cfg.Lanes = 2, 1
		shares := rig.Queues(8 << 20)
		shares.Wheel, shares.Dirty = 1<<20, 1<<20
		cfg.SessionTimeout = 3 * session // nobody is to be dropped because the machine is busy
		return rig.ServeLogged(t, cfg, node.Options{Memory: shares})
	}
	first, log := start()
	first.Ready(members, rig.Patience)
	want := make(rig.Values)
	load := s.Load(perSecond, time.Second)

	instances, logs := []*rig.Instance{first}, []*rig.Log{log}
	begun := time.Now()
	for i := range members - 1 { // in the middle of each other's rebalances
		s.At(begun.Add(time.Duration(i) * 100 * time.Millisecond))
		in, log := start()
		instances, logs = append(instances, in), append(logs, log)
	}
	t.Logf("%d more members started within %s", members-1, time.Since(begun))
	for _, in := range instances {
		in.Ready(1, 2*rig.Patience)
	}
	t.Logf("one partition each after %s", time.Since(begun))
	s.At(begun.Add(4 * time.Second))
	rig.EndLoad(load, want)
	s.Finish(want)
	t.Logf("longest silence of the target since the start %s", rig.Silence(s.Out.Records(), begun, time.Now()))
	for i, log := range logs {
		for _, bad := range []string{"partition lost", "group membership ended", "refused"} {
			if lines := log.Lines(bad); len(lines) > 0 {
				t.Errorf("member %d: %s", i, lines)
			}
		}
	}
	if n := moves(s); n < 2*members-1 {
		t.Errorf("%d claims: not every member has acquired a partition", n)
	}
}

// A owns both partitions, and has one step of firings for both on the way: its offset commit has
// not reached the broker. B joins, A gives one partition away in order and is a member again, and
// only then does the offset commit arrive. It is refused, for the partition that A has kept too,
// so nothing of that step is ever written.
func TestOneOfTwoPartitionsRevokedWithTheOffsetCommitOnItsWay(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 200
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	wire := s.Wire()
	cfg := settings(s)
	cfg.Lanes = 1
	a := s.Serve(cfg, node.Options{Dial: wire.Dial})

	want := s.NearlyDue(&a.Web, n)
	held := wire.Hold(kmsg.TxnOffsetCommit.Int16())
	s.Hit(held)
	b := rig.Serve(t, settings(s), node.Options{})
	b.Ready(1, rig.Patience)
	held.Release()
	await.Until(s, rig.Patience, "both have one", func() bool { return a.Live() == 1 && b.Live() == 1 })
	s.Finish(want)
	failed := a.Metric("waterclock_transactions_total", "outcome", "fenced") +
		a.Metric("waterclock_transactions_total", "outcome", "aborted")
	if failed == 0 {
		t.Error("no step of A failed: the test did not make its interleaving")
	}
	if all := len(uncommitted(s)); all != n+int(s.Partitions) {
		t.Errorf("%d records were written, committed or not; want %d and the barriers", all, n)
	}
}

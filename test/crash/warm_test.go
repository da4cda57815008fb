package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const replayedMetric = "waterclock_replayed_offsets_total"

// schedulePending schedules n timers that are due in a day.
func schedulePending(s *rig.Setup, n int) {
	s.Helper()
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, s.Timer(fmt.Sprint("p-", i), "1", time.Now().Add(24*time.Hour)))
	}
	s.Send(recs...)
}

// TestFullStopKeepsDirectoriesWarm: three instances with much pending are all stopped, and
// started again in other orders, as new members. Each gets the partitions back of which its
// directory has a view, so next to nothing is replayed.
func TestFullStopKeepsDirectoriesWarm(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const instances, share, pending = 3, 4, 24_000
	// As Kafka has it (3 s there): a group that was empty waits for more members.
	c := kafkatest.Start(t, 1, kafkatest.WithProperty("group.initial.rebalance.delay.ms", "2000"))
	s := rig.NewSetup(t, c, instances*share, 1)
	cfgs := []*config.Config{s.Config(), s.Config(), s.Config()}
	all := func(order []int) []*rig.Instance {
		ins := make([]*rig.Instance, instances)
		for _, i := range order {
			ins[i] = rig.Serve(t, cfgs[i], node.Options{})
		}
		for _, in := range ins {
			in.Ready(share, rig.Patience)
		}
		return ins
	}
	stop := func(ins []*rig.Instance) {
		for _, in := range ins {
			in.End()
		}
	}
	ins := all([]int{0, 1, 2})
	schedulePending(s, pending)
	await.Until(t, rig.Patience, "all pending",
		func() bool { return rig.Sum(ins, "waterclock_pending_timers") == pending })
	stop(ins)
	for _, order := range [][]int{{2, 0, 1}, {1, 2, 0}} {
		ins = all(order)
		if n := rig.Sum(ins, "waterclock_pending_timers"); n != pending {
			kafkatest.Inexact(t, "%v timers are pending", n)
		}
		replayed := rig.Sum(ins, replayedMetric)
		t.Logf("started in the order %v: %v offsets replayed", order, replayed)
		// Claims and markers, of the last start too; one cold partition is 2,000.
		if most := float64(3 * instances * share * takeOffsets); replayed > most {
			t.Errorf("started in the order %v: %v offsets were replayed, %v at most if all got back what they had",
				order, replayed, most)
		}
		stop(ins)
	}
}

// TestStandbysTakeOver: of three instances with standbys one is killed, another joins, and one hands over. Partitions
// go to instances that have copies of them, so what is replayed is next to nothing; timers fire once each, all the
// time. No partition is silent for long when an instance joins or hands over.
func TestStandbysTakeOver(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const parts, pending = 6, 30_000
	s := rig.NewSetup(t, kafkatest.Start(t, 1, kafkatest.ApacheDefaults()), parts, 3)
	dirs := make(map[*rig.Process]string)
	start := func() *rig.Process {
		twin := s.Twin()
		p := twin.Start("--standbys", "1", "--memory", "256MiB")
		dirs[p] = twin.Dir
		return p
	}
	// A copy whose successor had not caught up when the group last balanced is kept until it balances again.
	spread := func(what string, ps ...*rig.Process) {
		t.Helper()
		took := await.Until(t, rig.Patience, what, func() bool {
			if !rig.Serving(parts, ps...) || rig.Sum(ps, "waterclock_standby_partitions", "state", "behind") > 0 ||
				rig.Sum(ps, "waterclock_standby_partitions", "state", "caught_up") < parts {
				return false
			}
			for _, p := range ps {
				if n := p.Live(); n < parts/len(ps) || n > parts/len(ps)+1 {
					return false
				}
			}
			return true
		})
		t.Logf("%s: spread evenly, with copies, after %s", what, took.Round(time.Millisecond))
	}
	// replays checks that next to nothing is replayed by owners meanwhile. What a follower lacks is what a second
	// brings, and claims; a cold partition is 5,000 and what the stream has made.
	replays := func(what string, owners []*rig.Process, do func() (owners []*rig.Process)) {
		t.Helper()
		before := rig.Sum(owners, replayedMetric)
		moved := rig.Sum(do(), replayedMetric) - before
		if most := float64(pending / parts / 2); moved > most {
			t.Errorf("%s: %v offsets were replayed, %v at most if standbys take over", what, moved, most)
		}
	}
	killed, second, third := start(), start(), start()
	spread("three instances", killed, second, third)
	schedulePending(s, pending)
	load := stream(s)
	more(s, streamRate)
	begun := time.Now()
	more(s, streamRate)
	calm := time.Now()

	two := []*rig.Process{second, third}
	replays("kill -9", two, func() []*rig.Process {
		killed.Kill()
		await.Until(t, rig.Patience, "kill -9", func() bool { return rig.Serving(parts, two...) })
		more(s, streamRate)
		return two
	})
	spread("two instances", second, third)

	joining := time.Now()
	var joined *rig.Process
	replays("a join", two, func() []*rig.Process {
		joined = start()
		spread("a third joins", second, third, joined)
		return append(two, joined)
	})
	more(s, streamRate)
	draining := time.Now()
	left := []*rig.Process{third, joined}
	replays("a drain", left, func() []*rig.Process {
		drain := rig.Exec(t, nil, "drain", "--http", second.Addr(), "--data-dir", dirs[second], "--within", "40s")
		if drained, code := drain.Exit(rig.Patience), second.Exit(rig.Patience); drained != 0 || code != 0 {
			t.Errorf("drain: exit %d, the drained instance: exit %d", drained, code)
		}
		spread("one has handed over", left...)
		return left
	})
	more(s, streamRate)
	end := time.Now()
	n := load.Stop()
	awaitStream(s, n)
	received := s.Out.Records()
	rig.Exactly(t, received, n)
	s.NothingDead()
	// A busy machine makes every silence longer, that of the quiet time, too. A partition that waits for the session
	// timeout, or for the next look at what has caught up, is silent for longer than any of that.
	quiet := silent(received, begun, calm)
	for what, took := range map[string]time.Duration{
		"a join":  silent(received, joining, draining),
		"a drain": silent(received, draining, end),
	} {
		t.Logf("%s: a partition was silent for %s, and for %s before", what, took.Round(time.Millisecond),
			quiet.Round(time.Millisecond))
		if most := 3*time.Second + 4*quiet; took > most {
			t.Errorf("%s: a partition was silent for %s, %s at most", what, took, most)
		}
	}
}

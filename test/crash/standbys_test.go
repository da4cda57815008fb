package crash

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const replayedMetric = "waterclock_replayed_offsets_total"

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
	s.Spread("p-", pending, time.Now().Add(24*time.Hour))
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

package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// TestStandbysTakeOver: of three instances with standbys one is killed, another joins, and one hands over. Partitions
// go to instances that have copies of them, so what is replayed is next to nothing; timers fire once each, all the
// time. No partition is silent for long when an instance joins or hands over.
func TestStandbysTakeOver(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const parts, pending = 6, 30_000
	c := kafkatest.Start(t, 1, kafkatest.ApacheDefaults())
	rig.Binary(t)
	requests, target := c.CreateTopic(t, parts, nil), c.CreateTopic(t, 3, nil)
	dirs := make(map[*rig.Process]string)
	start := func() *rig.Process {
		dir := t.TempDir()
		p := rig.Start(t, rig.Arguments(c.Seeds(), requests, dir, "--standbys", "1", "--memory", "256MiB")...)
		dirs[p] = dir
		return p
	}
	// A copy whose successor had not caught up when the group last balanced is kept until it balances again.
	copies := func(ps ...*rig.Process) (ready, behind float64) {
		for _, p := range ps {
			ready += p.Metric("waterclock_standby_partitions", "state", "caught_up")
			behind += p.Metric("waterclock_standby_partitions", "state", "behind")
		}
		return ready, behind
	}
	replayed := func(ps ...*rig.Process) (n float64) {
		for _, p := range ps {
			n += p.Metric("waterclock_replayed_offsets_total")
		}
		return n
	}
	spread := func(what string, ps ...*rig.Process) {
		t.Helper()
		at := time.Now()
		await.Until(t, handover, what, func() bool {
			if !serving(parts, ps...) {
				return false
			}
			if ready, behind := copies(ps...); ready < parts || behind > 0 {
				return false
			}
			for _, p := range ps {
				if n := p.Live(); n < parts/len(ps) || n > parts/len(ps)+1 {
					return false
				}
			}
			return true
		})
		ready, _ := copies(ps...)
		t.Logf("%s: spread evenly, with %v copies, after %s", what, ready, time.Since(at).Round(time.Millisecond))
	}
	killed, second, third := start(), start(), start()
	spread("three instances", killed, second, third)
	var recs []*kgo.Record
	for i := range pending {
		recs = append(recs, rig.Timer(requests, "nobody", fmt.Sprint("p-", i), time.Now().Add(24*time.Hour)))
	}
	rig.Send(t, c.Client(t), recs...)
	out := kafkatest.Collect(t, c, target)
	s := stream(t, c, requests, target)
	more := func() { out.WaitFor(len(out.Records())+int(settle.Seconds()*streamRate/2), handover) }
	more()
	begun := time.Now()
	more()
	calm := time.Now()

	before := replayed(second, third)
	killed.Kill()
	at := time.Now()
	await.Until(t, handover, "kill -9", func() bool { return serving(parts, second, third) })
	t.Logf("kill -9: all partitions live after %s", time.Since(at).Round(time.Millisecond))
	more()
	moved := replayed(second, third) - before
	t.Logf("kill -9: %v offsets were replayed", moved)
	// What a follower lacks is what a second brings, and claims; a cold partition is 5,000 and what the stream has
	// made.
	if most := float64(pending / parts / 2); moved > most {
		t.Errorf("after kill -9 %v offsets were replayed, %v at most if standbys take over", moved, most)
	}
	spread("two instances", second, third)

	before = replayed(second, third)
	joining := time.Now()
	joined := start()
	spread("a third joins", second, third, joined)
	if moved := replayed(second, third, joined) - before; moved > float64(pending/parts/2) {
		t.Errorf("after a join %v offsets were replayed by owners", moved)
	}
	more()
	draining := time.Now()

	before = replayed(third, joined)
	drain := rig.Exec(t, nil, "drain", "--http", second.Addr(), "--data-dir", dirs[second], "--within", "40s")
	if code := drain.Exit(handover); code != 0 {
		t.Errorf("drain: exit %d", code)
	}
	if code := second.Exit(20 * time.Second); code != 0 {
		t.Errorf("the drained instance: exit %d", code)
	}
	spread("one has handed over", third, joined)
	if moved := replayed(third, joined) - before; moved > float64(pending/parts/2) {
		t.Errorf("after a drain %v offsets were replayed by owners", moved)
	}
	more()
	end := time.Now()
	n := s.Stop()
	awaitStream(t, out, n, time.Minute)
	rig.Exactly(t, out.Records(), n)
	worst := logReceipts(t, out.Records(), begun)
	t.Logf("the longest silence of a target partition: %s", worst.Round(time.Millisecond))
	nothingDead(t, c, requests)
	// A busy machine makes every silence longer, that of the quiet time, too. A partition that waits for the session
	// timeout, or for the next look at what has caught up, is silent for longer than any of that.
	quiet := silence(t, out.Records(), parts, begun, calm)
	for what, took := range map[string]time.Duration{
		"a join":  silence(t, out.Records(), parts, joining, draining),
		"a drain": silence(t, out.Records(), parts, draining, end),
	} {
		t.Logf("%s: a partition was silent for %s, and for %s before", what, took.Round(time.Millisecond),
			quiet.Round(time.Millisecond))
		if most := 3*time.Second + 4*quiet; took > most {
			t.Errorf("%s: a partition was silent for %s, %s at most", what, took, most)
		}
	}
}

// silence returns the longest time without an emission of a partition of the request topic.
func silence(t testing.TB, received []kafkatest.Received, parts int32, from, to time.Time) (longest time.Duration) {
	t.Helper()
	last := make(map[int32]time.Time)
	for p := range parts {
		last[p] = from
	}
	for _, r := range received {
		if r.At.Before(from) || r.At.After(to) {
			continue
		}
		e, err := waterclock.ParseEmission(r.Record)
		if err != nil {
			t.Fatal(err)
		}
		longest, last[e.Source.Partition] = max(longest, r.At.Sub(last[e.Source.Partition])), r.At
	}
	for _, at := range last {
		longest = max(longest, to.Sub(at))
	}
	return longest
}

package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
)

// TestStandbysTakeOver: of three instances with standbys one is killed, another joins, and one hands over. Partitions go to instances
// that have copies of them, so what is replayed is next to nothing; timers fire once each, all the time.
func TestStandbysTakeOver(t *testing.T) {
	t.Parallel()
	const parts, pending = 6, 30_000
	c := kafkatest.Start(t, 1, kafkatest.ApacheDefaults())
	rig.Binary(t)
	requests, target := c.CreateTopic(t, parts, nil), c.CreateTopic(t, 3, nil)
	start := func() *rig.Process {
		return rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir(), "--standbys", "1", "--memory", "256MiB")...)
	}
	copies := func(n float64, ps ...*rig.Process) bool {
		var ready, behind float64
		for _, p := range ps {
			ready += p.Metric("waterclock_standby_partitions", "state", "caught_up")
			behind += p.Metric("waterclock_standby_partitions", "state", "behind")
		}
		return ready == n && behind == 0
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
			if !serving(parts, ps...) || !copies(parts, ps...) {
				return false
			}
			for _, p := range ps {
				if n := live(p); n < parts/len(ps) || n > parts/len(ps)+1 {
					return false
				}
			}
			return true
		})
		t.Logf("%s: spread evenly, with all copies, after %s", what, time.Since(at).Round(time.Millisecond))
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

	before := replayed(second, third)
	killed.Kill()
	at := time.Now()
	await.Until(t, handover, "kill -9", func() bool { return serving(parts, second, third) })
	t.Logf("kill -9: all partitions live after %s", time.Since(at).Round(time.Millisecond))
	more()
	moved := replayed(second, third) - before
	t.Logf("kill -9: %v offsets were replayed", moved)
	// What a follower lacks is what a second brings, and claims; a cold partition is 5,000 and what the stream has made.
	if most := float64(pending / parts / 2); moved > most {
		t.Errorf("after kill -9 %v offsets were replayed, %v at most if standbys take over", moved, most)
	}
	spread("two instances", second, third)

	before = replayed(second, third)
	joined := start()
	spread("a third joins", second, third, joined)
	if moved := replayed(second, third, joined) - before; moved > float64(pending/parts/2) {
		t.Errorf("after a join %v offsets were replayed by owners", moved)
	}
	more()

	before = replayed(third, joined)
	drain := rig.Exec(t, nil, "drain", "--http", second.Addr(), "--within", "40s")
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
	n := s.Stop()
	awaitStream(t, out, n, time.Minute)
	rig.Exactly(t, out.Records(), n)
	worst := logReceipts(t, out.Records(), begun)
	t.Logf("the longest silence of a target partition: %s", worst.Round(time.Millisecond))
	nothingDead(t, c, requests)
}

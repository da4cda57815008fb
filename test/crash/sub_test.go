package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// TestSubPartitionsChangeAtEachKill: an instance is killed again and again while its one partition
// is planned in several parts, and goes on with another number of them. Each timer is scheduled for
// tomorrow and at once for soon: it fires once if each request is settled once, and in its order.
func TestSubPartitionsChangeAtEachKill(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const perLife = 2 * streamRate // emissions, before each kill
	c := kafkatest.Shared(t)
	rig.Binary(t)
	requests := c.CreateTopic(t, 1, nil)
	target := c.CreateTopic(t, 3, nil, requests+"-out")
	out, dir := kafkatest.Collect(t, c, target), t.TempDir()
	s := rig.StartStream(t, c.Client(t), 4*streamRate, func(n int) *kgo.Record {
		due := time.Now().Add(24 * time.Hour)
		if n%2 == 1 {
			due = time.Now().Add(soonest)
		}
		return rig.Timer(requests, target, streamID(n/2), due)
	})
	start := func(subs int) *rig.Process {
		p := rig.Start(t, rig.Arguments(c.Seeds(), requests, dir, "--instance-id", "one", "--sub-partitions",
			fmt.Sprint(subs))...)
		p.Ready(1, handover)
		out.WaitFor(len(out.Records())+perLife, handover)
		return p
	}
	for _, subs := range []int{4, 1, 3, 8, 2} {
		start(subs).Kill()
	}
	last := start(4)
	n := s.Stop() / 2
	awaitStream(t, out, n, time.Minute)
	last.Settled()
	last.Term()
	if code := last.Exit(20 * time.Second); code != 0 {
		t.Errorf("exit %d on SIGTERM", code)
	}
	byID := rig.Once(t, out.Records())
	delete(byID, streamID(n)) // it may be that its second request was not sent
	if len(byID) != n {
		kafkatest.Inexact(t, "%d timers sent, %d fired", n, len(byID))
	}
	nothingDead(t, c, requests)
}

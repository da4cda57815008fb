package brokers

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

// A fixed-delay topic has records for a target whose only replica is away. What is
// behind them in their partition waits with them, and the other partition goes on. When
// the target is back all comes, in order, once.
func TestTargetOfAFixedDelayTopicAway(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const perRound = 100
	c := kafkatest.Three(t)
	s := rig.NewSetup(t, c, 2, 2)
	well, ill := s.Target, s.Requests+"-ill"
	cfg := s.Config()
	cfg.Requests, cfg.Delay = nil, []config.DelayTopic{{Topic: s.Requests, Delay: 200 * time.Millisecond, Target: well}}
	away := bystander(s)
	onBroker(s, away, ill)
	out := kafkatest.Collect(t, c, well, ill)
	in := s.Serve(cfg, node.Options{})
	cl := s.Manual()
	sent := 0
	send := func(partition int32, name string, n int, headers ...string) {
		t.Helper()
		var recs []*kgo.Record
		for i := range n {
			r := s.Request(name, fmt.Sprint(i), headers...)
			r.Partition = partition
			recs = append(recs, r)
		}
		rig.Send(t, cl, recs...)
		sent += n
	}
	send(0, "before", perRound, "timer-target-topic", ill)
	out.WaitFor(perRound, rig.Patience)

	c.Stop(int(away))
	leaderless(s, ill, away)
	send(0, "away", perRound, "timer-target-topic", ill)
	send(0, "behind", perRound)
	await.Until(t, rig.Patience, "records wait for the target", func() bool {
		return in.Metric("waterclock_parked_timers_by_target", "topic", s.Requests, "target", ill) == 2*perRound
	})
	for round := range 5 {
		begun := time.Now()
		send(1, "other", perRound)
		out.WaitFor((round+2)*perRound, rig.Patience)
		if took := time.Since(begun); took > gapLimit {
			t.Errorf("records of the other partition took %s", took)
		}
	}
	if n := len(out.Records()); n != 6*perRound {
		t.Errorf("%d records came while the target was away, want %d", n, 6*perRound)
	}
	c.Restart(int(away))
	out.WaitFor(sent, 2*rig.Patience)
	out.Quiet(time.Second)
	last := make(map[string]int64)
	for _, r := range out.Records() {
		var n int64
		if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
			t.Fatal(err)
		}
		if n != 0 && n != last[string(r.Key)]+1 {
			t.Errorf("%s %d came behind %d", r.Key, n, last[string(r.Key)])
		}
		last[string(r.Key)] = n
	}
	if n := len(out.Records()); n != sent {
		t.Errorf("%d records came, %d were sent", n, sent)
	}
	await.Until(t, rig.Patience, "nothing waits",
		func() bool { return in.Metric("waterclock_parked_timers", "topic", s.Requests) == 0 })
}

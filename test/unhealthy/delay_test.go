package unhealthy

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
	topic := c.CreateTopic(t, 2, nil)
	well, ill := c.CreateTopic(t, 2, nil, topic+"-well"), topic+"-ill"
	cfg := rig.Config(t, c.Seeds(), topic)
	cfg.Requests, cfg.Delay = nil, []config.DelayTopic{{Topic: topic, Delay: 200 * time.Millisecond, Target: well}}
	away := bystander(t, c, cfg.Group)
	onBroker(t, c, ill, int32(away))
	out := kafkatest.Collect(t, c, well, ill)
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(2, patience)
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	sent := 0
	send := func(partition int32, name string, n int, headers ...kgo.RecordHeader) {
		t.Helper()
		var recs []*kgo.Record
		for i := range n {
			recs = append(recs, &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Append(nil, name),
				Value: fmt.Append(nil, i), Headers: headers})
		}
		rig.Send(t, cl, recs...)
		sent += n
	}
	toIll := kgo.RecordHeader{Key: "timer-target-topic", Value: []byte(ill)}
	send(0, "before", perRound, toIll)
	out.WaitFor(perRound, patience)

	c.Stop(away)
	leaderless(t, cl, ill, away)
	send(0, "away", perRound, toIll)
	send(0, "behind", perRound)
	await.Until(t, patience, "records wait for the target", func() bool {
		return in.Metric("waterclock_parked_timers_by_target", "topic", topic, "target", ill) == 2*perRound
	})
	for round := range 5 {
		begun := time.Now()
		send(1, "other", perRound)
		out.WaitFor((round+2)*perRound, patience)
		if took := time.Since(begun); took > gapLimit {
			t.Errorf("records of the other partition took %s", took)
		}
	}
	if n := len(out.Records()); n != 6*perRound {
		t.Errorf("%d records came while the target was away, want %d", n, 6*perRound)
	}
	c.Restart(away)
	out.WaitFor(sent, 2*patience)
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
	await.Until(t, patience, "nothing waits",
		func() bool { return in.Metric("waterclock_parked_timers", "topic", topic) == 0 })
}

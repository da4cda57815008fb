package unhealthy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// A changelog partition has no leader: its request partition is taken out of the
// steps and says so, another request topic of the same lane goes on. When the
// leader is back everything fires, once.
func TestChangelogWithoutLeaderStallsItsPartitionAlone(t *testing.T) {
	runs.NeedSlow(t) // three brokers, which go through it and its like one after the other
	t.Parallel()
	c := kafkatest.Three(t)
	ill := kafkatest.Topic(t)
	well := ill + "-well"
	cfg := rig.Config(t, c.Seeds(), ill, well)
	cfg.Lanes = 1
	victim := bystander(t, c, cfg.Group)
	other := int32((victim + 1) % 3)
	for _, topic := range []string{ill, well, ill + "-out", well + "-out"} {
		onBroker(t, c, topic, other)
	}
	in, _ := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(2, patience)
	cl := c.Client(t)
	moveTo(t, cl, ill+".waterclock.changelog", int32(victim))
	moveTo(t, cl, well+".waterclock.changelog", other)
	outIll, outWell := kafkatest.Collect(t, c, ill+"-out"), kafkatest.Collect(t, c, well+"-out")
	streamIll, streamWell := stream(t, cl, ill, ill+"-out"), stream(t, cl, well, well+"-out")
	outIll.WaitFor(100, patience)
	outWell.WaitFor(100, patience)
	begun := time.Now()
	outWell.WaitFor(len(outWell.Records())+200, patience)
	calm := silence(outWell.Records(), well+"-out", begun, time.Now())

	c.Stop(victim)
	stalled := func() float64 { return in.Metric("waterclock_partitions", "topic", ill, "state", "stalled") }
	await.Until(t, patience, "stalled", func() bool { return stalled() == 1 })
	begun = time.Now()
	var status int
	var body string
	await.Until(t, 10*time.Second, "the reason", func() bool {
		status, body = in.Readyz()
		return status != http.StatusOK && strings.Contains(body, "no leader for "+ill+".waterclock.changelog/0")
	})
	if in.Metric("waterclock_partitions", "topic", well, "state", "live") != 1 {
		t.Errorf("the other request topic is not live: %s", body)
	}
	fired := len(outIll.Records())
	outWell.WaitFor(len(outWell.Records())+500, patience)
	if got := len(outIll.Records()); got != fired || stalled() != 1 {
		t.Errorf("%d more timers fired without a changelog", got-fired)
	}
	gap := silence(outWell.Records(), well+"-out", begun, time.Now())
	t.Logf("longest gap of the other request topic, from the stall on: %s, without the fault %s", gap, calm)
	if limit := heldUp + recovery*min(calm, busy); gap > limit {
		t.Errorf("the other request topic was silent for %s, want %s at most", gap, limit)
	}

	c.Restart(victim)
	in.Ready(2, patience)
	checkAll(t, outIll, streamIll.Stop())
	checkAll(t, outWell, streamWell.Stop())
	in.Balanced(0)
}

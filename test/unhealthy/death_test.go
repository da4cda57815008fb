package unhealthy

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// A broker with the only replicas of two targets dies. Two
// targets that fail at once are a broker's death, whose partitions may get other
// leaders; when they do not, they are unhealthy for themselves, and the others go on.
func TestBrokerWithTwoSingleReplicaTargetsDies(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	// 9 s until the controller gives the broker up, some more until its targets
	// are found unhealthy; the last third is long after that.
	const away = 30 * time.Second
	c := kafkatest.Three(t)
	requests := c.CreateTopic(t, 2, nil)
	healthy := c.CreateTopic(t, 1, nil, requests+"-healthy")
	cfg := rig.Config(t, c.Seeds(), requests)
	victim := bystander(t, c, cfg.Group)
	one, two := requests+"-one", requests+"-two"
	onBroker(t, c, one, int32(victim))
	onBroker(t, c, two, int32(victim))
	in, _ := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(2, patience)
	out := kafkatest.Collect(t, c, healthy, one, two)
	load := stream(t, c.Client(t), requests, healthy, one, two)
	out.WaitFor(200, patience)

	c.Kill(victim)
	down := time.Now()
	select {
	case <-time.After(away):
	case <-t.Context().Done():
	}
	parked := in.Metric("waterclock_parked_timers")
	c.Restart(victim)
	up := time.Now()
	n := load.Stop()
	if parked == 0 {
		t.Errorf("nothing was parked")
	}
	checkAll(t, out, n)
	before := out.Records()
	death, later := silence(before, healthy, down, down.Add(away)),
		silence(before, healthy, down.Add(away*2/3), down.Add(away))
	t.Logf("longest gap of the healthy target: %s, in the last third of the %s %s; %v were parked, markers written %v",
		death, up.Sub(down).Round(time.Second), later,
		parked, in.Metric("waterclock_markers_written_total"))
	// A step waits for the controller, and one meets the partitions without leader;
	// and the load of the machine.
	if death > 25*time.Second {
		t.Errorf("the healthy target was silent for %s", death)
	}
	if later > 6*time.Second {
		t.Errorf("the healthy target is silent for %s long after the death", later)
	}
}

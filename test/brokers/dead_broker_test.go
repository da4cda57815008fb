package brokers

import (
	"fmt"
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

// The broker that coordinates the transactions is away for 10 s. Steps wait for it, and no target is to blame.
func TestCoordinatorAwayTripsNoBreaker(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Three(t)
	s := rig.NewSetup(t, c, 1, 0)
	_, coordinator := coordinators(s)
	others := []int32{(coordinator + 1) % 3, (coordinator + 2) % 3}
	moveTo(s, others[0], s.Requests)
	var targets []string
	for i := range 4 {
		targets = append(targets, fmt.Sprintf("%s-%d", s.Requests, i))
		onBroker(s, others[i%2], targets[i])
	}
	in, log := rig.ServeLogged(t, s.Config(), node.Options{})
	in.Ready(1, rig.Patience)
	moveTo(s, others[1], s.Changelog())
	out := kafkatest.Collect(t, c, targets...)
	load := stream(s, targets...)
	out.WaitFor(100, rig.Patience)

	paused := time.Now()
	c.Pause(int(coordinator))
	await.For(t, 10*time.Second)
	c.Resume(int(coordinator))
	resumed := time.Now()
	out.WaitFor(len(out.Records())+200, rig.Patience)
	n := load.Stop()
	for _, trip := range []string{"target partition unhealthy", "several target partitions failed"} {
		if said := log.Lines(trip); len(said) > 0 {
			t.Errorf("breakers tripped: %q", said)
		}
	}
	if in.Metric("waterclock_parked_timers") != 0 {
		t.Errorf("timers are parked")
	}
	rig.Complete(t, out, n)
	gap := rig.Silence(on(targets[0], out.Records()), paused, resumed.Add(2*time.Second))
	t.Logf("coordinator away %s: longest gap of a target %s", resumed.Sub(paused), gap)
	if gap < 2*time.Second {
		t.Errorf("no gap: this test shows nothing")
	}
}

// A broker with the only replicas of two targets dies. Two targets that fail at once are a broker's death, whose
// partitions may get other leaders; when they do not, they are unhealthy for themselves, and the others go on.
func TestBrokerWithTwoSingleReplicaTargetsDies(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	// 9 s until the controller gives the broker up, some more until its targets are found unhealthy; the last third is
	// long after that.
	const away = 30 * time.Second
	c := kafkatest.Three(t)
	s := rig.NewSetup(t, c, 2, 1)
	victim := bystander(s)
	one, two := s.Requests+"-one", s.Requests+"-two"
	onBroker(s, victim, one, two)
	in := s.Serve(s.Config(), node.Options{})
	out := kafkatest.Collect(t, c, s.Target, one, two)
	load := stream(s, s.Target, one, two)
	out.WaitFor(200, rig.Patience)

	c.Kill(int(victim))
	down := time.Now()
	await.For(t, away)
	parked := in.Metric("waterclock_parked_timers")
	c.Restart(int(victim))
	n := load.Stop()
	if parked == 0 {
		t.Errorf("nothing was parked")
	}
	rig.Complete(t, out, n)
	healthy := on(s.Target, out.Records())
	death := rig.Silence(healthy, down, down.Add(away))
	later := rig.Silence(healthy, down.Add(away*2/3), down.Add(away))
	t.Logf("longest gap of the healthy target: %s, in the last third %s; %v were parked", death, later, parked)
	// A step waits for the controller, and one meets the partitions without leader;
	// and the load of the machine.
	if death > 25*time.Second {
		t.Errorf("the healthy target was silent for %s", death)
	}
	if later > 6*time.Second {
		t.Errorf("the healthy target is silent for %s long after the death", later)
	}
}

// A changelog partition has no leader: its request partition is taken out of the steps and says so, another request
// topic of the same lane goes on. When the leader is back everything fires, once.
func TestChangelogWithoutLeaderStallsItsPartitionAlone(t *testing.T) {
	runs.NeedSlow(t) // three brokers, which go through it and its like one after the other
	t.Parallel()
	c := kafkatest.Three(t)
	ill := rig.NewSetup(t, c, 1, 1)
	well := rig.NewSetup(t, c, 1, 1)
	cfg := rig.Config(t, c.Seeds(), ill.Requests, well.Requests)
	cfg.Lanes = 1
	victim := bystander(ill) // the group has its name
	other := (victim + 1) % 3
	moveTo(ill, other, ill.Requests, well.Requests, ill.Target, well.Target)
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(2, rig.Patience)
	moveTo(ill, victim, ill.Changelog())
	moveTo(well, other, well.Changelog())
	streamIll, streamWell := stream(ill, ill.Target), stream(well, well.Target)
	ill.Out.WaitFor(100, rig.Patience)
	well.Out.WaitFor(100, rig.Patience)
	begun := time.Now()
	well.Out.WaitFor(len(well.Out.Records())+200, rig.Patience)
	calm := rig.Silence(well.Out.Records(), begun, time.Now())

	c.Stop(int(victim))
	stalled := func() float64 { return in.Metric("waterclock_partitions", "topic", ill.Requests, "state", "stalled") }
	await.Until(t, rig.Patience, "stalled", func() bool { return stalled() == 1 })
	begun = time.Now()
	var status int
	var body string
	await.Until(t, 10*time.Second, "the reason", func() bool {
		status, body = in.Readyz()
		return status != http.StatusOK && strings.Contains(body, "no leader for "+ill.Changelog()+"/0")
	})
	if in.Metric("waterclock_partitions", "topic", well.Requests, "state", "live") != 1 {
		t.Errorf("the other request topic is not live: %s", body)
	}
	fired := len(ill.Out.Records())
	well.Out.WaitFor(len(well.Out.Records())+500, rig.Patience)
	if got := len(ill.Out.Records()); got != fired || stalled() != 1 {
		t.Errorf("%d more timers fired without a changelog", got-fired)
	}
	gap := rig.Silence(well.Out.Records(), begun, time.Now())
	t.Logf("longest gap of the other request topic, from the stall on: %s, without the fault %s", gap, calm)
	if limit := heldUp + recovery*min(calm, busy); gap > limit {
		t.Errorf("the other request topic was silent for %s, want %s at most", gap, limit)
	}

	c.Restart(int(victim))
	in.Ready(2, rig.Patience)
	rig.Complete(t, ill.Out, streamIll.Stop())
	rig.Complete(t, well.Out, streamWell.Stop())
	in.Balanced(0)
}

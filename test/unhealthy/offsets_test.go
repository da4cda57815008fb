package unhealthy

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// offsetsTopic is where Kafka keeps the committed offsets of groups: here with
// one replica, so that it can lose its leader.
const offsetsTopic = "__consumer_offsets"

// A step is committed while the partition of the group's offsets has no leader,
// and its owner goes. The broker calls the transaction complete, and the stable
// committed offset would not come ever after. The next take writes the marker.
func TestAcquisitionRepairsALostMarkerOnGroupOffsets(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Start(t, 3, kafkatest.WithProperty("offsets.topic.replication.factor", "1"))
	requests := c.CreateTopic(t, 1, nil)
	target := c.CreateTopic(t, 1, nil, requests+"-out")
	cfg := rig.Config(t, c.Seeds(), requests)
	wire := kafkatest.NewWire()
	t.Cleanup(wire.Close)
	a, _ := rig.ServeLogged(t, cfg, node.Options{Dial: wire.Dial, CommitTimeout: patience})
	a.Ready(1, patience)
	cl := c.Client(t)
	victim := (coordinatorOf(t, c, cfg.Group) + 1) % 3
	moveTo(t, cl, offsetsTopic, victim)
	out := kafkatest.Collect(t, c, target)
	rig.Send(t, cl, rig.Timer(requests, target, "warm", time.Now()))
	out.WaitFor(1, patience)

	const n = 20
	due := time.Now().Add(6 * time.Second)
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, rig.Timer(requests, target, fmt.Sprint("id-", i), due))
	}
	rig.Send(t, cl, recs...)
	a.Balanced(n) // the step that took them in is committed: the next one emits
	if time.Now().After(due) {
		t.Fatal("the machine is too slow for this test")
	}
	end := wire.Hold(kmsg.EndTxn.Int16())
	if err := end.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Stop(int(victim))
	leaderless(t, cl, offsetsTopic, int(victim))
	end.Release()
	out.WaitFor(2, patience) // committed: its emissions are there
	if err := a.Stop(); err != nil {
		t.Errorf("the first owner ended with %v", err)
	}
	c.Restart(int(victim))
	if openOn(t, cl, offsetsTopic) == 0 {
		t.Fatal("no marker was lost: this test shows nothing")
	}

	next := *cfg
	next.DataDir = t.TempDir()
	b, log := rig.ServeLogged(t, &next, node.Options{})
	took := b.Ready(1, patience)
	if got := len(log.Lines("wrote a marker that was lost")); got != 1 {
		t.Errorf("%d markers written", got)
	}
	rig.Send(t, cl, rig.Timer(requests, target, "behind", time.Now()))
	checkAll(t, out, n+2)
	t.Logf("the next acquisition was live after %s", took)
}

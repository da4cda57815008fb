package faults

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// The states that a partition passes through in milliseconds are shown when it
// is held up in one: not ready, and live when that is over.
func TestPartitionHeldUpOnItsWay(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	in := func(t *testing.T, in *rig.Web, state string) {
		t.Helper()
		await.Until(t, readyLimit, "a partition is "+state,
			func() bool { return in.Metric("waterclock_partitions", "state", state) == 1 })
		if status, body := in.Readyz(); status == 200 {
			t.Errorf("ready while a partition is %s: %s", state, body)
		}
	}

	// The committed offset is not told.
	t.Run("acquiring", func(t *testing.T) {
		t.Parallel()
		requests := c.CreateTopic(t, 1, nil)
		wire := kafkatest.NewWire()
		t.Cleanup(wire.Close)
		held := wire.Hold(kmsg.OffsetFetch.Int16())
		t.Cleanup(held.Release)
		p := rig.Serve(t, rig.Config(t, c.Seeds(), requests), node.Options{Dial: wire.Dial})
		in(t, &p.Web, "acquiring")
		held.Release()
		p.Ready(1, readyLimit)
	})

	// More was in the log at the acquisition than the queue holds, and nothing goes into
	// the store: intake pauses before it has read what may cancel something. What
	// is due waits for that.
	t.Run("gated", func(t *testing.T) {
		t.Parallel()
		const n, size = 3000, 8_000 // three times what the queue holds
		requests := c.CreateTopic(t, 1, nil)
		target := c.CreateTopic(t, 1, nil, requests+"-out")
		out := kafkatest.Collect(t, c, target)
		cl := c.Client(t)
		rig.Send(t, cl, big(requests, target, "due-", n, size, time.Now())...)
		for i := range 10 { // the last ones of all
			r := timer(requests, target, fmt.Sprint("due-", i), "", time.Time{})
			r.Value, r.Headers = nil, nil
			rig.Send(t, cl, r)
		}
		apply := make(chan struct{})
		release := sync.OnceFunc(func() { close(apply) })
		cfg := rig.Config(t, c.Seeds(), requests)
		p := rig.Serve(t, cfg, node.Options{BeforeApply: func(string, int32) { <-apply }, Memory: rig.Queues(8 << 20)})
		t.Cleanup(release)
		in(t, &p.Web, "gated")
		if !out.Quiet(2 * time.Second) {
			t.Error("timers fire while the partition is gated")
		}
		in(t, &p.Web, "gated")
		release()
		p.Ready(1, readyLimit)
		exactly(t, out, n-10)
		p.Balanced(0)
	})
}

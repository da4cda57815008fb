package brokers

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
	in := func(t *testing.T, in rig.Shown, state string) {
		t.Helper()
		await.Until(t, rig.Patience, "a partition is "+state,
			func() bool { return in.Metric("waterclock_partitions", "state", state) == 1 })
		if status, body := in.Readyz(); status == 200 {
			t.Errorf("ready while a partition is %s: %s", state, body)
		}
	}

	// The committed offset is not told.
	t.Run("acquiring", func(t *testing.T) {
		t.Parallel()
		s := rig.NewSetup(t, kafkatest.Shared(t), 1, 1)
		wire := s.Wire()
		held := wire.Hold(kmsg.OffsetFetch.Int16())
		t.Cleanup(held.Release)
		p := rig.Serve(t, s.Config(), node.Options{Dial: wire.Dial})
		in(t, p, "acquiring")
		held.Release()
		p.Ready(1, rig.Patience)
	})

	// More was in the log at the acquisition than the queue holds, and nothing goes into
	// the store: intake pauses before it has read what may cancel something. What
	// is due waits for that.
	t.Run("gated", func(t *testing.T) {
		t.Parallel()
		const n, size = 3000, 8_000 // three times what the queue holds
		s := rig.NewSetup(t, kafkatest.Shared(t), 1, 1)
		s.Send(big(s, "due-", n, size, time.Now())...)
		for i := range 10 { // the last ones of all
			s.Send(s.Cancel(fmt.Sprint("due-", i)))
		}
		apply := make(chan struct{})
		release := sync.OnceFunc(func() { close(apply) })
		p := rig.Serve(t, s.Config(), node.Options{
			BeforeApply: func(string, int32) { <-apply }, Memory: rig.Queues(8 << 20)})
		t.Cleanup(release)
		in(t, p, "gated")
		if !s.Out.Quiet(2 * time.Second) {
			t.Error("timers fire while the partition is gated")
		}
		in(t, p, "gated")
		release()
		p.Ready(1, rig.Patience)
		rig.Complete(t, s.Out, n-10)
		p.Balanced(0)
	})
}

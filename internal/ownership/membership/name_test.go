package membership

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// TestFencedByItsNameWaits: if a process's step is refused because another process joined under its instance ID, it
// must not fence that one in turn. It comes back when the other has left.
func TestFencedByItsNameWaits(t *testing.T) {
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))
	x := newSetup(t, c.ListenAddrs())
	join := func() *resident {
		o := x.options("wc-0")
		o.InstanceID, o.SessionTimeout, o.RebalanceTimeout = "wc-0", 6*time.Second, 10*time.Second
		return x.join(o)
	}
	first := join()
	x.shared(partitions, first)
	second := join()
	x.shared(partitions, second)

	first.tokens()[0].Refused(errors.New("FENCED_INSTANCE_ID"))
	// Heartbeats come every 1.2 s. Within two of them the second process would notice that
	// it is fenced.
	await.For(t, 3*time.Second)
	for name, m := range map[string]*resident{"first": first, "second": second} {
		if n := len(m.tokens()); n != partitions {
			t.Errorf("the %s was assigned %d partitions, want its first %d alone", name, n, partitions)
		}
	}
	if n := len(second.alive()); n != partitions {
		t.Errorf("the second has %d of %d partitions left", n, partitions)
	}
	if first.g.Joined() {
		t.Error("the first says that it is a member")
	}

	second.stop()
	x.shared(partitions, first)
}

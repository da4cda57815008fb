package load

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// flood is how many timers are sent at once, as fast as the broker takes them: far faster
	// than they go through. They are due within floodSpread.
	flood       = 400_000
	floodSpread = 4 * time.Second
	// floodBehind is how many of them wait in the log when the owner is killed.
	floodBehind = 60_000
)

// An owner is killed in the middle of an overload, twice: while requests wait in the log, others on
// their way through memory, and timers fire late. All of them fire, once, and each process keeps to the
// least memory.
func TestKillInOverload(t *testing.T) {
	runs.NeedSlow(t)
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, partitions, nil, requests+"-out")
	out := rig.Count(t, c, 2*flood, target)
	// A static member need not wait for the end of its former self.
	args := rig.Arguments(c.Seeds(), requests, t.TempDir(), "--instance-id", "wc-0", "--memory",
		config.MinMemory.String())
	kept := func(p *rig.Process, when string) {
		t.Helper()
		_, peak := p.Memory()
		t.Logf("%s: %d had fired and %.0f requests waited in the log; peak memory %.1f MiB",
			when, out.Received(), p.Metric("waterclock_intake_lag_records"), float64(peak)/mib)
		if peak > peakLimit {
			t.Errorf("%s: peak memory %.1f MiB, want %d at most", when, float64(peak)/mib, peakLimit/mib)
		}
	}
	p := rig.Start(t, args...)
	p.Ready(partitions, time.Minute)
	cl := producer(t, c)
	value := make([]byte, 100)
	for kill := range 2 {
		sent := make(chan error, 1)
		go func() {
			sent <- sendAll(cl, kill*flood, (kill+1)*flood, func(i int) *kgo.Record {
				return timer(requests, target, i, time.Now().Add(time.Duration(i%1000)*floodSpread/1000), value)
			})
		}()
		before := out.Received()
		await.Until(t, sendLimit, "an overload", func() bool {
			return p.Metric("waterclock_intake_lag_records") >= floodBehind && out.Received() > before
		})
		kept(p, "before a kill")
		p.Kill()
		p = rig.Start(t, args...)
		if err := <-sent; err != nil {
			t.Fatalf("send: %v", err)
		}
		p.Ready(partitions, settleLimit)
	}
	await.Until(t, settleLimit, "all fired", func() bool { return out.Received() == 2*flood })
	kept(p, "in the end")
	p.Balanced(0)
	rig.Fired(t, out, 2*flood)
	stop(t, p)
}

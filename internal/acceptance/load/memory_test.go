package load

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
)

const (
	few, many = 200_000, 2_000_000
	// perTimer is how much more memory a pending timer may cost, in bytes.
	perTimer = 16
	// fired is how many timers are fired with all those pending.
	fired = 100
)

// Memory of the process with 2,000,000 pending timers against 200,000: its peak
// over the whole life, and what it keeps at rest.
//
// A peak is of what a process does rather than of what it keeps, so both do the
// same: they take in 2,000,000 requests as fast as they can, with full queues.
// Where 200,000 are pending in the end, each was re-scheduled nine times. Peaks
// of equal runs differ by some 50 MiB of garbage; the live heap by one or two.
func TestMemoryDoesNotGrowWithPendingTimers(t *testing.T) {
	c := kafkatest.Shared(t)
	rig.Binary(t)
	small, big := memoryWith(t, c, few), memoryWith(t, c, many)
	for _, m := range []struct {
		what       string
		small, big int64
	}{{"peak", small.peak, big.peak}, {"live heap", small.live, big.live}} {
		more := float64(m.big-m.small) / (many - few)
		t.Logf("%s %.1f MiB with %d pending, %.1f MiB with %d: %.1f bytes more per timer",
			m.what, float64(m.small)/mib, few, float64(m.big)/mib, many, more)
		if more > perTimer {
			t.Errorf("%s: %.1f bytes more per timer, at most %d", m.what, more, perTimer)
		}
	}
}

// memory is what a process showed, in bytes.
type memory struct{ peak, live int64 }

// memoryWith has a process take in requests for n timers and fire some more.
func memoryWith(t *testing.T, c *kafkatest.Cluster, n int) memory {
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, partitions, nil, requests+"-out")
	pprof := rig.FreeAddr(t)
	p := serve(t, c, requests, "--pprof", pprof)
	w := watchOf(t, &p.Web, config.Default().QueueMemory)
	out := kafkatest.Collect(t, c, target)
	cl := producer(t, c)
	value := []byte("a reminder, sooner or later")
	start := time.Now()
	tomorrow := start.Add(24 * time.Hour)
	w.during(sendLimit, "send", func() error {
		return sendAll(cl, 0, many, func(i int) *kgo.Record {
			return timer(requests, target, i%n, tomorrow.Add(time.Duration(i%7919)*time.Second), value)
		})
	})
	w.until(settleLimit, "all requests made a timer", func() bool { return p.Metric("waterclock_accepted_total") >= many })
	w.atRest(settleLimit, n)
	took := time.Since(start)
	_, loaded := p.Memory()
	soon := time.Now().Add(time.Second)
	if err := sendAll(cl, n, n+fired, func(i int) *kgo.Record {
		return timer(requests, target, i, soon.Add(time.Duration(i-n)*time.Millisecond), value)
	}); err != nil {
		t.Fatal(err)
	}
	byID := rig.Emissions(t, out.WaitFor(fired, time.Minute))
	w.atRest(settleLimit, n)
	if len(byID) != fired || len(out.Records()) != fired {
		t.Errorf("%d emissions of %d timers, want %d", len(out.Records()), len(byID), fired)
	}
	now, peak := p.Memory()
	live := rig.LiveHeap(t, pprof)
	t.Logf("%d pending after %d requests, at rest after %s: peak %.1f MiB, with the firings %.1f MiB, now %.1f MiB; %s",
		n, many, took.Round(time.Millisecond), float64(loaded)/mib, float64(peak)/mib, float64(now)/mib, w)
	w.check()
	stop(t, p)
	return memory{peak, live}
}

package load

import (
	"math/rand/v2"
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
	// moved timers, taken at random, are re-scheduled at movedRate a second by a
	// process that has them all pending, and fired of them at once.
	moved, movedRate, fired = 10_000, 1_000, 100
)

// Memory of a process with 2,000,000 pending timers against one with 200,000:
// its peak over its life, and what it keeps of the heap at rest.
//
// A peak is of what a process does rather than of what it keeps, so both do the
// same. One pair takes in 2,000,000 requests as fast as it can, with full queues:
// where 200,000 are pending in the end, each was re-scheduled nine times. Another
// pair starts on the folders of those, and has random ones re-scheduled and
// fired: few enough a second that the cache fills and the garbage stays small.
// Peaks of equal runs differ by some 50 MiB of garbage under full queues, by 3
// otherwise, the live heap by 10.
func TestMemoryDoesNotGrowWithPendingTimers(t *testing.T) {
	c := kafkatest.Shared(t)
	rig.Binary(t)
	small, big := memoryWith(t, c, few), memoryWith(t, c, many)
	for _, m := range []struct {
		what       string
		small, big int64
	}{
		{"peak while requests are taken in", small.takingIn, big.takingIn},
		{"peak of a process that has them", small.having, big.having},
		{"live heap", small.live, big.live},
	} {
		more := float64(m.big-m.small) / (many - few)
		t.Logf("%s: %.1f MiB with %d pending, %.1f MiB with %d, %.1f bytes more per timer",
			m.what, float64(m.small)/mib, few, float64(m.big)/mib, many, more)
		if more > perTimer {
			t.Errorf("%s: %.1f bytes more per timer, at most %d", m.what, more, perTimer)
		}
	}
}

// memory is what processes with so many pending timers showed, in bytes.
type memory struct{ takingIn, having, live int64 }

// memoryWith has a process take in requests until n timers are pending, and
// another one go on with them.
func memoryWith(t *testing.T, c *kafkatest.Cluster, n int) (m memory) {
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, partitions, nil, requests+"-out")
	out := kafkatest.Collect(t, c, target)
	cl := producer(t, c)
	value := []byte("a reminder, sooner or later")
	tomorrow := time.Now().Add(24 * time.Hour)
	request := func(number, i int) *kgo.Record {
		return timer(requests, target, number, tomorrow.Add(time.Duration(i%7919)*time.Second), value)
	}
	dir, pprof := t.TempDir(), rig.FreeAddr(t)

	p := serve(t, c, requests, "--data-dir", dir, "--pprof", pprof)
	w := watchOf(t, &p.Web, config.Default().QueueMemory)
	start := time.Now()
	w.during(sendLimit, "send", func() error {
		return sendAll(cl, 0, many, func(i int) *kgo.Record { return request(i%n, i) })
	})
	w.until(settleLimit, "all requests made a timer", func() bool { return p.Metric("waterclock_accepted_total") >= many })
	w.atRest(settleLimit, n)
	took := time.Since(start)
	_, m.takingIn = p.Memory()
	m.live = rig.LiveHeap(t, pprof)
	w.check()
	stop(t, p)
	t.Logf("%d pending after %d requests in %s: peak %.1f MiB; %s", n, many, took.Round(time.Millisecond), float64(m.takingIn)/mib, w)

	p = serve(t, c, requests, "--data-dir", dir)
	w = watchOf(t, &p.Web, config.Default().QueueMemory)
	w.atRest(settleLimit, n)
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	w.during(sendLimit, "re-schedule", func() error {
		return sendPaced(cl, 0, moved, movedRate, func(i int) *kgo.Record { return request(rng.IntN(n), i) })
	})
	soon := time.Now().Add(time.Second)
	if err := sendAll(cl, 0, fired, func(i int) *kgo.Record {
		return timer(requests, target, i, soon.Add(time.Duration(i)*time.Millisecond), value)
	}); err != nil {
		t.Fatal(err)
	}
	byID := rig.Emissions(t, out.WaitFor(fired, time.Minute))
	w.atRest(settleLimit, n-fired)
	if len(byID) != fired || len(out.Records()) != fired {
		t.Errorf("%d emissions of %d timers, want %d", len(out.Records()), len(byID), fired)
	}
	_, m.having = p.Memory()
	t.Logf("%d pending, started on their folder, %d re-scheduled: peak %.1f MiB; %s", n, moved, float64(m.having)/mib, w)
	w.check()
	stop(t, p)
	return m
}

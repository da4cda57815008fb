package load

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/kit/memory"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// peakLimit is what a process may come to hold that is told to use the least.
	peakLimit = memory.Minimum * 11 / 10
	// burst timers are due at one moment.
	burst = 600_000
	// burstLead is how long before that moment the first of them is sent: as long as
	// it takes until all are accepted, and some more.
	burstLead = 20 * time.Second

	// steady timers a second are due for steadyFor, and in the middle of it the
	// broker is paused.
	steady      = 10_000
	steadyFor   = 30 * time.Second
	brokerPause = 15 * time.Second
)

// Timers are scheduled as fast as the broker takes them, all for one moment, and
// fire: a process with the usual settings stays small.
func TestPeakMemoryOfABurst(t *testing.T) {
	runs.NeedFull(t)
	c := kafkatest.Shared(t)
	for _, b := range []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		// kgo's lz4 has readers keep 4 MiB for each batch.
		{"snappy", kgo.SnappyCompression()}, {"lz4", kgo.Lz4Compression()},
	} {
		t.Run(b.name, func(t *testing.T) {
			l := newLoaded(t, c, b.codec)
			due := time.Now().Add(burstLead)
			l.send(burst, func(int) time.Time { return due })
			_, taken := l.p.Memory()
			l.fired(burst)
			t.Logf("%.1f MiB when all were accepted", float64(taken)/mib)
		})
	}
}

// A broker is paused while ten thousand timers a second fall due: what has become
// due and cannot be written does not pile up in memory, and all of it fires.
func TestPeakMemoryWhileABrokerIsPaused(t *testing.T) {
	runs.NeedFull(t)
	const n = steady * int(steadyFor/time.Second) // half a burst
	c := kafkatest.Start(t, 1)
	l := newLoaded(t, c, kgo.SnappyCompression())
	first := time.Now().Add(burstLead / 2)
	l.send(n, func(i int) time.Time { return first.Add(time.Duration(i) * time.Second / steady) })
	await.For(t, time.Until(first.Add((steadyFor-brokerPause)/2)))
	before := l.out.Received()
	c.Pause(0)
	await.For(t, brokerPause)
	c.Resume(0)
	if before == 0 || before > n/2 {
		t.Errorf("%d of %d timers had fired when the broker was paused", before, n)
	}
	l.fired(n)
}

// loaded is a process with the usual settings, and what its load comes to.
type loaded struct {
	t                *testing.T
	p                *rig.Process
	w                *watch
	out              *history.Book
	cl               *kgo.Client
	requests, target string
	empty            int64 // bytes it held before
}

func newLoaded(t *testing.T, c *kafkatest.Cluster, codec kgo.CompressionCodec) *loaded {
	t.Helper()
	l := &loaded{t: t, requests: c.CreateTopic(t, partitions, nil)}
	l.target = c.CreateTopic(t, partitions, nil, l.requests+"-out")
	l.p = serve(t, c, l.requests)
	_, l.empty = l.p.Memory()
	l.w = watchOf(t, &l.p.Web, least().Requests)
	l.out = rig.Count(t, c, burst, l.target)
	l.cl = c.Client(t, kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(maxBuffered))
	return l
}

// send sends n timers as fast as it goes and waits until they are accepted.
func (l *loaded) send(n int, due func(i int) time.Time) {
	l.t.Helper()
	value := make([]byte, 100)
	start := time.Now()
	l.w.during(sendLimit, "send", func() error {
		return sendAll(l.cl, 0, n, func(i int) *kgo.Record { return timer(l.requests, l.target, i, due(i), value) })
	})
	sent := time.Since(start)
	l.w.until(settleLimit, "requests accepted",
		func() bool { return l.p.Metric("waterclock_accepted_total") == float64(n) })
	l.t.Logf("%d timers sent in %s, accepted in %s", n, sent.Round(time.Millisecond),
		time.Since(start).Round(time.Millisecond))
}

// fired waits until all n have fired, once, and checks what the process came to
// hold.
func (l *loaded) fired(n int) {
	l.t.Helper()
	l.w.until(settleLimit, "all fired", func() bool { return l.out.Received() == n })
	l.w.atRest(settleLimit, 0)
	rig.Fired(l.t, l.out, n)
	_, peak := l.p.Memory()
	l.t.Logf("peak memory %.1f MiB, %.1f when empty; %s", float64(peak)/mib, float64(l.empty)/mib, l.w)
	if peak > peakLimit {
		l.t.Errorf("peak memory %.1f MiB, want %d at most", float64(peak)/mib, peakLimit/mib)
	}
	l.w.check()
	stop(l.t, l.p)
}

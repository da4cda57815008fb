package load

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	few, many = 200_000, 2_000_000
	// perTimer is how much more memory a pending timer may cost, in bytes.
	perTimer = 16
	// valueBytes is the payload, which does not compress. The rows of few timers are more than the store keeps in
	// memory, as those of many are.
	valueBytes = 200
	// spread is between the first and the last due time of timers of tomorrow.
	spread = 2 * time.Hour
	// underWay is how many requests are on their way at most.
	underWay = 5_000
	// moved timers, taken at random, are re-scheduled, movedAtOnce on their way, by a process that has them all
	// pending, and fired of them at once.
	moved, movedAtOnce, fired = 10_000, 100, 100
	// tries is how often at most the many are taken in, and how often a process is started on them.
	tries = 3
)

// The memory of a process with 2,000,000 pending timers is compared with that of one with 200,000: its peak over its
// life (VmHWM).
//
// The first pair of processes takes the timers in. Another pair starts on their directories, and has random timers
// re-scheduled and some fired. Both of a pair run at the same time.
//
// A peak depends more on what a process does than on what it keeps: at full speed it is garbage and full queues, some
// 400 MiB of both, whatever is pending. So the next requests are sent only when the ones before are pending; then a
// machine that stands still for a second makes no queue. And heaps are collected early, because the room that serve
// gives them would hide what they hold. Equal runs still differ by 3 MiB, and by more on a starved machine, on which
// the collector is late. That makes a peak larger and never smaller, so a run that shows too much is repeated.
func TestMemoryDoesNotGrowWithPendingTimers(t *testing.T) {
	runs.NeedFull(t)
	t.Setenv("GOGC", "40")
	rig.Binary(t)
	small, big := newPending(t, few), newPending(t, many)
	a, b := together(t, "taken in", small, big, (*pending).takeIn)
	compare(t, "that takes them in", a, b, func() int64 {
		big = newPending(t, many)
		return big.takeIn()
	})
	a, b = together(t, "started", small, big, (*pending).goOn)
	compare(t, "that starts with them", a, b, big.goOn)
}

// together returns the peaks of two processes that do the same at the same time.
func together(t *testing.T, name string, small, big *pending, do func(*pending) int64) (a, b int64) {
	t.Run(name, func(t *testing.T) {
		for p, peak := range map[*pending]*int64{small: &a, big: &b} {
			t.Run(strconv.Itoa(p.n), func(t *testing.T) {
				t.Parallel()
				p.T = t
				*peak = do(p)
			})
		}
	})
	small.T, big.T = t, t
	if t.Failed() {
		t.FailNow()
	}
	return a, b
}

// compare holds the peak with many timers against that with few. One that is too large is taken again.
func compare(t *testing.T, which string, small, peak int64, again func() int64) {
	t.Helper()
	for try := 1; ; try++ {
		more := float64(peak-small) / (many - few)
		t.Logf("peak of a process %s: %.1f MiB with %d pending, %.1f MiB with %d, %.1f bytes more per timer",
			which, float64(small)/mib, few, float64(peak)/mib, many, more)
		if more <= perTimer {
			return
		}
		if try == tries {
			t.Fatalf("peak of a process %s: %.1f bytes more per timer, at most %d", which, more, perTimer)
		}
		peak = again()
	}
}

// pending is n timers in a directory.
type pending struct {
	*setup
	n         int
	dir       string
	payloads  *rand.ChaCha8
	out       *kafkatest.Collector
	emissions int // that must have come
}

func newPending(t *testing.T, n int) *pending {
	s := newSetup(t)
	s.Client = s.Cluster.Client(t) // not that with lz4: kgo's has the reader keep 4 MiB for each block
	return &pending{setup: s, n: n, dir: t.TempDir(), out: kafkatest.Collect(t, s.Cluster, s.Target),
		payloads: rand.NewChaCha8([32]byte{})}
}

// request is for a timer of tomorrow.
func (p *pending) request(number int) *kgo.Record {
	value := make([]byte, valueBytes)
	_, _ = p.payloads.Read(value) // never fails
	due := time.Now().Add(24*time.Hour + time.Duration(p.payloads.Uint64()%uint64(spread)))
	return p.timer(number, due, value)
}

// takeIn has a process take in as many requests as make the many timers, of which few are scheduled again and again,
// and returns its peak, in bytes: so it does the same, for as long, however much is pending.
func (p *pending) takeIn() int64 {
	p.start("--data-dir", p.dir)
	p.w.send(p.Client, many, underWay, func(i int) *kgo.Record { return p.request(i % p.n) })
	p.w.atRest(settleLimit, p.n)
	_, peak := p.p.Memory()
	p.end()
	return peak
}

// goOn has a process go on with them, re-schedule some and fire others, and returns its peak, in bytes.
func (p *pending) goOn() int64 {
	p.start("--data-dir", p.dir)
	p.w.atRest(settleLimit, p.n)
	random := rand.New(p.payloads)
	p.w.send(p.Client, moved, movedAtOnce, func(int) *kgo.Record { return p.request(random.IntN(p.n)) })
	soon := time.Now().Add(time.Second)
	p.w.send(p.Client, fired, fired, func(i int) *kgo.Record {
		return p.timer(p.n+p.emissions+i, soon.Add(time.Duration(i)*time.Millisecond), []byte("soon"))
	})
	p.emissions += fired
	p.out.WaitFor(p.emissions, time.Minute)
	p.w.atRest(settleLimit, p.n)
	rig.Exactly(p, p.out.Records(), p.emissions)
	_, peak := p.p.Memory()
	p.end()
	return peak
}

// send sends n requests, so many at once: the next ones when the instance has accepted those before.
func (w *watch) send(cl *kgo.Client, n, atOnce int, request func(i int) *kgo.Record) {
	w.t.Helper()
	before := w.in.Metric("waterclock_accepted_total")
	for first := 0; first < n; first += atOnce {
		end := min(n, first+atOnce)
		if err := sendAll(cl, first, end, request); err != nil {
			w.t.Fatalf("send: %v", err)
		}
		w.until(settleLimit, "requests accepted",
			func() bool { return w.in.Metric("waterclock_accepted_total") >= before+float64(end) })
	}
}

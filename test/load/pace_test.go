package load

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// wired is an instance whose requests to the broker are counted, and what its timers become.
type wired struct {
	*rig.Instance
	wire             *kafkatest.Wire
	cl               *kgo.Client
	requests, target string
	out              *history.Book
}

// pacedBy starts an instance with a firing interval, for that many timers.
func pacedBy(t *testing.T, c *kafkatest.Cluster, interval time.Duration, timers int) *wired {
	t.Helper()
	w := &wired{wire: kafkatest.NewWire(), cl: producer(t, c), requests: c.CreateTopic(t, partitions, nil)}
	t.Cleanup(w.wire.Close)
	w.target = c.CreateTopic(t, partitions, nil, w.requests+"-out")
	cfg := rig.Config(t, c.Seeds(), w.requests)
	cfg.FiringInterval, cfg.Lanes = interval, 1
	w.Instance = rig.Serve(t, cfg, node.Options{Dial: w.wire.Dial})
	w.Ready(partitions, time.Minute)
	w.out = rig.Count(t, c, timers, w.target)
	return w
}

// transactions is how many the instance has asked the broker to end.
func (w *wired) transactions() int { return w.wire.Requests(kmsg.EndTxn.Int16()) }

// fired waits until all of so many timers have fired, each once.
func (w *wired) fired(t *testing.T, timers int) {
	t.Helper()
	await.Until(t, time.Minute, "all have fired", func() bool { return w.out.Received() == timers })
	rig.Fired(t, w.out, timers)
}

// The firing interval is the price of lateness: by what a broker sees, an instance makes no more transactions than it
// allows, whatever the rate, and without it those that are needed; and what does not fit into a step does not
// wait for it.
func TestFiringIntervalCountedByTheBroker(t *testing.T) {
	runs.NeedSlow(t)
	c := kafkatest.Shared(t)
	t.Run("at a steady rate", func(t *testing.T) {
		t.Parallel()
		const timers, rate, interval = 1_600, 400, 50 * time.Millisecond
		w := pacedBy(t, c, interval, timers)
		before, begun := w.transactions(), time.Now()
		if err := sendPaced(w.cl, 0, timers, rate, func(i int) *kgo.Record {
			return timer(w.requests, w.target, i, time.Now().Add(time.Second), nil)
		}); err != nil {
			t.Fatal(err)
		}
		w.fired(t, timers)
		n, took := w.transactions()-before, time.Since(begun)
		t.Logf("%d transactions in %s", n, took)
		if most := int(took/interval) + 2; n > most || n == 0 {
			t.Errorf("%d transactions in %s, want at most %d with an interval of %s", n, took, most, interval)
		}
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		// Each moment at which timers are due needs one transaction. A machine that is too slow for that
		// has several of them in one.
		const moments, apart, together = 60, 50 * time.Millisecond, 8
		w := pacedBy(t, c, 0, moments*together)
		begin := time.Now().Add(6 * time.Second)
		if err := sendAll(w.cl, 0, moments*together, func(i int) *kgo.Record {
			return timer(w.requests, w.target, i, begin.Add(time.Duration(i/together)*apart), nil)
		}); err != nil {
			t.Fatal(err)
		}
		await.Until(t, time.Minute, "all are pending",
			func() bool { return w.Metric("waterclock_pending_timers") == moments*together })
		if time.Now().After(begin) {
			t.Fatal("the machine is too slow: timers are due that were to be pending")
		}
		before := w.transactions()
		w.fired(t, moments*together)
		n := w.transactions() - before
		t.Logf("%d transactions for %d moments", n, moments)
		if n > moments+2 || n < moments/3 {
			t.Errorf("%d transactions, want %d, one for each moment", n, moments)
		}
	})
	t.Run("full steps", func(t *testing.T) {
		t.Parallel()
		const timers, interval = 60_000, time.Second
		w := pacedBy(t, c, interval, timers)
		before, begun := w.transactions(), time.Now()
		if err := sendAll(w.cl, 0, timers,
			func(i int) *kgo.Record { return timer(w.requests, w.target, i, begun, nil) }); err != nil {
			t.Fatal(err)
		}
		w.fired(t, timers)
		n, took := w.transactions()-before, time.Since(begun)
		t.Logf("%d transactions in %s", n, took)
		if most := time.Duration(n) * interval / 2; took > most {
			t.Errorf("%d transactions took %s, want at most %s: full ones are held up", n, took, most)
		}
	})
}

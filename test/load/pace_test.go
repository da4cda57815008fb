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

// paced is an instance with a firing interval, whose requests to the broker are counted, and what its timers become.
type paced struct {
	*setup
	*rig.Instance
	wire *kafkatest.Wire
	out  *history.Book
	n    int // timers
}

func pacedBy(t *testing.T, interval time.Duration, lanes, n int) *paced {
	t.Helper()
	w := &paced{setup: newSetup(t), wire: kafkatest.NewWire(), n: n}
	t.Cleanup(w.wire.Close)
	cfg := rig.Config(t, w.Cluster.Seeds(), w.Requests)
	cfg.FiringInterval, cfg.Lanes, cfg.Memory = interval, lanes, 512*mib
	w.Instance = rig.Serve(t, cfg, node.Options{Dial: w.wire.Dial})
	w.Ready(partitions, time.Minute)
	w.out = rig.Count(t, w.Cluster, n, w.Target)
	return w
}

// transactions returns how many the instance asks the broker to end until all timers have fired, each once.
func (p *paced) transactions(send func() error) int {
	p.Helper()
	before := p.wire.Requests(kmsg.EndTxn.Int16())
	if err := send(); err != nil {
		p.Fatal(err)
	}
	await.Until(p.setup, time.Minute, "all have fired", func() bool { return p.out.Received() == p.n })
	rig.Fired(p.setup, p.out, p.n)
	return p.wire.Requests(kmsg.EndTxn.Int16()) - before
}

// The firing interval is the price of lateness: by what a broker sees, an instance makes no more transactions than it
// allows, whatever the rate, and without it those that are needed; and what does not fit into a step does not
// wait for it. Lanes are as many as are needed: others join under overload, and leave again.
func TestFiringIntervalCountedByTheBroker(t *testing.T) {
	runs.NeedSlow(t)
	t.Run("at a steady rate", func(t *testing.T) {
		t.Parallel()
		const timers, rate, interval = 1_600, 400, 50 * time.Millisecond
		w := pacedBy(t, interval, 3, timers)
		begun := time.Now()
		n := w.transactions(func() error {
			return sendPaced(w.Client, 0, timers, rate, func(i int) *kgo.Record {
				return w.timer(i, time.Now().Add(time.Second), nil)
			})
		})
		took := time.Since(begun)
		if most := int(took/interval) + 2; n > most || n == 0 {
			t.Errorf("%d transactions in %s, want at most %d with an interval of %s", n, took, most, interval)
		}
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		// Each moment at which timers are due needs one transaction. A machine that is too slow for that
		// has several of them in one.
		const moments, apart, together = 60, 50 * time.Millisecond, 8
		w := pacedBy(t, 0, 1, moments*together)
		begin := time.Now().Add(6 * time.Second)
		if err := sendAll(w.Client, 0, moments*together, func(i int) *kgo.Record {
			return w.timer(i, begin.Add(time.Duration(i/together)*apart), nil)
		}); err != nil {
			t.Fatal(err)
		}
		await.Until(t, time.Minute, "all are pending",
			func() bool { return w.Metric("waterclock_pending_timers") == moments*together })
		if time.Now().After(begin) {
			t.Fatal("the machine is too slow: timers are due that were to be pending")
		}
		if n := w.transactions(func() error { return nil }); n > moments+2 || n < moments/3 {
			t.Errorf("%d transactions, want %d, one for each moment", n, moments)
		}
	})
	t.Run("full steps", func(t *testing.T) {
		t.Parallel()
		const timers, interval = 60_000, time.Second
		w := pacedBy(t, interval, 1, timers)
		begun := time.Now()
		n := w.transactions(func() error {
			return sendAll(w.Client, 0, timers, func(i int) *kgo.Record { return w.timer(i, begun, nil) })
		})
		if took, most := time.Since(begun), time.Duration(n)*interval/2; took > most {
			t.Errorf("%d transactions took %s, want at most %s: full ones are held up", n, took, most)
		}
	})
	t.Run("overload", func(t *testing.T) {
		t.Parallel()
		const timers = 150_000
		w := pacedBy(t, 20*time.Millisecond, 3, timers)
		lanes := func() float64 { return w.Metric("waterclock_lanes") }
		if n := lanes(); n != 1 {
			t.Errorf("%v lanes at the start, want 1", n)
		}
		at, sent := time.Now(), make(chan error, 1)
		go func() {
			sent <- sendAll(w.Client, 0, timers, func(i int) *kgo.Record { return w.timer(i, at, nil) })
		}()
		await.Until(t, time.Minute, "another lane joins", func() bool { return lanes() > 1 })
		w.transactions(func() error { return <-sent })
		await.Until(t, time.Minute, "one lane is left", func() bool { return lanes() == 1 })
	})
}

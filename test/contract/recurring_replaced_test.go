package contract

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
)

// A step with firings is out, and its outcome open, when their timers are replaced and cancelled: what fired has fired,
// and the new generation begins at occurrence 1.
func TestReplacedInTheMiddleOfAFiring(t *testing.T) {
	t.Parallel()
	endTxn := kmsg.EndTxn.Int16()
	for _, x := range []struct {
		name   string
		inject func(*kafkatest.Wire) *kafkatest.Fault
		open   time.Duration // how long its outcome is
	}{
		{"that is committed", func(w *kafkatest.Wire) *kafkatest.Fault { return w.HoldResponse(endTxn) }, 3 * every},
		{"that is committed late", func(w *kafkatest.Wire) *kafkatest.Fault { return w.Hold(endTxn) }, 3 * every},
		{"that is given up", func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropRequest(endTxn, kafkatest.Every) },
			17 * every},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.open > 10*every {
				runs.NeedSlow(t)
			}
			t.Parallel()
			const n, again = 20, 3
			last := int64(12*every+x.open) / int64(every)
			r := newRecurrence(t)
			wire := kafkatest.NewWire()
			t.Cleanup(wire.Close)
			r.serve(r.config(), 1, node.Options{Dial: wire.Dial})
			first := r.soon(3 * time.Second)
			var recs, meanwhile []*kgo.Record
			for i := range n {
				for _, what := range []string{"kept", "replaced", "moved", "cancelled"} {
					recs = append(recs, r.recurring(fmt.Sprint(what, "-", i), "1", first, "timer-catch-up", "all",
						"timer-count", fmt.Sprint(last)))
				}
			}
			r.Send(recs...)
			r.in.Balanced(4 * n)
			r.fires(2, fmt.Sprint("kept-", n-1))
			fault := x.inject(wire)
			if err := fault.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			second := r.soon(x.open + 5*time.Second) // when all is over
			past := first.Add(-time.Minute)
			for i := range n {
				meanwhile = append(meanwhile,
					r.recurring(fmt.Sprint("replaced-", i), "2", second, "timer-count", fmt.Sprint(again)),
					r.recurring(fmt.Sprint("moved-", i), "2", past, "timer-catch-up", "all", "timer-count",
						fmt.Sprint(again)),
					r.Cancel(fmt.Sprint("cancelled-", i)))
			}
			r.Send(meanwhile...)
			sent := time.Now()
			r.at(sent.Add(x.open)) // they are planned long since
			fault.Release()
			r.at(second.Add(again * every))
			by := r.over()
			for i := range n {
				kept := by[fmt.Sprint("kept-", i)]
				r.contiguous(fmt.Sprint("kept-", i), kept, first.UnixMilli(), last)
				for what, from := range map[string]time.Time{"replaced": second, "moved": past, "cancelled": {}} {
					id := fmt.Sprint(what, "-", i)
					old, renewed := r.generations(id, by[id])
					r.contiguous(id, old, first.UnixMilli(), int64(len(old)))
					if len(old) < 2 || first.Add(time.Duration(len(old)-1)*every).After(sent.Add(2*every)) {
						t.Errorf("%s: the old generation has fired %d times", id, len(old))
					}
					want := int64(again)
					if from.IsZero() {
						want = 0
					}
					r.contiguous(id, renewed, from.UnixMilli(), want)
				}
			}
		})
	}
}

// generations divides what has the value "1" from the rest, which comes behind it, or in one step with it: that is in
// the order of due times.
func (r *recurrence) generations(id string, fs []firing) (old, renewed []firing) {
	r.Helper()
	for _, f := range fs {
		switch {
		case f.value != "1":
			renewed = append(renewed, f)
		case len(renewed) > 0 && (f.stamp != renewed[0].stamp || f.due < renewed[0].due):
			r.Errorf("%s: occurrence %d of the old generation came behind the new one", id, f.number)
			fallthrough
		default:
			old = append(old, f)
		}
	}
	return old, renewed
}

package crash

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// Two transactional producers and a plain one write to one request partition;
// most transactions abort, some overlap. The log is full of gaps then.
func TestRequestsOfAbortedTransactions(t *testing.T) {
	t.Parallel()
	const rounds = 30
	s := rig.NewSetup(t, kafkatest.Shared(t), 1, 1)
	cfg := settings(s)
	first := s.Serve(cfg, node.Options{})
	want := make(rig.Values)
	later := time.Now().Add(never)
	x, y := s.Foreign("x"), s.Foreign("y")
	var last *kgo.Record
	pending := 0
	for i := range rounds {
		id := func(class string) string { return fmt.Sprint(class, "-", i) }
		due := time.Now().Add(time.Duration(i%5) * 100 * time.Millisecond)
		s.Send(s.Valued(id("kept"), "1", later), s.Valued(id("plain"), "1", due))
		pending++
		x.Begin(s.Valued(id("x-aborted"), "1", due), s.Cancel(id("kept")), s.Valued(id("plain"), "aborted", due))
		y.Begin(s.Valued(id("y-committed"), "1", due))
		x.Add(s.Valued(id("kept"), "aborted", due))
		x.End(kgo.TryAbort)
		last = s.Valued(id("y-too"), "1", due)
		y.Add(last)
		y.End(kgo.TryCommit)
		want.Add(id("plain"), "1")
		want.Add(id("y-committed"), "1")
		want.Add(id("y-too"), "1")
		if i%3 == 0 { // a tail of aborted batches
			for range 3 {
				y.Begin(s.Valued(id("y-aborted"), "1", due))
				y.End(kgo.TryAbort)
			}
		}
	}
	s.Out.WaitFor(3*rounds, rig.Patience)
	s.Pending(pending, first)
	// The tracker's position is behind the last committed request, no matter what lies between.
	await.Until(s, rig.Patience, "the group's offset behind the last request", func() bool {
		offsets, err := s.Admin.FetchOffsets(t.Context(), s.Group())
		if err != nil {
			return false
		}
		o, ok := offsets.Lookup(s.Requests, 0)
		return ok && o.At > last.Offset
	})
	first.End()
	// The next owner finds an aborted tail, and a directory that is gone.
	x.Begin(s.Cancel("kept-0"), s.Valued("x-aborted", "1", time.Now()))
	x.End(kgo.TryAbort)
	cfg.DataDir = t.TempDir()
	second := s.Serve(cfg, node.Options{})
	s.Pending(pending, second)
	s.Finish(want)
}

// X's record lies below the last stable offset, which H's open transaction holds; the marker that aborts it lies
// behind. No poll ever shows anything of it, so only a raw fetch tells that planning has come to the end.
func TestAbortedTailWithItsMarkerBehindAHangingTransaction(t *testing.T) {
	t.Parallel()
	for _, commit := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		t.Run(fmt.Sprint("hanging one commits ", bool(commit)), func(t *testing.T) {
			t.Parallel()
			s := rig.NewSetup(t, kafkatest.Shared(t), 1, 1)
			cfg := settings(s)
			want := make(rig.Values)
			first := s.Serve(cfg, node.Options{})
			due := time.Now().Add(s.Lead) // not before the cancel
			s.Send(s.Valued("before", "1", due), s.Valued("cancelled", "1", due))
			s.Pending(2, first)
			first.End()
			want.Add("before", "1")
			s.Send(s.Cancel("cancelled"))
			x, h := s.Foreign("x"), s.Foreign("h")
			x.Begin(s.Valued("aborted", "1", time.Now()), s.Cancel("before"))
			h.Begin(s.Valued("hanging", "1", time.Now()))
			x.End(kgo.TryAbort)

			second := rig.Serve(t, cfg, node.Options{HeldPatience: time.Second})
			took := second.Ready(1, rig.Patience)
			t.Logf("live after %s beside a hanging transaction", took)
			if took > 15*time.Second {
				t.Errorf("live after %s", took)
			}
			s.Out.WaitFor(1, rig.Patience)
			s.Out.Quiet(quiet)
			h.End(commit)
			if commit {
				want.Add("hanging", "1")
			}
			s.Finish(want)
		})
	}
}

// 33: a transaction of somebody else is open on the request topic, while others write timers
// there. No consumer is shown what is behind it, nor that there is anything: lag, /readyz, a
// metric and the log say so, and name the producer. When it ends all that was behind it comes,
// once, and the signals are over.
func TestForeignTransactionUnderLoad(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const open = time.Minute
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	in, log := rig.ServeLogged(t, settings(s), node.Options{})
	in.Ready(2, rig.Patience)
	manual := s.Cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	on := func(partition int32, r *kgo.Record) *kgo.Record { r.Partition = partition; return r }
	begun := time.Now()
	rig.Send(s, manual,
		on(0, s.Valued("early", "1", begun.Add(open/2))), on(0, s.Valued("late", "1", begun.Add(open+30*time.Second))))
	s.Pending(2, in)

	// The cancel of early comes too late, as docs/LIMITS.md says; that of late does not.
	want := rig.Values{"early": {"1"}, "foreign": {"1"}}
	foreign := s.Foreign("billing")
	foreign.Begin(s.Valued("foreign", "1", begun))
	rig.Send(s, manual, on(0, s.Cancel("early")), on(0, s.Cancel("late")))
	var load sync.WaitGroup
	var sent [2]int
	for p := range int32(2) {
		load.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ; time.Since(begun) < open; <-tick.C {
				manual.Produce(context.Background(),
					on(p, s.Valued(fmt.Sprintf("load-%d-%d", p, sent[p]), "1", time.Now().Add(time.Second))), nil)
				sent[p]++
			}
		})
	}

	gauge := func(name string, more ...string) float64 {
		return in.Metric(name, append(more, "topic", s.Requests, "partition", "0")...)
	}
	await.Until(t, open, "the lag counts to the log's end", func() bool {
		return gauge("waterclock_intake_lag_records") > 50 && gauge("waterclock_intake_lag_seconds") > 1
	})
	await.Until(t, open, "a metric names the producer", func() bool {
		return gauge("waterclock_intake_held_seconds", "transactional_id", "billing-"+s.Requests) > 2
	})
	status, body := in.Readyz()
	if status != http.StatusOK || !strings.Contains(body, "billing-"+s.Requests) ||
		!strings.Contains(body, "open since "+begun.UTC().Format("2006-01-02T15:")) {
		t.Errorf("/readyz is %d and says %s", status, body)
	}
	await.Until(t, open, "the log names the producer", func() bool { return len(log.Lines("billing-"+s.Requests)) > 0 })
	if lag := in.Metric("waterclock_intake_lag_records", "topic", s.Requests, "partition", "1"); lag > 50 {
		t.Errorf("the other partition lags by %v records", lag)
	}
	if n := in.Metric("waterclock_intake_held_seconds", "partition", "1"); n > 0 {
		t.Errorf("the other partition is held for %v s", n)
	}
	load.Wait()
	if err := manual.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Out.Records() {
		if id := r.Header("waterclock-id"); strings.HasPrefix(id, "load-0-") || id == "foreign" {
			t.Fatalf("%s came while the transaction was open: this test tests nothing", id)
		}
	}
	foreign.End(kgo.TryCommit)
	for p, n := range sent {
		for i := range n {
			want.Add(fmt.Sprintf("load-%d-%d", p, i), "1")
		}
	}
	await.Until(t, rig.Patience, "lag, /readyz and the metric say that it is over", func() bool {
		_, body := in.Readyz()
		return gauge("waterclock_intake_lag_records") == 0 && gauge("waterclock_intake_held_seconds") == 0 &&
			!strings.Contains(body, "billing") &&
			len(log.Lines("it has ended")) > 0
	})
	s.Finish(want)
	s.Pending(0, in)
}

// The gate waits to the log's end as of the acquisition. A cancel that stands behind an open
// transaction wins if that ends within the gate's rig.Patience, and comes too late otherwise: then
// the timers fire, and it is said.
func TestGateBehindAForeignTransaction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		patience time.Duration
		ends     bool
	}{{"ends in time", 0, true}, {"hangs", time.Second, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := rig.NewSetup(t, kafkatest.Shared(t), 1, 1)
			due := time.Now().Add(-time.Second)
			s.Send(s.Valued("a", "1", due), s.Valued("b", "1", due))
			foreign := s.Foreign("x")
			foreign.Begin(s.Valued("foreign", "1", due))
			s.Send(s.Cancel("a"))

			in, log := rig.ServeLogged(t, settings(s), node.Options{HeldPatience: c.patience})
			want := rig.Values{"b": {"1"}, "foreign": {"1"}}
			if c.ends {
				await.Until(t, rig.Patience, "the gate waits, and /readyz says for whom", func() bool {
					_, body := in.Readyz()
					return strings.Contains(body, `"gated"`) && strings.Contains(body, "x-"+s.Requests)
				})
				foreign.End(kgo.TryCommit)
				in.Ready(1, rig.Patience)
			} else {
				in.Ready(1, rig.Patience)
				s.Out.WaitFor(2, rig.Patience)
				if len(log.Lines("catch-up barrier opened despite an open transaction")) == 0 {
					t.Error("nobody says that the gate has opened without them")
				}
				want.Add("a", "1")
				foreign.End(kgo.TryAbort)
				delete(want, "foreign")
			}
			s.Finish(want)
		})
	}
}

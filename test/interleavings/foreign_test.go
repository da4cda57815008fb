package interleavings

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// Two transactional producers and a plain one write to one request partition;
// most transactions abort, some overlap. The log is full of gaps then.
func TestRequestsOfAbortedTransactions(t *testing.T) {
	t.Parallel()
	const rounds = 30
	w := newSetup(t, kafkatest.Shared(t), 1)
	cfg := w.config()
	first := rig.Serve(t, cfg, node.Options{})
	first.Ready(1, patience)
	want := make(map[string][]string)
	later := time.Now().Add(never)
	x, y := w.foreign("x"), w.foreign("y")
	var last *kgo.Record
	pending := 0
	for i := range rounds {
		id := func(class string) string { return fmt.Sprint(class, "-", i) }
		due := time.Now().Add(time.Duration(i%5) * 100 * time.Millisecond)
		w.Send(w.timer(id("kept"), "1", later), w.timer(id("plain"), "1", due))
		pending++
		x.begin(w.timer(id("x-aborted"), "1", due), w.Cancel(id("kept")), w.timer(id("plain"), "aborted", due))
		y.begin(w.timer(id("y-committed"), "1", due))
		x.add(w.timer(id("kept"), "aborted", due))
		x.end(kgo.TryAbort)
		last = w.timer(id("y-too"), "1", due)
		y.add(last)
		y.end(kgo.TryCommit)
		values(want, id("plain"), "1")
		values(want, id("y-committed"), "1")
		values(want, id("y-too"), "1")
		if i%3 == 0 { // a tail of aborted batches
			for range 3 {
				y.begin(w.timer(id("y-aborted"), "1", due))
				y.end(kgo.TryAbort)
			}
		}
	}
	w.Out.WaitFor(3*rounds, patience)
	w.pending(&first.Web, pending)
	// The tracker's position is behind the last committed request, no matter
	// what lies between.
	await.Until(w, patience, "the group's offset behind the last request", func() bool {
		offsets, err := w.adm.FetchOffsets(t.Context(), w.group())
		if err != nil {
			return false
		}
		o, ok := offsets.Lookup(w.Requests, 0)
		return ok && o.At > last.Offset
	})
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	// The next owner finds an aborted tail, and a directory that is gone.
	x.begin(w.Cancel("kept-0"), w.timer("x-aborted", "1", time.Now()))
	x.end(kgo.TryAbort)
	cfg.DataDir = t.TempDir()
	second := rig.Serve(t, cfg, node.Options{})
	second.Ready(1, patience)
	w.pending(&second.Web, pending)
	w.finish(want)
}

// X's record lies below the last stable offset, which H's open transaction
// holds; the marker that aborts it lies behind. No poll ever shows anything of
// it, so only a raw fetch tells that planning has come to the end.
func TestAbortedTailWithItsMarkerBehindAHangingTransaction(t *testing.T) {
	t.Parallel()
	for _, commit := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		t.Run(fmt.Sprint("hanging one commits ", bool(commit)), func(t *testing.T) {
			t.Parallel()
			w := newSetup(t, kafkatest.Shared(t), 1)
			cfg := w.config()
			want := make(map[string][]string)
			first := rig.Serve(t, cfg, node.Options{})
			first.Ready(1, patience)
			due := time.Now().Add(w.lead) // not before the cancel
			w.Send(w.timer("before", "1", due), w.timer("cancelled", "1", due))
			w.pending(&first.Web, 2)
			if err := first.Stop(); err != nil {
				t.Fatal(err)
			}
			values(want, "before", "1")
			w.Send(w.Cancel("cancelled"))
			x, h := w.foreign("x"), w.foreign("h")
			x.begin(w.timer("aborted", "1", time.Now()), w.Cancel("before"))
			h.begin(w.timer("hanging", "1", time.Now()))
			x.end(kgo.TryAbort)

			second := rig.Serve(t, cfg, node.Options{HeldPatience: time.Second})
			took := second.Ready(1, patience)
			t.Logf("live after %s beside a hanging transaction", took)
			if took > 15*time.Second {
				t.Errorf("live after %s", took)
			}
			w.Out.WaitFor(1, patience)
			w.Out.Quiet(quiet)
			h.end(commit)
			if commit {
				values(want, "hanging", "1")
			}
			w.finish(want)
		})
	}
}

package crash

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
		s.Send(s.Timer(id("kept"), "1", later), s.Timer(id("plain"), "1", due))
		pending++
		x.Begin(s.Timer(id("x-aborted"), "1", due), s.Cancel(id("kept")), s.Timer(id("plain"), "aborted", due))
		y.Begin(s.Timer(id("y-committed"), "1", due))
		x.Add(s.Timer(id("kept"), "aborted", due))
		x.End(kgo.TryAbort)
		last = s.Timer(id("y-too"), "1", due)
		y.Add(last)
		y.End(kgo.TryCommit)
		want.Add(id("plain"), "1")
		want.Add(id("y-committed"), "1")
		want.Add(id("y-too"), "1")
		if i%3 == 0 { // a tail of aborted batches
			for range 3 {
				y.Begin(s.Timer(id("y-aborted"), "1", due))
				y.End(kgo.TryAbort)
			}
		}
	}
	s.Out.WaitFor(3*rounds, rig.Patience)
	s.Pending(pending, first)
	// The tracker's position is behind the last committed request, no matter
	// what lies between.
	await.Until(s, rig.Patience, "the group's offset behind the last request", func() bool {
		offsets, err := s.Adm.FetchOffsets(t.Context(), s.Group())
		if err != nil {
			return false
		}
		o, ok := offsets.Lookup(s.Requests, 0)
		return ok && o.At > last.Offset
	})
	first.End()
	// The next owner finds an aborted tail, and a directory that is gone.
	x.Begin(s.Cancel("kept-0"), s.Timer("x-aborted", "1", time.Now()))
	x.End(kgo.TryAbort)
	cfg.DataDir = t.TempDir()
	second := s.Serve(cfg, node.Options{})
	s.Pending(pending, second)
	s.Finish(want)
}

// X's record lies below the last stable offset, which H's open transaction
// holds; the marker that aborts it lies behind. No poll ever shows anything of
// it, so only a raw fetch tells that planning has come to the end.
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
			s.Send(s.Timer("before", "1", due), s.Timer("cancelled", "1", due))
			s.Pending(2, first)
			first.End()
			want.Add("before", "1")
			s.Send(s.Cancel("cancelled"))
			x, h := s.Foreign("x"), s.Foreign("h")
			x.Begin(s.Timer("aborted", "1", time.Now()), s.Cancel("before"))
			h.Begin(s.Timer("hanging", "1", time.Now()))
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

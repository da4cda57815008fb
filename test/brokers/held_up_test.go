package brokers

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// Metrics that are 0 wherever nothing is held up: here a fault holds up what each of them shows, and it goes back to 0
// when that is over. Instances run in the test's process where only that can be made to stop at the right place.
func TestMetricsOfDelayedWork(t *testing.T) {
	t.Parallel()
	rising := func(t *testing.T, in rig.Shown, names ...string) {
		t.Helper()
		for _, name := range names {
			await.Until(t, rig.Patience, name+" is not 0", func() bool { return in.Metric(name) > 0 })
		}
	}
	settled := func(t *testing.T, in rig.Shown, names ...string) {
		t.Helper()
		for _, name := range append(names, "waterclock_ledger") {
			await.Until(t, rig.Patience, name+" is 0", func() bool { return in.Metric(name) == 0 })
		}
	}

	// Commits hang: what is due is planned until the queue is twice full, what is written is read until it is full.
	t.Run("queue, lag and overdue", func(t *testing.T) {
		t.Parallel()
		const n, size = 3000, 8_000 // 24 MB, three times what a queue holds, in many rounds of firings
		s := rig.NewSetup(t, kafkatest.Shared(t), 1, 1)
		wire := s.Wire()
		in := s.Serve(s.Config(), node.Options{Dial: wire.Dial, Memory: rig.Queues(8 << 20)})
		due := time.Now().Add(20 * time.Second)
		s.Send(big(s, "due-", n, size, due)...)
		s.Pending(n, in)
		// Commits are held no longer than needed. A busy machine may find its broker unresponsive, as that says little
		// now, and lose the partition: it is not acquired again before its claim is committed.
		s.At(due.Add(-5 * time.Second))
		fetches := wire.Hold(kmsg.Fetch.Int16())
		t.Cleanup(fetches.Release)
		s.Hit(fetches)
		held := wire.Hold(kmsg.EndTxn.Int16())
		t.Cleanup(held.Release)
		s.NotYet(due)
		s.Send(big(s, "more-", n, size, due)...)
		fetches.Release() // what comes is behind the log's end by far
		rising(t, in, "waterclock_intake_lag_records", "waterclock_intake_lag_seconds", "waterclock_queue_entries",
			"waterclock_queue_bytes", "waterclock_oldest_due_seconds")
		held.Release()
		s.Out.WaitFor(2*n, rig.Patience)
		rig.Exactly(t, s.Out.Records(), 2*n)
		settled(t, in, "waterclock_oldest_due_seconds", "waterclock_queue_entries", "waterclock_queue_bytes",
			"waterclock_intake_lag_records", "waterclock_pending_timers")
	})

	// Fetches hang: a replay has begun and does not go on.
	t.Run("replay", func(t *testing.T) {
		t.Parallel()
		s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
		served(s)
		wire := s.Wire()
		joins := wire.Hold(kmsg.JoinGroup.Int16()) // before that it reads the calendars
		t.Cleanup(joins.Release)
		in := rig.Serve(t, s.Config(), node.Options{Dial: wire.Dial})
		s.Hit(joins)
		held := wire.Hold(kmsg.Fetch.Int16())
		t.Cleanup(held.Release)
		joins.Release()
		rising(t, in, "waterclock_replay_remaining_offsets")
		held.Release()
		in.Ready(partitions, rig.Patience)
		rising(t, in, "waterclock_replayed_offsets_total", "waterclock_pending_timers")
		settled(t, in, "waterclock_replay_remaining_offsets")
	})

	// A transaction of a process that is in the group no more stands open on a target: the watch ends it, and what is
	// behind it is seen.
	t.Run("open transaction", func(t *testing.T) {
		t.Parallel()
		s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
		s.Gone("0123456789abcdef").Begin(&kgo.Record{Topic: s.Target, Value: []byte("never to be seen")})
		p := s.StartReady()
		s.Send(s.Valued("a", "v", time.Now()))
		rising(t, p, "waterclock_open_transactions_ended_total")
		if got := s.Out.WaitFor(1, rig.Patience); string(got[0].Value) != "v" {
			t.Errorf("seen: %q", got[0].Value)
		}
		settled(t, p)
	})

	// The process is stopped for longer than it takes to be noticed, and for less than its session.
	t.Run("pause", func(t *testing.T) {
		t.Parallel()
		s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
		p := s.StartReady()
		p.Pause()
		await.For(t, 6*time.Second)
		p.Continue()
		rising(t, p, "waterclock_pauses_total")
		settled(t, p)
	})
}

// big are requests with a value of some size.
func big(s *rig.Setup, prefix string, n, size int, due time.Time) []*kgo.Record {
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = s.Valued(fmt.Sprint(prefix, i), strings.Repeat("x", size), due)
	}
	return recs
}

// The states that a partition passes through in milliseconds are shown when it is held up in one: not ready, and live
// when that is over.
func TestPartitionHeldUpOnItsWay(t *testing.T) {
	t.Parallel()
	in := func(t *testing.T, in rig.Shown, state string) {
		t.Helper()
		await.Until(t, rig.Patience, "a partition is "+state,
			func() bool { return in.Metric("waterclock_partitions", "state", state) == 1 })
		if status, body := in.Readyz(); status == 200 {
			t.Errorf("ready while a partition is %s: %s", state, body)
		}
	}

	// The committed offset is not told.
	t.Run("acquiring", func(t *testing.T) {
		t.Parallel()
		s := rig.NewSetup(t, kafkatest.Shared(t), 1, 1)
		wire := s.Wire()
		held := wire.Hold(kmsg.OffsetFetch.Int16())
		t.Cleanup(held.Release)
		p := rig.Serve(t, s.Config(), node.Options{Dial: wire.Dial})
		in(t, p, "acquiring")
		held.Release()
		p.Ready(1, rig.Patience)
	})

	// More was in the log at the acquisition than the queue holds, and a look-up hangs: intake pauses before it has
	// read what may cancel something. What is due waits for that.
	t.Run("gated", func(t *testing.T) {
		t.Parallel()
		const n, size = 3000, 8_000 // three times what the queue holds
		s := rig.NewSetup(t, kafkatest.Shared(t), 1, 1)
		s.Send(big(s, "due-", n, size, time.Now())...)
		for i := range 10 { // the last ones of all
			s.Send(s.Cancel(fmt.Sprint("due-", i)))
		}
		lookup := make(chan struct{})
		release := sync.OnceFunc(func() { close(lookup) })
		p := rig.Serve(t, s.Config(), node.Options{
			BeforeLookup: func([][]byte) { <-lookup }, Memory: rig.Queues(8 << 20)})
		t.Cleanup(release)
		in(t, p, "gated")
		if !s.Out.Quiet(2 * time.Second) {
			t.Error("timers fire while the partition is gated")
		}
		in(t, p, "gated")
		release()
		p.Ready(1, rig.Patience)
		rig.Complete(t, s.Out, n-10)
		p.Balanced(0)
	})
}

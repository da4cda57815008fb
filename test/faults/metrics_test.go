package faults

import (
	"bytes"
	"fmt"
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

// Metrics that are 0 wherever nothing is held up: here a fault holds up what each
// of them shows, and it goes back to 0 when that is over. Instances run in the
// test's process where only that can be made to stop at the right place.
func TestMetricsOfDelayedWork(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	rising := func(t *testing.T, in *rig.Web, names ...string) {
		t.Helper()
		for _, name := range names {
			await.Until(t, readyLimit, name+" is not 0", func() bool { return in.Metric(name) > 0 })
		}
	}
	settled := func(t *testing.T, in *rig.Web, names ...string) {
		t.Helper()
		for _, name := range append(names, "waterclock_ledger") {
			await.Until(t, readyLimit, name+" is 0", func() bool { return in.Metric(name) == 0 })
		}
	}

	// Commits hang: what is due is planned until the queue is twice full, what is
	// written is read until it is full.
	t.Run("queue, lag and overdue", func(t *testing.T) {
		t.Parallel()
		const n, size = 3000, 8_000 // 24 MB, three times what a queue holds, in many rounds of firings
		requests := c.CreateTopic(t, 1, nil)
		target := c.CreateTopic(t, 1, nil, requests+"-out")
		out := kafkatest.Collect(t, c, target)
		wire := kafkatest.NewWire()
		t.Cleanup(wire.Close)
		cfg := rig.Config(t, c.Seeds(), requests)
		in := rig.Serve(t, cfg, node.Options{Dial: wire.Dial, Memory: rig.Queues(8 << 20)})
		in.Ready(1, readyLimit)
		due := time.Now().Add(20 * time.Second)
		cl := c.Client(t)
		rig.Send(t, cl, big(requests, target, "due-", n, size, due)...)
		inTime := func() {
			t.Helper()
			if late := time.Since(due); late > 0 {
				t.Fatalf("the machine is too slow for this test: what is due fires, %s too early for it", late)
			}
		}
		await.Until(t, readyLimit, "all are pending", func() bool {
			inTime()
			return in.Metric(
				"waterclock_pending_timers") == n
		})
		fetches := wire.Hold(kmsg.Fetch.Int16())
		t.Cleanup(fetches.Release)
		if err := fetches.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		held := wire.Hold(kmsg.EndTxn.Int16())
		t.Cleanup(held.Release)
		rig.Send(t, cl, big(requests, target, "more-", n, size, due)...)
		fetches.Release() // what comes is behind the log's end by far
		rising(t, &in.Web, "waterclock_intake_lag_records", "waterclock_intake_lag_seconds", "waterclock_queue_entries",
			"waterclock_queue_bytes")
		inTime()
		rising(t, &in.Web, "waterclock_oldest_due_seconds")
		held.Release()
		out.WaitFor(2*n, readyLimit)
		rig.Exactly(t, out.Records(), 2*n)
		settled(t, &in.Web, "waterclock_oldest_due_seconds", "waterclock_queue_entries", "waterclock_queue_bytes",
			"waterclock_intake_lag_records", "waterclock_pending_timers")
	})

	// A step is committed and not applied: the ledger has it, the store has not.
	t.Run("ledger", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t, c)
		target := c.CreateTopic(t, 1, nil, s.requests+"-out")
		apply := make(chan struct{})
		release := sync.OnceFunc(func() { close(apply) })
		armed := make(chan struct{})
		in := rig.Serve(t, rig.Config(t, c.Seeds(), s.requests), node.Options{BeforeApply: func(string, int32) {
			select {
			case <-armed:
				<-apply
			default: // the first checkpoints
			}
		}})
		t.Cleanup(release)
		in.Ready(partitions, readyLimit)
		close(armed)
		rig.Send(t, c.Client(t), timer(s.requests, target, "a", "v", time.Now().Add(time.Hour)))
		rising(t, &in.Web, "waterclock_ledger")
		release()
		settled(t, &in.Web)
	})

	// Fetches hang: a replay has begun and does not go on.
	t.Run("replay", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t, c)
		s.served(t)
		wire := kafkatest.NewWire()
		t.Cleanup(wire.Close)
		held := wire.Hold(kmsg.Fetch.Int16())
		t.Cleanup(held.Release)
		in := rig.Serve(t, rig.Config(t, c.Seeds(), s.requests), node.Options{Dial: wire.Dial})
		rising(t, &in.Web, "waterclock_replay_remaining_offsets")
		held.Release()
		in.Ready(partitions, readyLimit)
		rising(t, &in.Web, "waterclock_replayed_offsets_total", "waterclock_pending_timers")
		settled(t, &in.Web, "waterclock_replay_remaining_offsets")
	})

	// A transaction of a process that is in the group no more stands open on a
	// target: the watch ends it, and what is behind it is seen.
	t.Run("open transaction", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t, c)
		target := c.CreateTopic(t, 1, nil, s.requests+"-out")
		out := kafkatest.Collect(t, c, target)
		gone := c.Client(t, kgo.TransactionalID("waterclock/group-of-"+s.requests+"/0123456789abcdef/0/1"))
		if err := gone.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		rig.Send(t, gone, &kgo.Record{Topic: target, Value: []byte("never to be seen")})
		p := rig.Start(t, s.arguments()...)
		p.Ready(partitions, readyLimit)
		rig.Send(t, c.Client(t), timer(s.requests, target, "a", "v", time.Now()))
		rising(t, &p.Web, "waterclock_open_transactions_ended_total")
		if got := out.WaitFor(1, readyLimit); string(got[0].Value) != "v" {
			t.Errorf("seen: %q", got[0].Value)
		}
		settled(t, &p.Web)
	})

	// The process is stopped for longer than it takes to be noticed, and for less
	// than its session.
	t.Run("pause", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t, c)
		p := rig.Start(t, s.arguments()...)
		p.Ready(partitions, readyLimit)
		p.Pause()
		await.For(t, 6*time.Second)
		p.Continue()
		rising(t, &p.Web, "waterclock_pauses_total")
		settled(t, &p.Web)
	})
}

// big are requests with a value of some size.
func big(requests, target, prefix string, n, size int, due time.Time) []*kgo.Record {
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = timer(requests, target, fmt.Sprint(prefix, i), "", due)
		recs[i].Value = bytes.Repeat([]byte{'x'}, size)
	}
	return recs
}

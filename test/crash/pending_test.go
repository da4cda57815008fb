package crash

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	fewPending, manyPending = 50_000, 1_000_000

	crashPartitions = 4
	streamRate      = 500 // timers a second

	// tail is how many changelog offsets are written between the time that a
	// flush was noticed and the kill, at least, and tailAtMost how many the stream
	// may write between two flushes and the kill.
	tail       = 6000
	tailAtMost = 120 * streamRate * 3
	// flushTakes is how long a flush, and what is stored for it, may take.
	flushTakes = 15 * time.Second
	// takeOffsets is what the acquisition itself may add to a partition of the
	// changelog: marker of the former owner's step, claim, its marker.
	takeOffsets = 16

	// Every soonEvery-th pending timer falls due during or soon after the test,
	// the others a day later.
	soonEvery = 20
	soonFrom  = 15 * time.Second
	soonTo    = 5 * time.Minute
)

// TestKillWithPendingAndStreamReplaysTheTailOnly: a restart after kill -9 does not
// depend on what is pending.
//
// When the store flushed is told by its counter of flushes: what the changelog
// held at the flush before is on disk then, so a restart may read no more than the
// rest, whatever is pending.
func TestKillWithPendingAndStreamReplaysTheTailOnly(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Shared(t)
	rig.Binary(t)
	var few, many run
	t.Run("sizes", func(t *testing.T) {
		t.Run(strconv.Itoa(fewPending), func(t *testing.T) {
			t.Parallel()
			few = crash(t, c, fewPending)
		})
		t.Run(strconv.Itoa(manyPending), func(t *testing.T) {
			t.Parallel()
			many = crash(t, c, manyPending)
		})
	})
	if t.Failed() {
		return
	}
	if many.replayed > 2*few.replayed && many.replayed > tailAtMost {
		t.Errorf("replayed %d offsets with %d pending, %d with %d: more than twice as many",
			many.replayed, manyPending, few.replayed, fewPending)
	}
}

// run is what one size showed.
type run struct{ replayed int64 }

// crash loads pending timers, kills the owner under a stream twice, the second
// time with its directory deleted, and checks that every timer fired once or is
// still pending.
func crash(t *testing.T, c *kafkatest.Cluster, pending int) (r run) {
	requests := c.CreateTopic(t, crashPartitions, nil)
	target := c.CreateTopic(t, crashPartitions, nil, requests+"-out")
	changelog := topics.Changelog(requests)
	adm := c.Admin(t)
	dir := t.TempDir()
	// A static member is not waited for when it comes back: ready shows the
	// replay, not the session timeout.
	serve := rig.Arguments(c.Seeds(), requests, dir, "--instance-id", "wc-0")
	p := rig.Start(t, serve...)
	p.Ready(crashPartitions, time.Minute)
	out := kafkatest.Collect(t, c, target)

	due := loadPending(t, c, requests, target, pending)
	// All of them: only the stream shall write behind the flush that is awaited.
	await.Until(t, 2*time.Minute, "pending timers", func() bool {
		return p.Metric("waterclock_outcomes_total", "outcome", "scheduled") >= float64(pending)
	})
	var s *rig.Stream
	flushed := awaitFlush(t, p, adm, changelog, func() { s = stream(t, c, requests, target) })
	noticed := total(ends(t, adm, changelog))
	await.Until(t, 2*time.Minute, "changelog grows behind the flush", func() bool {
		return total(ends(t, adm, changelog)) >= noticed+tail
	})
	held := p.Metric("waterclock_pending_timers")
	if held < float64(pending)*0.9 {
		t.Fatalf("%v pending at the kill, want about %d", held, pending)
	}
	p.Kill()
	written := total(ends(t, adm, changelog)) - flushed
	p, took := restart(t, c, out, requests, target, "overdue-1", serve)
	replayed := int64(p.Metric("waterclock_replayed_offsets_total"))
	t.Logf("%v pending, same directory: ready after %s; %d offsets replayed, at most %d written since the flush",
		held, took, replayed, written)
	if replayed > written+takeOffsets*crashPartitions {
		t.Errorf("replayed %d offsets, but only %d were written since the last flush", replayed, written)
	}
	if replayed == 0 {
		t.Error("nothing was replayed: the kill came at a flush, this test showed nothing")
	}
	r.replayed = replayed

	p.Kill()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p, took = restart(t, c, out, requests, target, "overdue-2", serve)
	replayed = int64(p.Metric("waterclock_replayed_offsets_total"))
	t.Logf("%v pending, directory deleted: ready after %s; %d offsets replayed", p.Metric("waterclock_pending_timers"),
		took, replayed)
	if replayed < int64(held) {
		t.Errorf("replayed %d offsets into an empty directory, but %v were pending", replayed, held)
	}

	n := s.Stop()
	awaitStream(t, out, n, time.Minute)
	p.Settled()
	stopped := time.Now()
	p.Term()
	if code := p.Exit(20 * time.Second); code != 0 {
		t.Errorf("exit %d on SIGTERM", code)
	}
	for i := range n {
		due[streamID(i)] = time.Time{}
	}
	due["overdue-1"], due["overdue-2"] = time.Time{}, time.Time{}
	firedOrPending(t, c, out, changelog, due, stopped)
	return r
}

// loadPending sends the pending timers and returns their due times by ID.
func loadPending(t testing.TB, c *kafkatest.Cluster, requests, target string, n int) map[string]time.Time {
	t.Helper()
	cl := c.Client(t)
	due := make(map[string]time.Time, n)
	begin := time.Now()
	for i := range n {
		id := fmt.Sprintf("pending-%d", i)
		at := begin.Add(24 * time.Hour)
		if i%soonEvery == 0 {
			at = begin.Add(soonFrom + time.Duration(float64(soonTo-soonFrom)*float64(i)/float64(n)))
		}
		due[id] = at.Truncate(time.Millisecond)
		cl.Produce(context.Background(), rig.Timer(requests, target, id, at), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("send %s: %v", id, err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pending timers sent in %s", n, time.Since(begin).Round(time.Millisecond))
	return due
}

// awaitFlush waits for two flushes of the store, calls begin between them, and returns
// the sum of the changelog's ends as of the first: what is committed then is stored
// before the second, unless that follows so soon that it had begun before.
func awaitFlush(t testing.TB, p *rig.Process, adm *kadm.Client, changelog string, begin func()) int64 {
	t.Helper()
	var before int64
	begin = sync.OnceFunc(begin)
	for at := (time.Time{}); ; {
		n := p.Metric("waterclock_store_flushes_total")
		await.Until(t, 90*time.Second, "a flush of the store", func() bool {
			return p.Metric("waterclock_store_flushes_total") > n
		})
		if !at.IsZero() && time.Since(at) > flushTakes {
			return before
		}
		before, at = total(ends(t, adm, changelog)), time.Now()
		begin()
	}
}

// restart starts the killed instance again when a timer has fallen due in
// between, and returns it with the time from its start to ready. That timer
// must be emitted within a second of ready.
func restart(t testing.TB, c *kafkatest.Cluster, out *kafkatest.Collector, requests, target, id string,
	serve []string) (*rig.Process, time.Duration) {
	t.Helper()
	due := time.Now()
	rig.Send(t, c.Client(t), rig.Timer(requests, target, id, due))
	start := time.Now()
	p := rig.Start(t, serve...)
	p.Ready(crashPartitions, time.Minute)
	ready := time.Now()
	var got kafkatest.Received
	seen := 0
	await.Until(t, 30*time.Second, "emission of "+id, func() bool {
		records := out.Records()
		defer func() { seen = len(records) }()
		for _, r := range records[seen:] {
			if r.Header("waterclock-id") == id {
				got = r
				return true
			}
		}
		return false
	})
	after := got.At.Sub(ready)
	t.Logf("%s, due before the start, received %s after ready", id, after.Round(time.Millisecond))
	if after > time.Second {
		t.Errorf("%s was overdue and emitted %s after ready, want at most 1s", id, after)
	}
	return p, ready.Sub(start).Round(time.Millisecond)
}

// firedOrPending checks that every timer is either emitted, once, or pending in
// the changelog, and not both; and that none is pending that was due when the
// last owner stopped. A zero due time means: fired before that.
func firedOrPending(t testing.TB, c *kafkatest.Cluster, out *kafkatest.Collector, changelog string,
	due map[string]time.Time, stopped time.Time) {
	t.Helper()
	pending := make(map[string]bool, len(due))
	readAll(t, c, changelog, func(r *kgo.Record) {
		kind, id, err := wire.ParseKey(r.Key)
		if err != nil {
			t.Fatalf("changelog record %d/%d: %v", r.Partition, r.Offset, err)
		}
		if kind != wire.KindTimer {
			return
		}
		if r.Value == nil {
			delete(pending, string(id))
		} else {
			pending[string(id)] = true
		}
	})
	byID := rig.Once(t, out.WaitFor(len(due)-len(pending), 30*time.Second))
	lost, both, late := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for id, at := range due {
		switch fired := len(byID[id]) > 0; {
		case fired && pending[id]:
			both[id] = true
		case !fired && !pending[id]:
			lost[id] = true
		case pending[id] && at.Before(stopped.Add(-5*time.Second)):
			late[id] = true
		}
	}
	if len(lost)+len(both)+len(late) > 0 {
		kafkatest.Inexact(t, "lost %d %v; fired and pending %d %v; due and not fired %d %v",
			len(lost), some(lost), len(both), some(both), len(late), some(late))
	}
	for id := range pending {
		if _, known := due[id]; !known {
			t.Errorf("pending and never sent: %s", id)
			break
		}
	}
	t.Logf("%d timers: %d fired, %d pending", len(due), len(byID), len(pending))
}

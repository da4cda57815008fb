package crash

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	fewPending, manyPending = 50_000, 1_000_000

	crashPartitions = 4

	// tail is how many changelog offsets are written between the time that a flush was noticed and the kill, at least,
	// and tailAtMost how many the stream may write between two flushes and the kill.
	tail       = 6000
	tailAtMost = 120 * streamRate * 3
	// flushTakes is how long a flush, and what is stored for it, may take.
	flushTakes = 15 * time.Second
	// takeOffsets is what the acquisition itself may add to a partition of the changelog: marker of the former owner's
	// step, claim, its marker.
	takeOffsets = 16

	// Every soonEvery-th pending timer falls due during or soon after the test, the others a day later.
	soonEvery = 20
	soonFrom  = 15 * time.Second
	soonTo    = 5 * time.Minute
)

// TestKillWithPendingAndStreamReplaysTheTailOnly: a restart after kill -9 does not depend on what is pending.
//
// When the store flushed is told by its counter of flushes: what the changelog held at the flush before is on disk
// then, so a restart may read no more than the rest, whatever is pending.
func TestKillWithPendingAndStreamReplaysTheTailOnly(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	var few, many int64
	t.Run("sizes", func(t *testing.T) {
		t.Run(strconv.Itoa(fewPending), func(t *testing.T) {
			t.Parallel()
			few = replayedAfterKill(t, fewPending)
		})
		t.Run(strconv.Itoa(manyPending), func(t *testing.T) {
			t.Parallel()
			many = replayedAfterKill(t, manyPending)
		})
	})
	if t.Failed() {
		return
	}
	if many > 2*few && many > tailAtMost {
		t.Errorf("replayed %d offsets with %d pending, %d with %d: more than twice as many",
			many, manyPending, few, fewPending)
	}
}

// replayedAfterKill loads pending timers, kills the owner under a stream twice, the second time with its directory
// deleted, and checks that every timer fired once or is still pending. It returns how many offsets the first successor
// replayed.
func replayedAfterKill(t *testing.T, pending int) int64 {
	s := rig.NewSetup(t, kafkatest.Shared(t), crashPartitions, crashPartitions)
	start := func() *rig.Process {
		// A static member is not waited for when it comes back: ready shows the replay, not the session timeout.
		p := s.Start("--instance-id", "wc-0")
		t.Logf("ready after %s", p.Ready(crashPartitions, rig.Patience).Round(time.Millisecond))
		return p
	}
	p := start()
	due := loadPending(s, pending)
	// All of them: only the stream shall write behind the flush that is awaited.
	await.Until(t, 2*time.Minute, "pending timers", func() bool {
		return p.Metric("waterclock_outcomes_total", "outcome", "scheduled") >= float64(pending)
	})
	var load *rig.Stream
	flushed := awaitFlush(s, p, func() { load = stream(s) })
	noticed := s.Written(s.Changelog())
	await.Until(t, 2*time.Minute, "changelog grows behind the flush",
		func() bool { return s.Written(s.Changelog()) >= noticed+tail })
	held := p.Metric("waterclock_pending_timers")
	if held < float64(pending)*0.9 {
		t.Fatalf("%v pending at the kill, want about %d", held, pending)
	}
	// restart starts the killed instance again when a timer has fallen due in between. That timer must be emitted
	// within a second of ready.
	restart := func(id string) (replayed int64) {
		due[id] = time.Time{}
		s.Send(s.Valued(id, "1", time.Now()))
		p = start()
		ready := time.Now()
		await.Until(t, rig.Patience, "emission of "+id, func() bool { return s.Emitted(id) > 0 })
		for _, r := range s.Out.Records() {
			if after := r.At.Sub(ready); r.Header("waterclock-id") == id && after > time.Second {
				t.Errorf("%s was overdue and emitted %s after ready, want at most 1s", id, after)
			}
		}
		return int64(p.Metric(replayedMetric))
	}
	p.Kill()
	written := s.Written(s.Changelog()) - flushed
	replayed := restart("overdue-1")
	t.Logf("%v pending, same directory: %d offsets replayed, at most %d written since the flush", held, replayed,
		written)
	if replayed > written+takeOffsets*crashPartitions {
		t.Errorf("replayed %d offsets, but only %d were written since the last flush", replayed, written)
	}
	if replayed == 0 {
		t.Error("nothing was replayed: the kill came at a flush, this test showed nothing")
	}
	p.Kill()
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	if all := restart("overdue-2"); all < int64(held) {
		t.Errorf("replayed %d offsets into an empty directory, but %v were pending", all, held)
	}

	n := load.Stop()
	awaitStream(s, n)
	p.Settled()
	stopped := time.Now()
	p.End()
	for i := range n {
		due[streamID(i)] = time.Time{}
	}
	firedOrPending(s, due, stopped)
	return replayed
}

// loadPending sends the pending timers and returns their due times by ID.
func loadPending(s *rig.Setup, n int) map[string]time.Time {
	s.Helper()
	due := make(map[string]time.Time, n)
	begin := time.Now()
	for i := range n {
		id := fmt.Sprintf("pending-%d", i)
		at := begin.Add(24 * time.Hour)
		if i%soonEvery == 0 {
			at = begin.Add(soonFrom + time.Duration(float64(soonTo-soonFrom)*float64(i)/float64(n)))
		}
		due[id] = at.Truncate(time.Millisecond)
		s.Client.Produce(context.Background(), s.Valued(id, "1", at), func(_ *kgo.Record, err error) {
			if err != nil {
				s.Errorf("send %s: %v", id, err)
			}
		})
	}
	if err := s.Client.Flush(s.Context()); err != nil {
		s.Fatal(err)
	}
	return due
}

// awaitFlush waits for two flushes of the store, calls begin between them, and returns the sum of the changelog's ends
// as of the first: what is committed then is stored before the second, unless that follows so soon that it had begun
// before.
func awaitFlush(s *rig.Setup, p *rig.Process, begin func()) int64 {
	s.Helper()
	var before int64
	begin = sync.OnceFunc(begin)
	for at := (time.Time{}); ; {
		n := p.Metric("waterclock_store_flushes_total")
		await.Until(s, 90*time.Second, "a flush of the store", func() bool {
			return p.Metric("waterclock_store_flushes_total") > n
		})
		if !at.IsZero() && time.Since(at) > flushTakes {
			return before
		}
		before, at = s.Written(s.Changelog()), time.Now()
		begin()
	}
}

// firedOrPending checks that every timer is either emitted, once, or pending in the changelog, and not both; and that
// none is pending that was due when the last owner stopped. A zero due time means: fired before that.
func firedOrPending(s *rig.Setup, due map[string]time.Time, stopped time.Time) {
	s.Helper()
	pending := make(map[string]bool, len(due))
	for _, r := range s.Committed(s.Changelog()) {
		kind, id, err := wire.ParseKey(r.Key)
		if err != nil {
			s.Fatalf("changelog record %d/%d: %v", r.Partition, r.Offset, err)
		}
		if kind != wire.KindTimer {
			continue
		}
		if pending[string(id)] = true; r.Value == nil {
			delete(pending, string(id))
		}
	}
	byID := rig.Once(s.T, s.Out.WaitFor(len(due)-len(pending), rig.Patience))
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
		kafkatest.Inexact(s, "lost %d %v; fired and pending %d %v; due and not fired %d %v",
			len(lost), some(lost), len(both), some(both), len(late), some(late))
	}
	for id := range pending {
		if _, known := due[id]; !known {
			s.Errorf("pending and never sent: %s", id)
			break
		}
	}
	s.Logf("%d timers: %d fired, %d pending", len(due), len(byID), len(pending))
}

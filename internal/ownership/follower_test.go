package ownership

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/clocks/clockstest"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// aging returns a follower whose view is in doubt only because of its age.
func aging(empty bool, limit time.Duration, begun, inSync time.Time) *Follower {
	set := &topics.Set{Changelog: topics.Topic{DeleteRetention: 2 * limit}}
	f := NewFollower(FollowOptions{Topics: set, Local: &Local{}})
	f.view = view{evidence: evidence{view: statestore.Meta{Position: 1, InSync: inSync,
		Mark: statestore.Mark{Named: true}}, step: "s", keeps: 2 * limit}, begun: begun}
	f.view.log.end = 1
	if empty {
		f.view.view.Position = -1
	}
	return f
}

// A view must not be used once deletions that it lacks may be gone: since it was last in sync or, if it began empty,
// since then.
func TestStaleView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 12 * time.Hour
		for _, empty := range []bool{false, true} {
			begun := time.Now()
			f := aging(empty, limit, begun, begun)
			if empty {
				f.view.view.InSync = begun.Add(-100 * limit) // the last writer was in sync that long ago
			}
			time.Sleep(limit)
			if why, err := f.whyUnusable(t.Context(), time.Now()); why != "" || err != nil {
				t.Errorf("empty %v, after %s: %s %v", empty, limit, why, err)
			}
			time.Sleep(time.Minute)
			if why, _ := f.whyUnusable(t.Context(), time.Now()); why == "" {
				t.Errorf("empty %v: used after %s and a minute", empty, limit)
			}
		}
	})
}

// A missing time does not make a view too old: an acquisition asks again, with the claim's time.
func TestAViewIsNotStaleWithoutATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		f := aging(false, time.Hour, begun, begun)
		f.noteReached(begun)
		time.Sleep(time.Minute)
		if why, err := f.whyUnusable(t.Context(), time.Time{}); why != "" || err != nil {
			t.Errorf("%s %v", why, err)
		}
	})
}

// A view that is followed stays good for as long as the log's end is reached often enough,
// however long ago it was begun. Whether it was good at first is for the brokers' times to
// say.
func TestAFollowedViewStaysGood(t *testing.T) {
	const limit = 12 * time.Hour
	for _, x := range []struct {
		name     string
		empty    bool
		before   time.Duration // how old the view was when it was opened
		first    time.Duration // how long it took to reach an end for the first time
		gaps     []time.Duration
		to       time.Duration // from the question for the last end to the claim
		unusable bool
	}{
		{"for days", false, 0, time.Minute, []time.Duration{limit, limit, limit, limit}, limit, false},
		{"for days, begun with nothing", true, 100 * limit, limit, []time.Duration{limit, limit}, limit, false},
		{"begun as old as it may be", false, limit / 2, limit / 2, []time.Duration{limit}, limit, false},
		{"too old when the first end was reached", false, limit / 2, limit/2 + time.Minute,
			[]time.Duration{time.Second}, time.Second, true},
		{"too long in the making", true, 0, limit + time.Minute, []time.Duration{time.Second}, time.Second, true},
		{"not read for too long", false, 0, time.Minute, []time.Duration{time.Second, limit + time.Minute, time.Second},
			time.Second, true},
		{"the same, begun with nothing", true, 0, time.Minute,
			[]time.Duration{time.Second, limit + time.Minute, time.Second}, time.Second, true},
		{"not read for too long before the claim", false, 0, time.Minute, []time.Duration{time.Second},
			limit + time.Minute, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				f := aging(x.empty, limit, begun, begun.Add(-x.before))
				asked := begun
				time.Sleep(x.first)
				f.noteReached(asked)
				for _, gap := range x.gaps {
					asked = f.Reached().Add(gap)
					time.Sleep(time.Until(asked))
					f.noteReached(asked)
				}
				time.Sleep(time.Until(f.Reached().Add(x.to)))
				if why, err := f.whyUnusable(t.Context(), time.Now()); (why != "") != x.unusable || err != nil {
					t.Errorf("unusable: %v, it says %q, %v", x.unusable, why, err)
				}
			})
		})
	}
}

// Time in which the machine was suspended counts in each of the spans: during the first replay of a view that began
// with nothing, between two ends, and before the claim.
func TestASuspendedFollowerAges(t *testing.T) {
	const limit, slept = 12 * time.Hour, 30 * time.Hour
	long, short := clockstest.Suspended(slept, time.Minute), time.Now().Add(-time.Minute)
	for _, x := range []struct {
		name  string
		begun time.Time
		met   []time.Time // when ends were asked for, the last of them before the claim
	}{
		{"during the first replay", long, []time.Time{time.Now()}},
		{"before the first end, which is not reached yet", long, nil},
		{"between two ends", short, []time.Time{long, time.Now()}},
		{"before the claim", short, []time.Time{long}},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := aging(true, limit, x.begun, time.Time{})
			for _, asked := range x.met {
				f.noteReached(asked)
			}
			if why, err := f.whyUnusable(t.Context(), time.Now()); why == "" || err != nil {
				t.Errorf("a view may be used although the machine slept for %s, limit %s: %v", slept, limit, err)
			}
		})
	}
}

// If a changelog has lost everything that the local view has seen, under the same name and UUID, the view may be the
// last copy of the pending timers: it is not wiped.
func TestTheViewOfAnEmptiedChangelogIsKept(t *testing.T) {
	l, _ := online(t)
	cl, set := l.o.Client, l.o.Topics
	store, err := statestore.Open(
		statestore.Options{Dir: "store", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	handle := store.Partition(statestore.PartitionID{Topic: set.Request.ID}).Acquire()
	local := &Local{Handle: handle}
	f := l.NewFollower(local)
	x := &timer.Timer{ID: []byte("a"), Occurrence: 1, Target: timer.Target{Topic: "t", Partition: timer.AnyPartition}}
	err = handle.Apply(
		&statestore.Batch{Changelog: set.Changelog.ID, Position: 3,
			Changes: []statestore.Change{timer.ChangeOf(x.ID, timer.Absent, x)}})
	must(t, err)
	look := func(what string) {
		t.Helper()
		var fatal *Fatal
		if err := f.open(t.Context(), ""); !errors.As(err, &fatal) ||
			!strings.Contains(err.Error(), "the changelog was lost") {
			t.Errorf("%s: %v", what, err)
		}
		if m, err := handle.Meta(); err != nil || m.Pending != 1 {
			t.Errorf("%s: %d timers are left, %v", what, m.Pending, err)
		}
	}
	look("the log ends before the view") // as for a log whose only replica lost its disk
	for range 5 {
		rec := &kgo.Record{Topic: set.Changelog.Name, Key: wire.TimerKey(nil, x.ID), Value: x.AppendTo(nil)}
		must(t, cl.ProduceSync(t.Context(), rec).FirstErr())
	}
	all := make(kadm.Offsets)
	all.AddOffset(set.Changelog.Name, 0, 5, -1)
	if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	look("the log begins behind the view")
	local.AcceptLost = true
	var fatal *Fatal
	if err := f.open(t.Context(), ""); !errors.As(err, &fatal) || !strings.Contains(err.Error(),
		"topics follow --restore") {
		t.Errorf("accepted, and the directory has it: %v", err)
	}
	if m, err := handle.Meta(); err != nil || m.Pending != 1 {
		t.Errorf("accepted, and the directory has it: %d timers are left, %v", m.Pending, err)
	}
	local.Damage = errors.New("damaged")
	must(t, f.open(t.Context(), ""))
	if m, err := handle.Meta(); err != nil || m.Position >= 0 {
		t.Errorf("accepted: the view is at %d, %v", m.Position, err)
	}
}

// An acquisition that waits for a leader does not look for open transactions: that would ask all brokers, for each
// partition, five times a second.
func TestATakeWithoutALeaderAsksForNoTransactions(t *testing.T) {
	l, c := online(t)
	var asked atomic.Int32
	c.ControlKey(int16(kmsg.ListTransactions), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	b := &leader{}
	l.o.Targets = targets.NewMetadata(b, targets.MetadataOptions{})
	f := l.NewFollower(nil)
	l.acquirer.found.Store(new(wire.CommitNote))
	looks := func(by int32, enough func() bool) {
		t.Helper()
		b.led(t, &l.o, by)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.acquirer.help(ctx, f, cancel) }()
		await.Within(20*time.Second, enough)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	begun := time.Now()
	looks(-1, func() bool { return asked.Load() > 0 || time.Since(begun) > 4*hangingAfter })
	if n := asked.Load(); n > 0 {
		t.Errorf("asked %d times without a leader", n)
	}
	if s := l.Status(); strings.Contains(s.Reason, "transaction") {
		t.Errorf("%q, though there is no leader", s.Reason)
	}
	looks(0, func() bool { return asked.Load() > 0 })
	if asked.Load() == 0 {
		t.Error("nobody looks although there is a leader")
	}
	if s := l.Status(); !strings.Contains(s.Reason, "end of a transaction") {
		t.Errorf("%q does not say what is waited for", s.Reason)
	}
}

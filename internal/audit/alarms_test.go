package audit

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

const day = 24 * 3_600_000 // ms

// delete deletes the records of a topic before an offset, as retention does.
func (l *logs) delete(topic string, before int64) {
	l.T.Helper()
	if _, err := l.Adm.DeleteRecords(l.Ctx, kadm.Offsets{topic: {0: {Topic: topic, At: before}}}); err != nil {
		l.T.Fatal(err)
	}
}

// planned returns the options of an audit that was interrupted when it had its cut, and its plan.
func (l *logs) planned(alter func(*plan)) (Options, *plan) {
	l.T.Helper()
	o := l.options()
	o.Dir = l.T.TempDir()
	s, err := open(o.Dir)
	if err != nil {
		l.T.Fatal(err)
	}
	p := &planner{plan: &plan{Options: o.asked()}, topics: o.Topics, spill: s, client: l.client}
	if err := p.prepare(l.Ctx, cutStage); err != nil {
		l.T.Fatal(err)
	}
	alter(p.plan)
	if err := errors.Join(s.savePlan(p.plan), s.close()); err != nil {
		l.T.Fatal(err)
	}
	return o, p.plan
}

func (l *logs) event(ms int64, e *wire.Event) {
	e.At = base + ms
	l.write(l.topic.Events, ms, wire.EventKey(e.ID), e.AppendTo(nil))
}

// Missing records, and records of other programs, are no reason to call a request lost or an emission altered.
func TestNoFalseAlarms(t *testing.T) {
	for _, c := range []struct {
		name  string
		more  func(l *logs, o *Options)
		fates map[history.Fate]int64 // beyond those of some
		note  string
		away  bool // the target's records are not seen
	}{
		{name: "retention has deleted an emission, and what the target then begins with has an old timestamp",
			more: func(l *logs, _ *Options) {
				l.emit("gone", 5, 1) // target/0/1
				l.write(l.target, -30*day, []byte("k"), []byte("of another program, by the time of an event"))
				l.emit("fired", 0, 5)
				l.schedule("gone", 0)
				l.checkpoint("p/3", 6)
				l.delete(l.target, 2)
			}, fates: map[history.Fate]int64{history.Unknown: 1}, note: "older records are gone", away: true},
		{name: "retention has deleted an emission that is newer than the one after it",
			more: func(l *logs, _ *Options) {
				l.emit("gone", 5, 40)
				l.emit("fired", 0, 5) // by an owner whose clock is behind
				l.write(l.Topic, -1000, []byte("gone"), []byte("payload"), waterclock.HeaderAt,
					strconv.FormatInt(base+20, 10), waterclock.HeaderTargetTopic, l.target)
				l.checkpoint("p/3", 6)
				l.delete(l.target, 2)
			}, fates: map[history.Fate]int64{history.Unknown: 1}, note: "older records are gone", away: true},
		{name: "a request whose timestamp is that of an old event, and a horizon", more: func(l *logs, o *Options) {
			o.Topics[0].Rules.Limits.Horizon = 7 * 24 * time.Hour
			l.write(l.Topic, -30*day, []byte("a"), []byte("payload"), waterclock.HeaderAt,
				strconv.FormatInt(base+3_600_000, 10), waterclock.HeaderTargetTopic, l.target)
			l.store("a", 5, 3_600_000)
			l.checkpoint("p/3", 6)
		}, fates: map[history.Fate]int64{history.StillPending: 1}},
		{name: "emissions of a topic of this name that was deleted", more: func(l *logs, o *Options) {
			o.Topics[0].ID = [16]byte{1}
			for id, topic := range map[string][16]byte{"old": {3}, "new": {1}} {
				l.write(l.target, 3, []byte(id), []byte("payload"), waterclock.HeaderID, id, waterclock.HeaderDue,
					strconv.FormatInt(base, 10), waterclock.HeaderOccurrence, "1",
					waterclock.HeaderSource, l.Topic+"/0/5", waterclock.HeaderEvent,
					base64.RawURLEncoding.EncodeToString(topic[:])+".0.5.1")
			}
			l.schedule("new", 0)
			l.checkpoint("p/3", 6)
		}, fates: map[history.Fate]int64{history.Fired: 1}},
		{name: "a target that may not be read", more: func(l *logs, _ *Options) {
			l.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: l.target, Err: kerr.TopicAuthorizationFailed,
				Count: -1})
		}, fates: map[history.Fate]int64{history.Fired: -1, history.Unknown: 1}, note: "cannot be read", away: true},
		{name: "a target whose partition has no leader", more: func(l *logs, _ *Options) {
			l.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: l.target,
				Err: kerr.LeaderNotAvailable, Count: -1})
		}, fates: map[history.Fate]int64{history.Fired: -1, history.Unknown: 1}, note: "cannot be read", away: true},
		{name: "events that were switched on later", more: func(l *logs, o *Options) {
			l.topic.Events = l.Topic + ".waterclock.events"
			o.Topics[0].Events = l.topic.Events
			l.Create(l.topic.Events, 1, nil)
			l.write(l.Topic, 2*day, []byte("later"), []byte("payload"), waterclock.HeaderAt,
				strconv.FormatInt(base+3*day, 10), waterclock.HeaderTargetTopic, l.target)
			l.store("later", 5, 3*day)
			l.checkpoint("p/3", 6)
			l.event(2*day, &wire.Event{Type: waterclock.EventScheduled, ID: []byte("later"),
				Source: waterclock.Source{Topic: l.Topic, Offset: 5}, Pending: l.timer("later", 5, 3*day)})
		}, fates: map[history.Fate]int64{history.StillPending: 1}, note: "events"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLogs(kafkatest.OnFake(t, 1))
			l.some()
			o := l.options()
			c.more(l, &o)
			r := l.run(o)
			want := map[history.Fate]int64{history.Fired: 1, history.StillPending: 1, history.Cancelled: 1,
				history.Done: 1, history.Rejected: 1}
			for f, n := range c.fates {
				want[f] += n
			}
			if c.away { // the fate of the cancelled timer would be there too
				want[history.Cancelled]--
				want[history.Unknown]++
				want[history.Done]--
				want[history.Unclear]++
			}
			maps.DeleteFunc(want, func(_ history.Fate, n int64) bool { return n == 0 })
			if got := r.Topics[0].Fates; !reflect.DeepEqual(got, want) || len(r.Broken) > 0 {
				t.Errorf("%v, %q, notes %q; want %v", got, r.Violations, r.Notes, want)
			}
			if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
				t.Errorf("notes %q, want one of %q", r.Notes, c.note)
			}
		})
	}
}

// An audit that goes on remembers which records its interrupted predecessor found to be gone.
func TestResumedAuditKnowsWhatIsGone(t *testing.T) {
	l := newLogs(kafkatest.OnFake(t, 1))
	l.emit("gone", 5, 1)
	l.some()
	l.schedule("gone", 0)
	l.checkpoint("p/3", 6)
	l.delete(l.target, 1)
	want := l.run(l.options())
	if want.Topics[0].Fates[history.Unknown] != 2 || len(want.Broken) > 0 {
		t.Fatalf("%+v", want)
	}
	o := l.options()
	o.Dir = t.TempDir()
	ctx, cancel := context.WithCancel(l.Ctx)
	defer cancel()
	o.Progress = func(stage string, done, total int64) {
		if stage == stageNames[outcomeStage] && done == total {
			cancel()
		}
	}
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	o.Progress = nil
	got := l.run(o)
	if want.AsOf = got.AsOf; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Tombstones behind the cut show the changes since. Once compaction may have removed them, an audit does not go on.
func TestAuditThatWasInterruptedForTooLong(t *testing.T) {
	l := newLogs(kafkatest.OnFake(t, 1))
	l.some()
	o := l.options()
	o.Dir, o.Topics[0].Keeps = t.TempDir(), 24*time.Hour
	ctx, cancel := context.WithCancel(l.Ctx)
	defer cancel()
	o.Progress = func(stage string, _, _ int64) {
		if stage == stageNames[requestStage] {
			cancel()
		}
	}
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s, err := open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.loadPlan(o.asked())
	if err != nil {
		t.Fatal(err)
	}
	p.Began = p.Began.Add(-25 * time.Hour)
	if err := errors.Join(s.savePlan(p), s.close()); err != nil {
		t.Fatal(err)
	}
	l.checkpoint("p/3", 5)
	o.Progress = nil
	if _, err := Run(l.Ctx, o); err == nil || !strings.Contains(err.Error(), "delete.retention.ms") {
		t.Errorf("it goes on after a day: %v", err)
	}
}

// A verdict about only some of the IDs is worth nothing.
func TestJudgingIsInterrupted(t *testing.T) {
	l := newLogs(kafkatest.OnFake(t, 1))
	l.some()
	o := l.options()
	o.Dir = t.TempDir()
	l.run(o)
	s, err := open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	p, err := s.loadPlan(o.asked())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.Ctx)
	cancel()
	v := &verdict{topics: o.Topics, plan: p, spill: s, progress: func(string, int64, int64) {}}
	if got, err := v.judge(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A request of a span that is over has not been processed. That does not add up, unlike a request written just now.
func TestUndecidedInASpanThatIsOver(t *testing.T) {
	l := newLogs(kafkatest.OnFake(t, 1))
	l.some()
	l.schedule("next", 0)
	o := l.options()
	if r := l.run(o); !r.AddsUp() {
		t.Errorf("%+v", r)
	}
	o.Until = time.UnixMilli(base + day)
	if r := l.run(o); r.AddsUp() || r.Topics[0].Fates[history.Undecided] != 1 {
		t.Errorf("%+v", r)
	}
}

// Compaction removes replaced records. So an audit that was interrupted while it read changelogs does not stop at the
// old end. It takes its cut at a later one, and misses nothing in between: a fetch may have gone beyond the old end.
func TestCutMovesOn(t *testing.T) {
	for name, compacted := range map[string]bool{
		"compacted up to the old end": true,
		"a fetch beyond the old end":  false,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogs(kafkatest.OnFake(t, 1))
			l.some()
			o, old := l.planned(func(p *plan) { p.Began = p.Began.Add(-cutAge) })
			l.schedule("late", 3_600_000) // 5
			l.store("pending", 1, 3_600_000)
			l.store("late", 5, 3_600_000)
			l.checkpoint("p/3", 6)
			if compacted {
				l.delete(l.topic.Changelog, old.Stages[cutStage][0].To) // as compaction would leave it
			}
			want := map[history.Fate]int64{history.Fired: 1, history.StillPending: 2, history.Cancelled: 1,
				history.Done: 1, history.Rejected: 1}
			if got := l.run(o); !reflect.DeepEqual(got.Topics[0].Fates, want) || !got.AddsUp() {
				t.Errorf("%+v, want %v", got, want)
			}
		})
	}
}

// An audit of a log that has lost its end says so, instead of waiting for it.
func TestAuditOfALogThatWasCut(t *testing.T) {
	t.Parallel()
	l := newLogs(kafkatest.OnFake(t, 1))
	l.some()
	o, _ := l.planned(func(p *plan) { p.Stages[cutStage][0].To += 3 })
	if _, err := Run(l.Ctx, o); !errors.Is(err, partlog.ErrLogCut) {
		t.Error(err)
	}
}

package audit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// base is when timers are due, in Unix ms.
const base = int64(1_790_000_000_000)

// logs are those of a request topic, written by hand.
type logs struct {
	*kafkatest.Setup
	client *kgo.Client
	target string
	topic  Topic
}

func newLogs(s *kafkatest.Setup) *logs {
	l := &logs{Setup: s, target: s.Topic + "-out"}
	changelog, letters := s.Topic+".waterclock.changelog", s.Topic+".waterclock.dead-letters"
	for _, topic := range []string{s.Topic, l.target, letters} {
		s.Create(topic, 1, nil)
	}
	s.Create(changelog, 1, map[string]string{"cleanup.policy": "compact"})
	l.client = s.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	l.topic = Topic{Name: s.Topic, Changelog: changelog, Letters: letters, Partitions: 1, Rules: &intake.Rules{
		Topic: s.Topic, Changelog: changelog, Partitions: 1, Limits: intake.DefaultLimits(),
		Allow: func(string) bool { return true },
	}}
	return l
}

func (l *logs) write(topic string, ms int64, key, value []byte, headers ...string) {
	l.T.Helper()
	rec := &kgo.Record{Topic: topic, Key: key, Value: value, Timestamp: time.UnixMilli(base + ms)}
	for i := 0; i < len(headers); i += 2 {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	if err := l.client.ProduceSync(l.Ctx, rec).FirstErr(); err != nil {
		l.T.Fatal(err)
	}
}

func (l *logs) schedule(id string, ms int64) {
	l.write(l.Topic, -1000, []byte(id), []byte("payload"), waterclock.HeaderAt, strconv.FormatInt(base+ms, 10),
		waterclock.HeaderTargetTopic, l.target)
}

func (l *logs) emit(id string, offset, ms int64) {
	text := strconv.FormatInt(offset, 10)
	l.write(l.target, ms, []byte(id), []byte("payload"), waterclock.HeaderID, id, waterclock.HeaderDue,
		strconv.FormatInt(base, 10), waterclock.HeaderOccurrence, "1",
		waterclock.HeaderSource, l.Topic+"/0/"+text, waterclock.HeaderEvent, "x.0."+text+".1")
}

func (l *logs) timer(id string, offset, ms int64) *timer.Timer {
	return &timer.Timer{ID: []byte(id), Offset: offset, Due: base + ms, Occurrence: 1,
		Target: timer.Target{Topic: l.target, Partition: timer.AnyPartition, Key: []byte(id)}, Value: []byte("payload")}
}

func (l *logs) store(id string, offset, ms int64) {
	t := l.timer(id, offset, ms)
	l.write(l.topic.Changelog, 0, wire.TimerKey(nil, t.ID), t.AppendTo(nil))
}

func (l *logs) checkpoint(step string, position int64) {
	c := wire.Checkpoint{Position: position, Step: step, Group: "g"}
	l.write(l.topic.Changelog, 0, wire.CheckpointKey(), c.AppendTo(nil))
}

func (l *logs) options() Options {
	return Options{Client: []kgo.Opt{kgo.SeedBrokers(l.Seeds...)}, Topics: []Topic{l.topic}}
}

func (l *logs) run(o Options) *Report {
	l.T.Helper()
	r, err := Run(l.Ctx, o)
	if err != nil {
		l.T.Fatal(err)
	}
	return r
}

// some writes a correct history.
func (l *logs) some() {
	l.schedule("fired", 0)                                                              // 0
	l.schedule("pending", 3_600_000)                                                    // 1
	l.schedule("cancelled", 3_600_000)                                                  // 2
	l.write(l.Topic, -500, []byte("cancelled"), nil)                                    // 3
	l.write(l.Topic, -500, []byte("poison"), []byte("x"), waterclock.HeaderAt, "later") // 4
	l.write(l.topic.Letters, 0, []byte("poison"), []byte("x"), waterclock.HeaderReason,
		string(waterclock.ReasonBadTime), waterclock.HeaderSource, l.Topic+"/0/4")
	l.store("pending", 1, 3_600_000)
	l.store("cancelled", 2, 3_600_000)
	l.checkpoint("p/1", 3)
	l.write(l.topic.Changelog, 0, wire.TimerKey(nil, []byte("cancelled")), nil)
	l.checkpoint("p/2", 5)
	l.emit("fired", 0, 3)
}

func TestAudit(t *testing.T) {
	for _, c := range []struct {
		name  string
		more  func(l *logs, o *Options)
		fates map[history.Fate]int64 // beyond those of some
		rules map[string]int64
	}{
		{name: "all add up", more: func(*logs, *Options) {}},
		{name: "lost", more: func(l *logs, _ *Options) { l.schedule("lost", 0); l.checkpoint("p/3", 6) },
			fates: map[history.Fate]int64{history.Lost: 1}, rules: map[string]int64{"loss": 1}},
		{name: "not decided yet", more: func(l *logs, _ *Options) { l.schedule("next", 0) },
			fates: map[history.Fate]int64{history.Undecided: 1}},
		{name: "doubled", more: func(l *logs, _ *Options) { l.emit("fired", 0, 5) },
			rules: map[string]int64{"duplicate": 1}},
		{name: "early", more: func(l *logs, _ *Options) {
			l.schedule("early", 0)
			l.checkpoint("p/3", 6)
			l.emit("early", 5, -1)
		},
			fates: map[history.Fate]int64{history.Fired: 1}, rules: map[string]int64{"early": 1}},
		{name: "nobody asked for it", more: func(l *logs, _ *Options) { l.emit("fired", 3, 5) },
			rules: map[string]int64{"altered": 1}},
		{name: "fired and pending", more: func(l *logs, _ *Options) { l.store("fired", 0, 0); l.checkpoint("p/3", 5) },
			fates: map[history.Fate]int64{history.Fired: -1, history.Unclear: 1},
			rules: map[string]int64{"duplicate": 1, "order": 1}},
		{name: "a position goes back", more: func(l *logs, _ *Options) {
			l.checkpoint("p/3", 4)
			l.checkpoint("p/4", 5)
		}, rules: map[string]int64{"position": 1}},
		{name: "another value", more: func(l *logs, _ *Options) {
			l.write(l.target, 3_600_001, []byte("pending"), []byte("forged"), waterclock.HeaderID, "pending",
				waterclock.HeaderDue, strconv.FormatInt(base+3_600_000, 10), waterclock.HeaderOccurrence, "1",
				waterclock.HeaderSource, l.Topic+"/0/1", waterclock.HeaderEvent, "x.0.1.1")
			l.write(l.topic.Changelog, 0, wire.TimerKey(nil, []byte("pending")), nil)
			l.checkpoint("p/3", 5)
		}, fates: map[history.Fate]int64{history.StillPending: -1, history.Fired: 1},
			rules: map[string]int64{"altered": 1}},
		{name: "rejected twice", more: func(l *logs, _ *Options) {
			l.write(l.topic.Letters, 0, []byte("poison"), []byte("x"), waterclock.HeaderReason,
				string(waterclock.ReasonBadTime), waterclock.HeaderSource, l.Topic+"/0/4")
		}, rules: map[string]int64{"poison": 1}},
		{name: "others write to the target",
			more: func(l *logs, _ *Options) { l.write(l.target, 0, []byte("k"), []byte("v")) }},
		{name: "a target that is not there", more: func(l *logs, _ *Options) {
			l.write(l.Topic, -1000, []byte("away"), nil, waterclock.HeaderAt, strconv.FormatInt(base, 10),
				waterclock.HeaderTargetTopic, l.target+"-away")
			l.checkpoint("p/3", 6)
		}, fates: map[history.Fate]int64{history.Unknown: 1}},
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
				if want[f] += n; want[f] == 0 {
					delete(want, f)
				}
			}
			if c.rules == nil {
				c.rules = map[string]int64{}
			}
			if got := r.Topics[0]; !reflect.DeepEqual(got.Fates, want) || !reflect.DeepEqual(r.Broken, c.rules) {
				t.Errorf("%+v, %v %q, notes %q; want %v, %v", got, r.Broken, r.Violations, r.Notes, want, c.rules)
			}
			if r.AddsUp() != (len(c.rules) == 0 && c.fates[history.Unknown] == 0) {
				t.Errorf("adds up: %v", r.AddsUp())
			}
		})
	}
}

// A request judged by other settings is counted apart and is no violation: one that was accepted and fired, is pending
// or was cancelled, and one that was rejected. A lost request is lost under any settings.
func TestAuditUnderOtherSettings(t *testing.T) {
	l := newLogs(kafkatest.OnFake(t, 1))
	l.some()
	strict := l.topic.Rules
	l.topic.Lenient = l.topic.Rules
	l.topic.Rules = &intake.Rules{Topic: strict.Topic, Changelog: strict.Changelog, Partitions: 1,
		Limits: strict.Limits, Allow: func(topic string) bool { return topic != l.target }}
	const all = 3 // of some: fired, pending, cancelled
	r := l.run(l.options())
	want := map[history.Fate]int64{history.Fired: 1, history.StillPending: 1, history.Cancelled: 1, history.Done: 1,
		history.Rejected: 1}
	if got := r.Topics[0]; !reflect.DeepEqual(got.Fates, want) || len(r.Broken) > 0 || got.OtherSettings != all ||
		got.FirstOther != l.Topic+"/0/0" {
		t.Errorf("%+v, %v %q", got, r.Broken, r.Violations)
	}
	letter := func(id string, offset int64, reason waterclock.Reason) {
		l.write(l.topic.Letters, 0, []byte(id), nil, waterclock.HeaderReason, string(reason), waterclock.HeaderSource,
			l.Topic+"/0/"+strconv.FormatInt(offset, 10))
	}
	l.schedule("rejected", 0) // 5, as these settings want it
	letter("rejected", 5, waterclock.ReasonTargetNotAllowed)
	// 6
	l.write(l.Topic, -1000, []byte("good"), nil, waterclock.HeaderAt, strconv.FormatInt(base, 10),
		waterclock.HeaderTargetTopic, "elsewhere")
	letter("good", 6, waterclock.ReasonTargetNotAllowed)
	l.schedule("lost", 0) // 7
	l.checkpoint("p/3", 8)
	r = l.run(l.options())
	want[history.Rejected], want[history.Lost] = 3, 1
	if got := r.Topics[0]; !reflect.DeepEqual(got.Fates, want) ||
		!reflect.DeepEqual(r.Broken, map[string]int64{"loss": 1}) || got.OtherSettings != all+2 {
		t.Errorf("%+v, %v %q; want %v", got, r.Broken, r.Violations, want)
	}
}

// An audit of a span judges the requests in it, and considers the records before and after it.
func TestAuditOfASpan(t *testing.T) {
	l := newLogs(kafkatest.OnFake(t, 1))
	l.some()
	o := l.options()
	o.From, o.Until = time.UnixMilli(base-900), time.UnixMilli(base-400)
	r := l.run(o)
	if got, want := r.Topics[0].Fates,
		(map[history.Fate]int64{history.Unclear: 1, history.Rejected: 1}); !reflect.DeepEqual(got, want) ||
		len(r.Broken) > 0 {
		t.Errorf("%v, %q, want %v", got, r.Violations, want) // whether the cancel found a timer lies before the span
	}
}

// An audit that is interrupted anywhere goes on, and finds the same.
func TestAuditIsResumed(t *testing.T) {
	l := newLogs(kafkatest.OnFake(t, 1))
	l.some()
	l.emit("fired", 0, 5)
	l.checkpoint("p/3", 4) // a position that goes back
	l.checkpoint("p/4", 5)
	want := l.run(l.options())
	if want.Broken["duplicate"] != 1 || want.Broken["position"] != 1 {
		t.Fatalf("%v", want.Broken)
	}
	for _, at := range stageNames {
		o := l.options()
		o.Dir = t.TempDir()
		ctx, cancel := context.WithCancel(l.Ctx)
		o.Progress = func(stage string, _, _ int64) {
			if stage == at {
				cancel()
			}
		}
		_, err := Run(ctx, o)
		cancel()
		// In that stage there is nothing to be read.
		if at != stageNames[afterStage] && !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v", at, err)
		}
		o.Progress = nil
		if got := l.run(o); !reflect.DeepEqual(got.Topics, want.Topics) || !reflect.DeepEqual(got.Broken, want.Broken) {
			t.Errorf("interrupted at %s: %+v, want %+v", at, got, want)
		}
		if o.From = time.UnixMilli(base); o.Dir != "" {
			if _, err := Run(l.Ctx, o); err == nil {
				t.Error("an audit of another span goes on with the same directory")
			}
		}
	}
}

// An audit writes to no directory that has other files in it, such as an instance's.
func TestDirectoryOfSomethingElse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "CURRENT"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "of its own") {
		t.Errorf("%v", err)
	}
	if in, err := os.ReadDir(dir); err != nil || len(in) != 1 {
		t.Errorf("%v, %v", in, err)
	}
	twice, err := open(filepath.Join(t.TempDir(), "new"))
	if err != nil {
		t.Fatal(err)
	}
	if err := twice.close(); err != nil {
		t.Fatal(err)
	}
}

// An ID with too many facts is unknown, and the report says so.
func TestTooManyFacts(t *testing.T) {
	key := factKey("timers", "hot", requestKind, history.Place{Topic: "timers"})
	v := &verdict{
		topics: []Topic{{Name: "timers", Partitions: 1}}, plan: new(plan), report: new(Report),
		byTopic: map[string]*TopicReport{"timers": {Fates: map[history.Fate]int64{}}},
	}
	q := history.Request{Action: history.Cancels}
	if err := v.judgeAll(
		[]facts{{requests: "timers", id: "hot", more: 1,
			rows: []row{{tail: key[len(aboutOf(key)):], value: encode((*codec).request, q)}}}}); err != nil {
		t.Fatal(err)
	}
	if got := v.byTopic["timers"].Fates; got[history.Unknown] != 1 || len(v.report.Notes) != 1 {
		t.Errorf("%v, notes %q", got, v.report.Notes)
	}
}

// All violations are counted; only the first ones are listed.
func TestViolationsAreBounded(t *testing.T) {
	v := &verdict{report: &Report{Broken: make(map[string]int64)}}
	for range 3 {
		v.found(make([]history.Violation, keptViolations/2))
	}
	if kept, all := len(v.report.Violations), v.report.Broken[""]; kept != keptViolations || all != 3*keptViolations/2 {
		t.Errorf("%d listed of %d", kept, all)
	}
}

func TestMain(m *testing.M) { kafkatest.Main(m) }

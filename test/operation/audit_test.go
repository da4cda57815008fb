package operation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

// audited is what waterclock audit prints of one topic.
type audited struct {
	AddsUp bool
	Topics []struct {
		Requests int
		Fates    map[string]int
	}
	NotSeen    []string
	Broken     map[string]int
	Violations []violation
}

type violation struct {
	Rule, ID, Text string
	Where          []string
}

// An audit of a topic whose instance is killed meanwhile adds up, with events and without; and what is forged, doubled,
// early or gone afterwards is named.
func TestAudit(t *testing.T) {
	t.Parallel()
	for _, events := range []bool{true, false} {
		t.Run(fmt.Sprint("events ", events), func(t *testing.T) {
			t.Parallel()
			c := kafkatest.Shared(t)
			requests := c.CreateTopic(t, 2, nil)
			target := c.CreateTopic(t, 2, nil, requests+"-out")
			out := kafkatest.Collect(t, c, target)
			seen, group := rig.Watch(t, c, requests, 2, target), "group-of-"+requests
			settings := filepath.Join(t.TempDir(), "settings.yaml")
			if err := os.WriteFile(settings, fmt.Appendf(nil, "tenants:\n  %s: {targets: '*', events: %v}\n", requests,
				events), 0o600); err != nil {
				t.Fatal(err)
			}
			data := t.TempDir()
			serve := func() *rig.Process {
				args := rig.Arguments(c.Seeds(), requests, data, "--config", settings, "--session-timeout", "6s")
				in := rig.Start(t, args...)
				in.Ready(2, time.Minute)
				return in
			}
			in := serve()
			cl := c.Client(t)
			const n = 300
			now := time.Now()
			rig.Send(t, cl, timers(requests, target, "soon-", n, now, 3*time.Second, []byte("x"))...)
			rig.Send(t, cl, timers(requests, target, "later-", n, now.Add(time.Hour), 0, []byte("x"))...)
			// replace, or come again
			rig.Send(t, cl, timers(requests, target, "soon-", n/2, now.Add(2*time.Second), time.Second, []byte("y"))...)
			for i := range n / 3 {
				rig.Send(t, cl, &kgo.Record{Topic: requests, Key: fmt.Append(nil, "later-", i)})
			}
			seen.Look(&in.Web, group)
			in.Kill()
			rig.Send(t, cl, mixed(requests, target, now)...)
			in = serve()
			seen.Look(&in.Web, group)
			in.Balanced(n - n/3 + 1)
			seen.Look(&in.Web, group)

			seen.Check(events)
			audit := func(code int) audited { return auditOf(t, c, requests, settings, code) }
			if got := audit(0); !got.AddsUp || got.Topics[0].Fates["cancelled"] < n/3 ||
				got.Topics[0].Fates["pending"] != n-n/3+1 || got.Topics[0].Fates["rejected"] != 1 {
				t.Fatalf("%+v", got)
			}
			in.Term()
			in.Exit(time.Minute)
			seen.Stored(data)
			seen.Check(events)
			judgesWhatInstancesSay(t, seen.History(events))

			// A second emission of one occurrence, as no service would write it.
			again := *out.Records()[0].Record
			rig.Send(t, cl, &kgo.Record{Topic: again.Topic, Partition: again.Partition, Key: again.Key,
				Value: again.Value, Headers: again.Headers, Timestamp: again.Timestamp})
			if got := audit(1); got.Broken["duplicate"] == 0 || len(got.Violations) == 0 ||
				len(got.Violations[0].Where) == 0 {
				t.Errorf("a doubled emission: %+v", got)
			}
			// A request that was never served is not settled; one that the log has lost is unknown, never in order.
			rig.Send(t, cl, timers(requests, target, "unserved-", 1, now, 0, nil)...)
			if got := audit(1); got.Topics[0].Fates["undecided"] != 1 {
				t.Errorf("a request that nobody serves: %+v", got)
			}
		})
	}
}

// judgesWhatInstancesSay alters each thing that instances have said of themselves: it is noted and judged, so that is
// found.
func judgesWhatInstancesSay(t *testing.T, h history.History) {
	t.Helper()
	if len(h.Ledgers) == 0 || len(h.Lags) == 0 || len(h.Gauges) == 0 || len(h.Views) != 2 ||
		len(h.Views[0].Timers) == 0 {
		t.Fatalf("%d ledgers, %d lags, %d gauges, views %v", len(h.Ledgers), len(h.Lags), len(h.Gauges), h.Views)
	}
	rest := slices.IndexFunc(h.Ledgers, func(l history.Ledger) bool { return l.AtRest })
	if rest < 0 {
		t.Fatal("the instance was never at rest")
	}
	last := len(h.Lags) - 1
	for rule, alter := range map[string]func(by int){
		"ledger": func(by int) { h.Ledgers[rest].Off += int64(by) },
		"lag":    func(by int) { h.Lags[last].Position += int64(by) },
		"bounds": func(by int) { h.Gauges[0].Limit -= float64(by) * 100 },
		"fold":   func(by int) { h.Views[0].Timers[0].Due += int64(by) },
	} {
		alter(1)
		found := history.Check(h)
		if !slices.ContainsFunc(found, func(v history.Violation) bool { return v.Rule == rule }) {
			t.Errorf("%s: found %q", rule, found)
		}
		alter(-1)
	}
	rig.Violations(t, history.Check(h)) // as it was
}

// What is wrong in the logs of targets and of dead letters makes an audit exit with 1, and is named. It is made by
// hand: the target is made anew, and a plain client writes what the service had written to it, but for one thing.
func TestAuditNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 1, nil)
	target := c.CreateTopic(t, 1, nil, requests+"-out")
	settings := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(settings, fmt.Appendf(nil, "tenants:\n  %s: {targets: '*', events: true}\n", requests),
		0o600); err != nil {
		t.Fatal(err)
	}
	in := rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir(), "--config", settings)...)
	in.Ready(1, time.Minute)
	out := kafkatest.Collect(t, c, target)
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	now := time.Now()
	rig.Send(t, cl, timers(requests, target, "t-", 5, now, 500*time.Millisecond, []byte("x"))...) // offsets 0 to 4
	rig.Send(t, cl, rig.Timer(requests, target, "cancelled", now.Add(time.Hour)))                 // 5
	rig.Send(t, cl, &kgo.Record{Topic: requests, Key: []byte("cancelled")})                       // 6
	rig.Send(t, cl, rig.Timer(requests, target, "again", now))                                    // 7
	out.WaitFor(6, time.Minute)
	rig.Send(t, cl, rig.Timer(requests, target, "again", now)) // 8
	poison := rig.Timer(requests, target, "poison", now)       // 9
	poison.Headers[0].Value = []byte("tomorrow")
	rig.Send(t, cl, poison)
	received := out.WaitFor(7, time.Minute)
	in.Balanced(0)
	in.Term()
	in.Exit(time.Minute)
	var before []kgo.Record // in order of their offsets
	for _, r := range received {
		before = append(
			before, kgo.Record{Topic: target, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp})
	}
	with := func(r kgo.Record, name, value string) kgo.Record {
		r.Headers = slices.Clone(r.Headers)
		for i := range r.Headers {
			if r.Headers[i].Key == name {
				r.Headers[i].Value = []byte(value)
			}
		}
		return r
	}
	index := func(id string) int {
		return slices.IndexFunc(before, func(r kgo.Record) bool { return string(r.Key) == id })
	}
	adm := kadm.NewClient(cl)
	anew := func(records []kgo.Record) {
		t.Helper()
		kafkatest.DeleteTopics(t, adm, target)
		c.CreateTopic(t, 1, nil, target)
		fresh := c.Client(t) // cl knows the former topic
		for i := range records {
			rig.Send(t, fresh, &records[i])
		}
	}
	source := func(offset int) string { return fmt.Sprintf("%s/0/%d", requests, offset) }
	for _, w := range []struct {
		name     string
		alter    func(rs []kgo.Record) []kgo.Record
		rule, id string
		says     string
		where    string
	}{
		{"nothing", func(rs []kgo.Record) []kgo.Record { return rs }, "", "", "", ""},
		{"one is missing",
			func(rs []kgo.Record) []kgo.Record { return slices.Delete(rs, index("t-2"), index("t-2")+1) }, "loss",
			"t-2", "is not there", ""},
		{"a re-schedule is missing", func(rs []kgo.Record) []kgo.Record { return slices.Delete(rs, 6, 7) }, "loss",
			"again", source(8), ""},
		{"one is doubled", func(rs []kgo.Record) []kgo.Record { return append(rs, rs[0]) }, "duplicate",
			string(before[0].Key), "was emitted at", target + "/0/7"},
		{"another value", func(rs []kgo.Record) []kgo.Record { rs[1].Value = []byte("forged"); return rs }, "altered",
			string(before[1].Key), "another value", target + "/0/1"},
		{"another key", func(rs []kgo.Record) []kgo.Record { rs[1].Key = []byte("forged"); return rs }, "altered",
			string(before[1].Key), "another key", target + "/0/1"},
		{"1 ms early", func(rs []kgo.Record) []kgo.Record {
			e, err := waterclock.ParseEmission(&rs[2])
			if err != nil {
				t.Fatal(err)
			}
			rs[2].Timestamp = e.Due.Add(-time.Millisecond)
			return rs
		}, "early", string(before[2].Key), "1 ms early", target + "/0/2"},
		{"a cancelled timer fires", func(rs []kgo.Record) []kgo.Record {
			due := now.Add(time.Hour).UnixMilli()
			forged := with(with(with(with(rs[0], waterclock.HeaderID, "cancelled"), waterclock.HeaderSource, source(5)),
				waterclock.HeaderDue, fmt.Sprint(due)), waterclock.HeaderEvent, "x.0.5.1")
			forged.Key, forged.Value, forged.Timestamp = []byte("cancelled"), []byte("payload of cancelled"),
				time.UnixMilli(due)
			return append(rs, forged)
		}, "order", "cancelled", source(6), ""},
		{"nobody asked for it", func(rs []kgo.Record) []kgo.Record {
			return append(rs, with(with(rs[0], waterclock.HeaderSource, source(6)), waterclock.HeaderEvent, "x.0.6.1"))
		}, "altered", string(before[0].Key), "no request at " + source(6), target + "/0/7"},
	} {
		anew(w.alter(slices.Clone(before)))
		code := 1
		if w.rule == "" {
			code = 0
		}
		got := auditOf(t, c, requests, settings, code)
		if got.AddsUp != (code == 0) || len(got.NotSeen) > 0 {
			t.Errorf("%s: %+v", w.name, got)
		}
		if code == 1 && !slices.ContainsFunc(got.Violations, func(v violation) bool {
			return v.Rule == w.rule && v.ID == w.id && strings.Contains(v.Text, w.says) &&
				(w.where == "" || slices.Contains(v.Where, w.where))
		}) {
			t.Errorf("%s: %+v, want %s of %s", w.name, got.Violations, w.rule, w.id)
		}
	}
	anew(before)
	letters := kafkatest.Collect(t, c, topics.DeadLetters(requests)).WaitFor(1, time.Minute)
	rig.Send(t, cl, &kgo.Record{Topic: letters[0].Topic, Partition: letters[0].Partition, Key: letters[0].Key,
		Value: letters[0].Value, Headers: letters[0].Headers})
	if got := auditOf(t, c, requests, settings, 1); got.Broken["poison"] != 1 ||
		!strings.Contains(got.Violations[0].Text, source(9)+" was rejected twice") {
		t.Errorf("a doubled dead letter: %+v", got)
	}
}

// auditOf runs an audit that must exit with a code.
func auditOf(t *testing.T, c *kafkatest.Cluster, requests, settings string, code int) (got audited) {
	t.Helper()
	p := rig.Exec(t, nil, "audit", "--brokers", strings.Join(c.Seeds(), ","), "--requests", requests, "--config",
		settings, "--json")
	if got := p.Exit(2 * time.Minute); got != code {
		t.Fatalf("exit %d, want %d: %s", got, code, p.Output())
	}
	text := p.Output()
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return got
}

// An audit beside a service at work sees one cut through logs that go on: what is written meanwhile is neither missing
// nor too much. What retention takes away is unknown then, and never in order.
func TestAuditBesideTheService(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 2, nil)
	target := c.CreateTopic(t, 2, nil, requests+"-out")
	settings := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(settings, fmt.Appendf(nil, "tenants:\n  %s: {targets: '*', events: true}\n", requests),
		0o600); err != nil {
		t.Fatal(err)
	}
	in := rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir(), "--config", settings)...)
	in.Ready(2, time.Minute)
	cl := c.Client(t)
	s := rig.StartStream(t, cl, 400, func(n int) *kgo.Record {
		id := fmt.Sprint("id-", n/4) // scheduled, replaced, cancelled or not, scheduled again
		if n%4 == 2 && n%8 == 2 {
			return &kgo.Record{Topic: requests, Key: []byte(id)}
		}
		return rig.Timer(requests, target, id, time.Now().Add(time.Duration(n%16)*20*time.Millisecond))
	})
	for range 4 {
		if got := auditOf(t, c, requests, settings, 0); !got.AddsUp {
			t.Errorf("%+v", got)
		}
	}
	sent := s.Stop()
	in.Settled()
	if got := auditOf(t, c, requests, settings, 0); got.Topics[0].Requests != sent ||
		got.Topics[0].Fates["undecided"] != 0 {
		t.Errorf("%+v, want %d requests", got, sent)
	}
	adm := kadm.NewClient(cl)
	ends, err := adm.ListEndOffsets(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteRecords(t.Context(), ends.Offsets()); err != nil {
		t.Fatal(err)
	}
	if got := auditOf(t, c, requests, settings, 1); got.AddsUp || len(got.NotSeen) == 0 || len(got.Broken) > 0 {
		t.Errorf("without what was emitted: %+v", got)
	}
}

// mixed are requests of each kind.
func mixed(requests, target string, now time.Time) []*kgo.Record {
	every, paused, poison, cond := rig.Timer(requests, target, "every", now),
		rig.Timer(requests, target, "paused", now.Add(time.Second)), rig.Timer(requests, target, "poison", now),
		rig.Timer(requests, target, "paused", now)
	every.Headers = []kgo.RecordHeader{
		{Key: "timer-every", Value: []byte("300ms")}, {Key: "timer-count", Value: []byte("4")},
		{Key: "timer-catch-up", Value: []byte("all")},
		{Key: "timer-target-topic", Value: []byte(target)},
	}
	poison.Headers[0].Value = []byte("tomorrow")
	cond.Headers = append(cond.Headers, kgo.RecordHeader{Key: "timer-if", Value: []byte("absent")})
	paused.Headers[0].Value = fmt.Append(nil, now.Add(time.Hour).UnixMilli())
	return []*kgo.Record{
		every, paused, poison,
		{Topic: requests, Key: []byte("paused"),
			Headers: []kgo.RecordHeader{{Key: "timer-pause", Value: []byte("true")}}},
		cond,
		{Topic: requests, Key: []byte("nothing")},
	}
}

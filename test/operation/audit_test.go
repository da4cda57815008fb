package operation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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
	Violations []struct {
		Rule, ID, Text string
		Where          []string
	}
}

// auditing is a request topic with an instance of the real binary, and with audits of it.
type auditing struct {
	*scene
	file string // of settings
	p    *rig.Process
}

func newAuditing(t *testing.T, events bool) *auditing {
	t.Helper()
	a := &auditing{scene: onKafka(t, 2, 2), file: filepath.Join(t.TempDir(), "settings.yaml")}
	if err := os.WriteFile(a.file, fmt.Appendf(nil, "tenants:\n  %s: {targets: '*', events: %v}\n", a.Requests,
		events), 0o600); err != nil {
		t.Fatal(err)
	}
	a.start()
	return a
}

func (a *auditing) start() {
	a.Helper()
	args := rig.Arguments(a.Seeds, a.Requests, a.cfg.DataDir, "--config", a.file, "--session-timeout", "6s")
	a.p = rig.Start(a, args...)
	a.p.Ready(2, limit)
}

// audit runs an audit that must exit with a code.
func (a *auditing) audit(code int) (got audited) {
	a.Helper()
	p := rig.Exec(a, nil, "audit", "--brokers", strings.Join(a.Seeds, ","), "--requests", a.Requests, "--config",
		a.file, "--json")
	if got := p.Exit(limit); got != code {
		a.Fatalf("exit %d, want %d: %s", got, code, p.Output())
	}
	if err := json.NewDecoder(strings.NewReader(p.Output())).Decode(&got); err != nil {
		a.Fatalf("%v: %s", err, p.Output())
	}
	return got
}

// An audit of a topic whose instance is killed meanwhile adds up, with events and without; and what is doubled or gone
// afterwards is named.
func TestAudit(t *testing.T) {
	t.Parallel()
	for _, events := range []bool{true, false} {
		t.Run(fmt.Sprint("events ", events), func(t *testing.T) {
			t.Parallel()
			a := newAuditing(t, events)
			seen := rig.Watch(t, a.Cluster, a.Requests, 2, a.Target)
			const n = 300
			now := time.Now()
			a.Send(a.Timers("soon-", n, now, 3*time.Second)...)
			a.Send(a.Timers("later-", n, now.Add(time.Hour), 0)...)
			a.Send(a.Timers("soon-", n/2, now.Add(2*time.Second), time.Second)...) // replace, or come again
			for i := range n / 3 {
				a.Send(a.Cancel(fmt.Sprint("later-", i)))
			}
			seen.Look(&a.p.Web, a.cfg.Group)
			a.p.Kill()
			a.Send(mixed(a.Requests, a.Target, now)...)
			a.start()
			seen.Look(&a.p.Web, a.cfg.Group)
			a.p.Balanced(n - n/3 + 1)
			seen.Look(&a.p.Web, a.cfg.Group)

			seen.Check(events)
			if got := a.audit(0); !got.AddsUp || got.Topics[0].Fates["cancelled"] < n/3 ||
				got.Topics[0].Fates["pending"] != n-n/3+1 || got.Topics[0].Fates["rejected"] != 1 {
				t.Fatalf("%+v", got)
			}
			a.p.Term()
			a.p.Exit(limit)
			seen.Stored(a.cfg.DataDir)
			seen.Check(events)
			if h := seen.History(events); len(h.Ledgers) == 0 || len(h.Lags) == 0 || len(h.Gauges) == 0 ||
				len(h.Stores) != 2 || len(h.Stores[0].Timers) == 0 {
				t.Fatalf("what instances say of themselves is not judged: %d ledgers, %d lags, %d gauges, views %v",
					len(h.Ledgers), len(h.Lags), len(h.Gauges), h.Stores)
			}

			// A second emission of one occurrence, as no service would write it.
			again := *a.Out.Records()[0].Record
			a.Send(&kgo.Record{Topic: again.Topic, Partition: again.Partition, Key: again.Key, Value: again.Value,
				Headers: again.Headers, Timestamp: again.Timestamp})
			if got := a.audit(1); got.Broken["duplicate"] == 0 || len(got.Violations) == 0 ||
				got.Violations[0].ID != string(again.Key) || len(got.Violations[0].Where) == 0 {
				t.Errorf("a doubled emission: %+v", got)
			}
			// A request that was never served is not settled; one that the log has lost is unknown, never in order.
			a.Send(a.Timer("unserved", now))
			if got := a.audit(1); got.Topics[0].Fates["undecided"] != 1 {
				t.Errorf("a request that nobody serves: %+v", got)
			}
		})
	}
}

// An audit beside a service at work sees one cut through logs that go on: what is written meanwhile is neither missing
// nor too much. What retention takes away is unknown then, and never in order.
func TestAuditBesideTheService(t *testing.T) {
	t.Parallel()
	a := newAuditing(t, true)
	stream := rig.StartStream(t, a.Client, 400, func(n int) *kgo.Record {
		id := fmt.Sprint("id-", n/4) // scheduled, replaced, cancelled or not, scheduled again
		if n%8 == 2 {
			return a.Cancel(id)
		}
		return a.Timer(id, time.Now().Add(time.Duration(n%16)*20*time.Millisecond))
	})
	for range 4 {
		if got := a.audit(0); !got.AddsUp {
			t.Errorf("%+v", got)
		}
	}
	sent := stream.Stop()
	a.p.Settled()
	if got := a.audit(0); got.Topics[0].Requests != sent || got.Topics[0].Fates["undecided"] != 0 {
		t.Errorf("%+v, want %d requests", got, sent)
	}
	ends, err := a.Admin.ListEndOffsets(t.Context(), a.Target)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Admin.DeleteRecords(t.Context(), ends.Offsets()); err != nil {
		t.Fatal(err)
	}
	if got := a.audit(1); got.AddsUp || len(got.NotSeen) == 0 || len(got.Broken) > 0 {
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

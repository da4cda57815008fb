package contract

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// combination is a header that comes together with those of each base.
type combination struct {
	name, value string
	// wants are the outcome with each base, or the reason for which it is rejected; "": the base has the header.
	wants [5]string
}

// all is the same outcome with each base.
func all(outcome string) (wants [5]string) {
	for i := range wants {
		wants[i] = outcome
	}
	return wants
}

// TestHeadersCombined: a start for cron, a period, jitter of a plain timer, and timers that are declared again, each
// with every other header, over Kafka and over HTTP: the outcomes, as events and as answers, are the same. What is
// declared again the same way is unchanged. Over HTTP what would be rejected is not written, so it has no event.
func TestHeadersCombined(t *testing.T) {
	t.Parallel()
	s := newSetup(t, kafkatest.Shared(t), 1, 1)
	cfg := s.policy(func(p *config.Policy) { p.Events = true })
	cfg.API = "127.0.0.1:0"
	in := s.serve(cfg, 1)
	api := in.API()
	told := kafkatest.Collect(t, s.Cluster, topics.Events(s.Requests))

	at, end, soon := millis(time.Now().Add(48*time.Hour)), millis(time.Now().Add(1000*time.Hour)), millis(time.Now())
	bases := [5][]string{
		{"timer-at", at, "timer-cron", "0 9 * * *"},
		{"timer-at", at, "timer-every", "P1M", "timer-zone", "Africa/Lagos"},
		{"timer-at", at, "timer-jitter", "10m"},
		{"timer-at", at, "timer-if", "changed"},
		{"timer-at", at, "timer-cron", "@daily", "timer-zone", "Africa/Lagos", "timer-if", "changed"},
	}
	const ok, conflict, none = "scheduled", "conflicting-headers", "no-recurrence"
	const steers, condition = "steering-with-due-time", "condition-not-met"
	table := []combination{
		{"timer-after", "10s", all(conflict)},
		{"timer-every", "1h", [5]string{conflict, "", ok, ok, conflict}},
		{"timer-every", "P1D", [5]string{conflict, "", ok, ok, conflict}},
		{"timer-every", "P1M", [5]string{conflict, "", "bad-interval", "bad-interval", conflict}},
		{"timer-every", "1ms", [5]string{conflict, "", "interval-too-short", "interval-too-short", conflict}},
		{"timer-cron", "0 8 L * *", [5]string{"", conflict, ok, ok, ""}},
		{"timer-cron", "0 8 L", [5]string{"", conflict, "bad-cron", "bad-cron", ""}},
		{"timer-cron", "0 8 30 2 *", [5]string{"", conflict, "cron-never-due", "cron-never-due", ""}},
		{"timer-zone", "Africa/Lagos", [5]string{ok, "", none, none, ""}},
		{"timer-zone", "Mars/Olympus", [5]string{"unknown-zone", "", none, none, ""}},
		{"timer-until", end, [5]string{ok, ok, none, none, ok}},
		{"timer-until", soon, [5]string{"until-before-first", "until-before-first", none, none, "until-before-first"}},
		{"timer-until", "later", [5]string{"bad-until", "bad-until", none, none, "bad-until"}},
		{"timer-count", "3", [5]string{ok, ok, none, none, ok}},
		{"timer-count", "0", [5]string{"bad-count", "bad-count", none, none, "bad-count"}},
		{"timer-jitter", "1m", [5]string{ok, ok, "", ok, ok}},
		{"timer-jitter", "5", [5]string{"bad-jitter", "bad-jitter", "", "bad-jitter", "bad-jitter"}},
		{"timer-catch-up", "none", [5]string{ok, ok, none, none, ok}},
		{"timer-catch-up", "some", [5]string{"bad-catch-up", "bad-catch-up", none, none, "bad-catch-up"}},
		{"timer-max-late", "1m", all(ok)},
		{"timer-max-late", "-1m", all("bad-max-late")},
		{"timer-remember", "1h", all(ok)},
		{"timer-remember", "8d", all("bad-remember")},
		{"timer-labels", "team=a, order=17", all(ok)},
		{"timer-labels", "team", all("bad-labels")},
		{"timer-labels-header", "x", all("bad-labels")},
		{"timer-if", "absent", [5]string{ok, ok, ok, "", ""}},
		{"timer-if", "present", [5]string{condition, condition, condition, "", ""}},
		{"timer-if", "changed", [5]string{ok, ok, ok, "", ""}},
		{"timer-if", "17", [5]string{"bad-if", "bad-if", "bad-if", "", ""}},
		{"timer-cancel", "true", all(conflict)},
		{"timer-trigger", "true", all(steers)},
		{"timer-pause", "true", all(steers)},
		{"timer-resume", "true", all(steers)},
		{"timer-move", "true", all("bad-move")},
		{"timer-target-key", "k", all(ok)},
		{"timer-target-key-null", "true", all(ok)},
		{"timer-target-partition", "0", all(ok)},
		{"timer-target-partition", "-1", all("bad-partition")},
		{"timer-never", "1", all("unknown-header")},
		{"other", "passed on", all(ok)},
	}
	wants := make(map[string][]string) // outcomes by ID
	want := func(id, outcome string, declared bool) {
		if wants[id] = []string{outcome}; declared && outcome == ok {
			wants[id] = []string{ok, "unchanged"}
		}
	}
	var recs []*kgo.Record
	for i, c := range table {
		for b, base := range bases {
			if c.wants[b] == "" {
				continue
			}
			headers := append([]string{"timer-target-topic", s.Target, c.name, c.value}, base...)
			declared := slices.Contains(headers, "changed")
			id := fmt.Sprintf("kafka-%d-%d", i, b)
			rec := rig.Request(s.Requests, id, "v", headers...)
			want(id, c.wants[b], declared)
			for range wants[id] {
				again := *rec
				recs = append(recs, &again)
			}

			if id = fmt.Sprintf("http-%d-%d", i, b); c.name == "other" {
				headers[2], headers[3] = "Waterclock-Pass", c.name+"="+c.value
			}
			want(id, c.wants[b], declared)
			words := wants[id]
			if c.wants[b] != ok && c.wants[b] != condition {
				wants[id] = nil
			}
			if c.name == "timer-cancel" || c.name == "timer-move" || c.wants[b] == steers { // a PUT does none of these
				words = []string{"bad-request"}
			}
			for _, word := range words {
				a := api.Call("PUT", "/v1/topics/"+s.Requests+"/timers/"+id, "v", headers...)
				if a.Word() != word {
					t.Errorf("HTTP %q: %d %s, want %s", headers, a.Status, a.Text, word)
				}
			}
		}
	}
	s.Send(recs...)
	events := 0
	for _, w := range wants {
		events += len(w)
	}
	got := make(map[string][]string)
	for _, r := range told.WaitFor(events, patience) {
		e, err := waterclock.ParseEvent(r.Record)
		if err != nil {
			t.Fatal(err)
		}
		outcome := string(e.Type)
		if e.Type == waterclock.EventRejected {
			outcome = string(e.Reason)
		}
		got[e.ID] = append(got[e.ID], outcome)
	}
	for id, w := range wants {
		if !slices.Equal(got[id], w) {
			t.Errorf("%s: events %q, want %q", id, got[id], w)
		}
	}
	t.Logf("%d combinations over Kafka and HTTP, %d events", len(wants), events)
}

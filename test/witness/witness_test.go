package witness

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
)

func at(ms int64) time.Time { return time.UnixMilli(1_700_000_000_000 + ms) }

// good is a history without a violation, in which each rule has something to check: the timer a fires at 1000, b is
// cancelled, d and g stay.
func good() *History {
	h := &History{History: history.History{Scope: history.Scope{Settle: 10 * time.Second, Ended: at(20_500)}}}
	timers := make(map[string]history.Timer)
	for i, id := range []string{"a", "b", "d", "g"} {
		r := history.Request{
			Record: history.Record{Place: history.Place{Topic: "timers", Offset: int64(i)}, Seen: at(1)}, ID: id,
			Action: history.Schedules, Due: at(60_000).UnixMilli(), Acked: at(1)}
		if id == "a" {
			r.Due = at(1000).UnixMilli()
		}
		h.Requests = append(h.Requests, r)
		timers[id] = history.Timer{ID: id, Source: r.Place, Due: r.Due, Occurrence: 1}
	}
	h.Requests = append(h.Requests, history.Request{ID: "b", Action: history.Cancels, Acked: at(1),
		Record: history.Record{Place: history.Place{Topic: "timers", Offset: 4}, Seen: at(1)}})
	change := func(ms int64, c history.ChangelogRecord) {
		c.Place = history.Place{Topic: "timers.waterclock.changelog", Offset: int64(len(h.Changes))}
		c.Timestamp, c.Seen, c.Requests = at(ms).UnixMilli(), at(ms+1), "timers"
		h.Changes = append(h.Changes, c)
	}
	step := func(ms, position int64, pending bool, ids ...string) {
		for _, id := range ids {
			c := history.ChangelogRecord{Kind: history.TimerChange, ID: id}
			if pending {
				t := timers[id]
				c.Timer = &t
			}
			change(ms, c)
		}
		change(ms, history.ChangelogRecord{Kind: history.Checkpoint, Group: "g", Step: fmt.Sprint("p/", len(h.Changes)),
			Position: position})
	}
	step(5, 4, true, "a", "b", "d", "g")
	step(10, 5, false, "b")
	step(1001, 5, false, "a")
	h.Emissions = []history.Emission{{Record: history.Record{Place: history.Place{Topic: "orders"},
		Timestamp: at(1001).UnixMilli(), Seen: at(1002)}, ID: "a", Due: at(1000).UnixMilli(), Occurrence: 1,
		Source: h.Requests[0].Place, Event: "x.0.1"}}
	pending := []history.Timer{timers["d"], timers["g"]}
	h.Stores = []StoreContents{{Instance: "q", Requests: "timers", Position: int64(len(h.Changes)),
		Timers: slices.Clone(pending)}}
	h.Answers = []Answer{
		{Instance: "p", Asked: at(20), Given: at(21), Requests: "timers", IDs: []string{"a", "b"}, Count: -1,
			Timers: []history.Timer{timers["a"]}},
		{Instance: "q", Asked: at(3000), Given: at(3001), Requests: "timers", Count: -1, Timers: slices.Clone(pending)},
		{Instance: "q", Asked: at(3000), Given: at(3001), Requests: "timers", Count: 2},
	}
	h.Lags = []Lag{{Asked: at(20_000), Given: at(20_001), Requests: "timers", Position: 5, End: 5}}
	h.Ledgers = []Ledger{{Instance: "q", Requests: "timers", At: at(3000), AtRest: true}}
	h.Gauges = []Gauge{{Instance: "q", Name: "memory", At: at(3000), Value: 99, Limit: 100}}
	return h
}

// dIsDue has the timer d, which is still pending, be due long before the end.
func dIsDue(h *History) {
	due := at(5000).UnixMilli()
	h.Requests[2].Due, h.Changes[2].Timer.Due = due, due
	h.Stores, h.Answers = nil, nil
}

// Each change of a good history is found, by the rule that it breaks; a good one has no violation.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(h *History)
		want string // the rule; "": nothing is found
	}{
		{"good", func(*History) {}, ""},

		{"a store lacks a timer", func(h *History) { h.Stores[0].Timers = h.Stores[0].Timers[1:] }, "fold"},
		{"a store has a timer that is gone", func(h *History) {
			h.Stores[0].Timers = append(h.Stores[0].Timers, h.Answers[0].Timers[0])
		}, "fold"},
		{"a store has another due time", func(h *History) { h.Stores[0].Timers[0].Due++ }, "fold"},

		{"a ledger is off", func(h *History) { h.Ledgers[0].Off = 1 }, "ledger"},

		{"a stale answer", func(h *History) {
			h.Answers[1].Timers = append(h.Answers[1].Timers, h.Answers[0].Timers...)
		}, "stale"},
		{"an answer that comes too soon after a firing", func(h *History) {
			h.Answers[0].Asked, h.Answers[0].Given = at(1002), at(1003)
		}, "stale"},
		{"an answer that lacks a timer", func(h *History) { h.Answers[1].Timers = h.Answers[1].Timers[1:] }, "stale"},
		{"an answer of a timer that never was", func(h *History) {
			h.Answers[1].Timers = append(h.Answers[1].Timers, history.Timer{ID: "z", Source: h.Requests[0].Place})
		}, "stale"},
		{"a count too many", func(h *History) { h.Answers[2].Count++ }, "stale"},
		{"a count too few", func(h *History) { h.Answers[2].Count-- }, "stale"},

		{"a group offset of the past", func(h *History) { h.Lags[0].Position, h.Lags[0].Reported = 4, 1 }, "lag"},
		{"a group offset of no step", func(h *History) { h.Lags[0].Position, h.Lags[0].End = 6, 6 }, "lag"},
		{"a lag said wrong", func(h *History) { h.Lags[0].Reported = 1 }, "lag"},
		{"a lag although nothing waits", func(h *History) { h.Lags[0].End, h.Lags[0].Reported = 7, 2 }, "lag"},

		{"a due timer stays", dIsDue, "liveness"},
		{"a due timer stays, by the slowest clock", func(h *History) {
			dIsDue(h)
			h.Readings = []history.Reading{{Instance: "p", At: at(0), Shows: at(-5000).UnixMilli()},
				{Instance: "q", At: at(0), Shows: at(5000).UnixMilli()},
				{Instance: "p", At: at(1), Shows: at(1).UnixMilli()}}
		}, "liveness"},
		{"a timer whose owner's clock may be behind", func(h *History) {
			dIsDue(h)
			h.Readings = []history.Reading{{Instance: "p", At: at(0), Shows: at(-60_000).UnixMilli()},
				{Instance: "q", At: at(0), Shows: at(5000).UnixMilli()}}
		}, ""},
		{"a request stays", func(h *History) {
			h.Scope.Settled = map[history.Log]int64{{Topic: "timers"}: 4}
		}, "liveness"},
		{"a timer is late", func(h *History) { h.Emissions[0].Seen = at(12_500) }, "liveness"},

		{"beyond a limit", func(h *History) { h.Gauges[0].Value = 101 }, "bounds"},

		{"steps that a changelog has lost", func(h *History) {
			h.Scope.Undone = map[string]map[string]bool{"timers": {"a": true, "d": true}}
			h.Answers = nil
			h.Lags[0].Position, h.Lags[0].End = 6, 6 // committed by a step that the log lost
		}, ""},
		{"steps that a changelog has lost, and that only moved the position", func(h *History) {
			h.Scope.Undone = map[string]map[string]bool{"timers": {}}
			h.Answers = nil
			h.Lags[0].Position, h.Lags[0].End = 6, 6
		}, ""},
	} {
		h := good()
		c.do(h)
		found := Check(*h)
		if c.want == "" && len(found) > 0 || c.want != "" &&
			!slices.ContainsFunc(found, func(v history.Violation) bool { return v.Rule == c.want }) {
			t.Errorf("%s: %q, want one of %q", c.name, found, c.want)
		}
	}
}

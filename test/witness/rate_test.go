package witness

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
)

// paced has n timers that are due at once, and go to their target at 10 a second, 5 at once.
func paced(n int) History {
	h := History{History: history.History{Scope: history.Scope{Settle: 10 * time.Second},
		Rates: []history.Rate{{Target: "orders", From: at(-120_000), PerSecond: 10, AtOnce: 5}}}}
	for i := range n {
		id, from := fmt.Sprint("t", i), history.Place{Topic: "timers", Offset: int64(i)}
		due, emits := at(int64(i)).UnixMilli(), history.Payload{Topic: "orders", Key: id}
		h.Requests = append(h.Requests, history.Request{Record: history.Record{Place: from}, ID: id,
			Action: history.Schedules, Acked: at(-59_999), Due: due, Emits: emits})
		h.Emissions = append(h.Emissions, history.Emission{
			Record: history.Record{Place: history.Place{Topic: "orders", Offset: int64(i)},
				Timestamp: at(int64(1000 + max(0, i-4)*100)).UnixMilli()},
			ID: id, Due: due, Occurrence: 1, Source: from, Event: id, Carries: emits})
	}
	return h
}

func TestRate(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(h *History)
		want bool
	}{
		{"at the rate", func(*History) {}, false},
		{"one too many at the begin", func(h *History) { h.Emissions[5].Timestamp -= 100 }, true},
		{"one too many in the middle", func(h *History) { h.Emissions[100].Timestamp -= 200 }, true},
		{"half a second's worth at once, behind a pause", func(h *History) {
			for i := 50; i < 200; i++ {
				h.Emissions[i].Timestamp += 400
			}
			for i := 50; i < 54; i++ {
				h.Emissions[i].Timestamp = h.Emissions[54].Timestamp
			}
		}, false},
		{"more than that", func(h *History) {
			for i := 50; i < 56; i++ {
				h.Emissions[i].Timestamp = h.Emissions[50].Timestamp
			}
		}, true},
		{"another rate from then on", func(h *History) {
			at := time.UnixMilli(h.Emissions[100].Timestamp)
			h.Rates[0].To = at.Add(-50 * time.Millisecond)
			h.Rates = append(h.Rates, history.Rate{Target: "orders", From: at, PerSecond: 20, AtOnce: 5})
			for i := 101; i < 200; i++ {
				h.Emissions[i].Timestamp = at.UnixMilli() + int64(i-100)*50
			}
		}, false},
		{"the former rate still holds", func(h *History) {
			for i := 101; i < 200; i++ {
				h.Emissions[i].Timestamp = h.Emissions[100].Timestamp + int64(i-100)*50
			}
		}, true},
		{"a clock was set", func(h *History) {
			h.Emissions[100].Timestamp -= 200
			h.Readings = []history.Reading{{Instance: "p", At: at(0), Shows: at(0).UnixMilli()}}
		}, false},
		{"the first one last", func(h *History) {
			h.Emissions[0].Timestamp = h.Emissions[199].Timestamp + 100
		}, true},
		{"the first one last, in a fault", func(h *History) {
			h.Emissions[0].Timestamp = h.Emissions[199].Timestamp + 100
			h.Faults = []history.Fault{{From: at(20_000), To: at(20_500)}}
		}, false},
		{"the first one last, asked for late", func(h *History) {
			h.Emissions[0].Timestamp = h.Emissions[199].Timestamp + 100
			h.Requests[0].Acked = at(20_000)
		}, false},
		{"within a step of its planners", func(h *History) {
			h.Emissions[10].Timestamp, h.Emissions[20].Timestamp = h.Emissions[20].Timestamp, h.Emissions[10].Timestamp
		}, false},
	} {
		h := paced(200)
		c.do(&h)
		found := Check(h)
		if broken := slices.ContainsFunc(found, func(v history.Violation) bool {
			return v.Rule == "rate"
		}); broken != c.want {
			t.Errorf("%s: %q, want a violation: %v", c.name, found, c.want)
		}
	}
}

package partition

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// The effect of each outcome on the number that must be pending, and a planted fault: a timer that the store lost.
func TestLedger(t *testing.T) {
	for _, c := range []struct {
		outcome timer.Outcome
		change  int64
	}{
		{timer.None, 0}, {timer.Scheduled, 1}, {timer.Replaced, 0}, {timer.Cancelled, -1}, {timer.NotFound, 0},
		{timer.Fired, -1}, {timer.Expired, -1}, {timer.Refused, 0}, {timer.Undeliverable, -1}, {timer.Completed, -1},
		{timer.Triggered, 0}, {timer.Paused, 0}, {timer.Resumed, 0}, {timer.Unmet, 0}, {timer.Moved, 0},
	} {
		var l ledger
		l.open(7)
		var counts [timer.Outcomes]int
		counts[c.outcome] = 3
		l.add(&counts, 0)
		balance := func(pending int64) int64 {
			l.pending.Store(pending)
			return l.balance()
		}
		if got := balance(7 + 3*c.change); got != 0 {
			t.Errorf("outcome %d: the balance is %d", c.outcome, got)
		}
		if got := balance(7 + 3*c.change - 1); got != 1 {
			t.Errorf("outcome %d: a lost timer shows as %d", c.outcome, got)
		}
	}
}

// A committed step counts each outcome under its name, once for each entry.
func TestEachOutcomeIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	p := New(Options{Options: ownership.Options{
		Topics: &topics.Set{Request: topics.Topic{Name: "requests"}}, Logger: slog.New(slog.DiscardHandler),
	}})
	want := map[string]int{}
	var entries []*planner.Entry
	for o, name := range outcomeNames {
		want[name] = len(want) + 1
		for range want[name] {
			e := &planner.Entry{}
			if e.Outcome = o; o == timer.Refused || o == timer.Undeliverable {
				e.Outcome, e.Refusal, e.Tag = timer.None, &timer.Refusal{}, &kgo.Record{}
			}
			if o == timer.Undeliverable {
				e.Emit = &timer.Timer{}
			}
			entries = append(entries, e)
		}
	}
	m.committed(p, new(arrivals), 0, 0, slices.Values(entries))
	if got := outcomesIn(t, reg); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// outcomesIn returns the counts of waterclock_outcomes_total.
func outcomesIn(t *testing.T, reg prometheus.Gatherer) map[string]int {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "waterclock_outcomes_total" && l.GetName() == "outcome" {
					got[l.GetValue()] = int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return got
}

package partition

import (
	"log/slog"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/timer"
)

// What each outcome does to the number that must be pending, and a planted fault:
// a timer that the store lost.
func TestLedger(t *testing.T) {
	for _, c := range []struct {
		outcome timer.Outcome
		change  int64
	}{
		{timer.None, 0}, {timer.Scheduled, 1}, {timer.Replaced, 0}, {timer.Cancelled, -1}, {timer.NotFound, 0},
		{timer.Fired, -1}, {timer.Expired, -1}, {timer.Refused, 0}, {undeliverable, -1},
	} {
		var l ledger
		l.open(7)
		var counts [undeliverable + 1]int
		counts[c.outcome] = 3
		l.add(&counts)
		if got := l.balance(7 + 3*c.change); got != 0 {
			t.Errorf("outcome %d: the balance is %d", c.outcome, got)
		}
		if got := l.balance(7 + 3*c.change - 1); got != 1 {
			t.Errorf("outcome %d: a lost timer shows as %d", c.outcome, got)
		}
	}
}

// A committed step counts each outcome under its name, once for each entry.
func TestEachOutcomeIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	p := &Partition{log: slog.New(slog.DiscardHandler), o: Options{Topics: &delaytopics.Set{Request: delaytopics.Topic{Name: "requests"}}}}
	want := map[string]int{}
	var chunk []*entry
	for o, name := range outcomeNames {
		want[name] = len(want) + 1
		for range want[name] {
			e := &entry{}
			if e.Outcome = o; o == timer.Refused || o == undeliverable {
				e.Outcome, e.refusal, e.dead = timer.None, &refusal{}, &kgo.Record{}
			}
			if o == undeliverable {
				e.item = &item{}
			}
			chunk = append(chunk, e)
		}
	}
	m.committed(p, &sealed{segment: &intake.Segment[*entry]{Chunks: [][]*entry{chunk}}, share: &emitter.Share{}})
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
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

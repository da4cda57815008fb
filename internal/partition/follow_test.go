package partition

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// TestChangesDoNotCutPassesShort: calendars that change all the time do not keep a pass from its end. The slow pass
// after an acquisition gives way to a faster one.
func TestChangesDoNotCutPassesShort(t *testing.T) {
	for _, c := range []struct {
		name string
		f    follow
		want bool
	}{
		{"at first", follow{}, true},
		{"no change", follow{begun: true, version: 2}, false},
		{"a change", follow{begun: true, version: 1}, true},
		{"a change during a pass", follow{begun: true, version: 1, under: true, part: followChanged}, false},
		{"a change during the first pass", follow{begun: true, version: 1, under: true, part: followAcquired}, true},
	} {
		if got := c.f.isDue(2); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// only is a calendar with that name, alone.
type only string

func (o only) Calendar(name string) (*calendar.Exclusion, int64) {
	if name != string(o) {
		return nil, 0
	}
	return new(calendar.Exclusion), 0
}

// TestTimersWithoutCalendar: timers that name calendars that do not exist are counted, each once.
func TestTimersWithoutCalendar(t *testing.T) {
	rows := []*timer.Timer{{}, {Recurrence: &timer.Recurrence{Every: 1}}}
	for _, names := range []string{"a", "a,gone", "gone,lost"} {
		rows = append(rows, &timer.Timer{Recurrence: &timer.Recurrence{NotOn: names}})
	}
	var w missing
	w.add(only("a"), rows)
	if w.timers != 2 || len(w.names) != 2 || w.names["gone"] != 2 || w.names["lost"] != 1 {
		t.Errorf("%+v", w)
	}
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	shown := func() (values []float64) {
		all, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if f.GetName() == "waterclock_timers_without_calendar" {
				for _, one := range f.GetMetric() {
					values = append(values, one.GetGauge().GetValue())
				}
			}
		}
		return values
	}
	m.withoutCalendar("timers", 3, w.timers)
	if got := shown(); len(got) != 1 || got[0] != 2 {
		t.Errorf("the metric is %v", got)
	}
	if m.dropMissing("timers", 3); len(shown()) != 0 {
		t.Errorf("%v are left", shown())
	}
}

// TestMissingCalendarsEndWithTheirAcquisition: calendars may have come while another instance had the partition. So
// nothing is reported before the first pass of an acquisition has ended.
func TestMissingCalendarsEndWithTheirAcquisition(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.s.keeper.follow.without.add(only("a"), []*timer.Timer{{Recurrence: &timer.Recurrence{NotOn: "gone"}}})
	c.s.keeper.noteMissing()
	if got := c.p.Status().MissingCalendars; got["gone"] != 1 {
		t.Fatalf("%v are missing, want gone", got)
	}
	store := c.s.keeper.store
	c.leave()
	c.p.served.Store(c.p.newServed(c.p.newLane(store), c.position, 0))
	if got := c.p.Status().MissingCalendars; len(got) > 0 {
		t.Errorf("%v are missing in an acquisition that has looked for none", got)
	}
}

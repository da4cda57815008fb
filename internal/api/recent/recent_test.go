package recent

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the three that are remembered, as package partition has them.
type metrics struct {
	reg      *prometheus.Registry
	accepted *prometheus.CounterVec
	outcomes *prometheus.CounterVec
	lateness *prometheus.HistogramVec
}

func newMetrics() *metrics {
	m := &metrics{
		reg:      prometheus.NewRegistry(),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: acceptedMetric}, []string{"topic"}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: outcomesMetric}, []string{"topic", "outcome"}),
		lateness: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: latenessMetric, Buckets: []float64{.001, .01, .1, 1}}, []string{"topic"}),
	}
	m.reg.MustRegister(m.accepted, m.outcomes, m.lateness)
	return m
}

func (m *metrics) sample(t *testing.T, at time.Time) sample {
	t.Helper()
	families, err := m.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return read(at, families)
}

func TestHistoryRemembersAnHour(t *testing.T) {
	m := newMetrics()
	h := New(m.reg, slog.New(slog.DiscardHandler))
	if _, some := h.Last(time.Minute); some || len(h.Points()) != 0 {
		t.Error("an empty history has points")
	}
	begun := time.Unix(1_800_000_000, 0)
	at := begun
	// Two hours: in the first 10 a second fire, in the second 20, one of them late.
	for i := range 2*(samples-1) + 1 {
		h.add(m.sample(t, at))
		at = at.Add(sampleEvery)
		m.accepted.WithLabelValues("a").Add(50)
		m.accepted.WithLabelValues("b").Add(50)
		m.outcomes.WithLabelValues("a", "cancelled").Add(1000)
		n := 100
		if i >= samples-1 {
			n = 200
		}
		m.outcomes.WithLabelValues("a", "fired").Add(float64(n))
		for k := range n {
			late := 0.0005
			if k == 0 && n == 200 {
				late = 0.5
			}
			m.lateness.WithLabelValues([]string{"a", "b"}[k%2]).Observe(late)
		}
	}
	points := h.Points()
	if len(points) != 60 {
		t.Fatalf("%d points, want 60 of a minute", len(points))
	}
	for i, p := range points {
		if p.To.Sub(p.From) != time.Minute || p.Fired != 20 || p.Accepted != 10 || p.Count != 1200 {
			t.Errorf("point %d: %+v, want a minute of 20 fired and 10 accepted a second", i, p)
		}
		if p.P50 != (Bounds{0, 0.001}) || p.P99 != p.P50 {
			t.Errorf("point %d: late %v and %v, want below a millisecond", i, p.P50, p.P99)
		}
	}
	for d, want := range map[time.Duration]time.Duration{0: 0, time.Minute: time.Minute,
		5 * time.Minute: 5 * time.Minute, 24 * time.Hour: time.Hour} {
		if p, some := h.Last(d); !some || p.To.Sub(p.From) != want || p.Count != uint64(20*want.Seconds()) {
			t.Errorf("the last %v are %v with %d firings", d, p.To.Sub(p.From), p.Count)
		}
	}
	if first, last := points[0].From, points[59].To; last.Sub(first) != time.Hour ||
		!last.Equal(begun.Add(2*time.Hour)) {
		t.Errorf("from %v to %v, want the last hour", first, last)
	}
}

func TestHistoryThatHasJustBegun(t *testing.T) {
	m := newMetrics()
	h := New(m.reg, slog.New(slog.DiscardHandler))
	at := time.Unix(1_800_000_000, 0)
	h.add(m.sample(t, at))
	m.outcomes.WithLabelValues("a", "fired").Add(5)
	h.add(m.sample(t, at.Add(sampleEvery)))
	p, some := h.Last(time.Minute)
	if !some || p.Fired != 0.5 || p.Count != 0 || p.P99 != (Bounds{}) {
		t.Errorf("%+v, want half a firing a second and no lateness", p)
	}
	if points := h.Points(); len(points) != 1 || points[0].To.Sub(points[0].From) != sampleEvery {
		t.Errorf("%+v, want one point of ten seconds", points)
	}
}

// No more is said of a quantile than the bucket that it is in.
func TestQuantile(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		name string
		late []bucket
		q    float64
		want Bounds
	}{
		{"nothing", nil, 0.5, Bounds{}},
		{"no firing", []bucket{{1, 0}, {inf, 0}}, 0.5, Bounds{}},
		{"the first bucket", []bucket{{1, 10}, {2, 10}, {inf, 10}}, 0.5, Bounds{0, 1}},
		{"at a bound", []bucket{{1, 5}, {2, 10}, {inf, 10}}, 0.5, Bounds{0, 1}},
		{"the second", []bucket{{1, 5}, {2, 10}, {inf, 10}}, 0.99, Bounds{1, 2}},
		{"beyond the last bound", []bucket{{1, 0}, {2, 0}, {inf, 10}}, 0.99, Bounds{2, inf}},
	} {
		got := quantile(c.q, c.late)
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if most := got.AtMost(); math.IsInf(most, 1) || most < got.Over {
			t.Errorf("%s: at most %v", c.name, most)
		}
	}
}

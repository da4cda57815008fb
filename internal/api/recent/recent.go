// Package recent remembers the activity of a process in the last hour: how much it accepted and fired, and how late.
//
//	h := recent.New(registry, log)
//	go h.Run(ctx)
//	point, known := h.Last(5 * time.Minute)
//
// The console and /v1/cluster show the recent activity of an instance; Prometheus has the rest. The package reads the
// process's own metrics.
package recent

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// sampleEvery and samples make up the remembered hour.
	sampleEvery = 10 * time.Second
	samples     = 361
	// perPoint is how many samples one point of a chart spans.
	perPoint = 6
)

// The metrics that are remembered; docs/METRICS.md has them.
const (
	outcomesMetric = "waterclock_outcomes_total"
	acceptedMetric = "waterclock_accepted_total"
	latenessMetric = "waterclock_own_commit_lateness_seconds" // a request for the past is not our lateness
)

// History has the last samples of a process's own metrics, some 200 KB. It is empty when the process starts. It is
// safe for concurrent use.
type History struct {
	from prometheus.Gatherer
	log  *slog.Logger

	mu  sync.Mutex // guards the fields below
	all []sample   // the oldest first
}

// sample holds the values of counters at one moment, over all topics.
type sample struct {
	at              time.Time
	accepted, fired float64
	late            []bucket
}

// bucket counts the firings up to a lateness.
type bucket struct {
	upTo float64 // seconds
	n    uint64
}

// New returns an empty history.
func New(from prometheus.Gatherer, log *slog.Logger) *History {
	return &History{from: from, log: log}
}

// Run takes samples until ctx ends.
func (h *History) Run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		families, err := h.from.Gather()
		if err != nil {
			h.log.Debug("cannot gather all metrics for the activity history", "err", err) // the rest was gathered
		}
		h.add(read(time.Now(), families))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (h *History) add(s sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, s)
	h.all = slices.Delete(h.all, 0, max(0, len(h.all)-samples))
}

// read takes a sample of metrics.
func read(at time.Time, families []*dto.MetricFamily) sample {
	s := sample{at: at}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case acceptedMetric:
				s.accepted += m.GetCounter().GetValue()
			case outcomesMetric:
				if label(m, "outcome") == "fired" {
					s.fired += m.GetCounter().GetValue()
				}
			case latenessMetric:
				s.late = plus(s.late, m.GetHistogram())
			}
		}
	}
	return s
}

// plus adds the histogram of a topic. All topics have the same buckets.
func plus(late []bucket, h *dto.Histogram) []bucket {
	if late == nil {
		late = make([]bucket, len(h.GetBucket())+1)
	}
	for i, b := range h.GetBucket() {
		late[i] = bucket{b.GetUpperBound(), late[i].n + b.GetCumulativeCount()}
	}
	last := len(late) - 1
	late[last] = bucket{math.Inf(1), late[last].n + h.GetSampleCount()}
	return late
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// Point is the activity between two moments.
type Point struct {
	From, To        time.Time
	Accepted, Fired float64 // a second
	Count           uint64  // of firings
	P50, P99        Bounds  // of lateness; zero if nothing has fired
}

// Bounds are the bounds of the histogram bucket of a quantile, in seconds. The exact place in the bucket is unknown,
// and interpolating would only pretend to know it.
type Bounds struct {
	Over float64 // exclusive; 0: none
	UpTo float64 // inclusive; +Inf: none
}

// AtMost returns the upper bound. In the last bucket, which has none, it is the lower bound: the quantile is that or
// more.
func (b Bounds) AtMost() float64 {
	if math.IsInf(b.UpTo, 1) {
		return b.Over
	}
	return b.UpTo
}

// Points are the last hour, a minute each, oldest first. They are counted back from the newest sample, so the first
// may be shorter than a minute.
func (h *History) Points() []Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]Point, 0, samples/perPoint)
	for newest := len(h.all) - 1; newest > 0; newest -= perPoint {
		all = append(all, between(&h.all[max(0, newest-perPoint)], &h.all[newest]))
	}
	slices.Reverse(all)
	return all
}

// Last returns the activity in the time d before the newest sample: at most an hour, and no more than is remembered.
// It reports false if there is no sample.
func (h *History) Last(d time.Duration) (Point, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	newest := len(h.all) - 1
	if newest < 1 {
		return Point{}, false
	}
	return between(&h.all[max(0, newest-int(d/sampleEvery))], &h.all[newest]), true
}

func between(a, b *sample) Point {
	p := Point{From: a.at, To: b.at}
	if took := b.at.Sub(a.at).Seconds(); took > 0 {
		p.Accepted, p.Fired = max(0, b.accepted-a.accepted)/took, max(0, b.fired-a.fired)/took
	}
	late := make([]bucket, len(b.late))
	for i, x := range b.late {
		late[i] = x
		if i < len(a.late) && a.late[i].n <= x.n {
			late[i].n -= a.late[i].n
		}
	}
	if len(late) > 0 {
		p.Count = late[len(late)-1].n
	}
	p.P50, p.P99 = quantile(0.5, late), quantile(0.99, late)
	return p
}

// quantile is the bucket that a quantile is in.
func quantile(q float64, late []bucket) Bounds {
	if len(late) < 2 || late[len(late)-1].n == 0 {
		return Bounds{}
	}
	rank := q * float64(late[len(late)-1].n)
	over := 0.0
	for _, b := range late {
		if float64(b.n) >= rank {
			return Bounds{over, b.upTo}
		}
		over = b.upTo
	}
	return Bounds{Over: over, UpTo: math.Inf(1)}
}

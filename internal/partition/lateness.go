package partition

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// lateBounds are the upper bounds of the histogram's buckets, in milliseconds. One more bucket holds the
// rest.
type lateBounds [17]int64

// tally counts the firings of one step by lateness.
type tally struct {
	bounds *lateBounds
	counts [len(lateBounds{}) + 1]uint64
	sum    int64 // ms
}

func (t *tally) add(ms int64) {
	i := 0
	for i < len(t.bounds) && ms > t.bounds[i] {
		i++
	}
	t.counts[i]++
	t.sum += ms
}

// lateness is a histogram, or one for each topic, that takes a whole step at a time. A
// prometheus.Histogram would cost a search and three atomic operations for each firing, and each firing
// is observed twice. It implements prometheus.Collector.
type lateness struct {
	bounds lateBounds
	desc   *prometheus.Desc

	mu sync.Mutex // guards by
	by map[string]*tally
}

// newLateness returns a histogram without labels, or with one label, the topic.
func newLateness(name, help string, labels ...string) *lateness {
	bounds := lateBounds{1, 2, 5, 10, 20, 50, 100, 250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000,
		300_000, 3_600_000}
	return &lateness{bounds: bounds, desc: prometheus.NewDesc(name, help, labels, nil), by: make(map[string]*tally)}
}

// tally returns an empty tally, for add.
func (l *lateness) tally() tally { return tally{bounds: &l.bounds} }

// add adds a step; label is the topic, or "" if there are no labels.
func (l *lateness) add(label string, step *tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.by[label]
	if all == nil {
		all = &tally{bounds: &l.bounds}
		l.by[label] = all
	}
	for i, n := range step.counts {
		all.counts[i] += n
	}
	all.sum += step.sum
}

// Describe implements prometheus.Collector.
func (l *lateness) Describe(ch chan<- *prometheus.Desc) { ch <- l.desc }

// Collect implements prometheus.Collector.
func (l *lateness) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	all := make(map[string]tally, len(l.by))
	for label, t := range l.by {
		all[label] = *t
	}
	l.mu.Unlock()
	for label, t := range all {
		buckets, n := make(map[float64]uint64, len(l.bounds)), uint64(0)
		for i, bound := range l.bounds {
			n += t.counts[i]
			buckets[float64(bound)/1000] = n
		}
		var labels []string
		if label != "" {
			labels = []string{label}
		}
		ch <- prometheus.MustNewConstHistogram(l.desc, n+t.counts[len(l.bounds)], float64(t.sum)/1000,
			buckets, labels...)
	}
}

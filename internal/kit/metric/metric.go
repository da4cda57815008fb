// Package metric makes and registers Prometheus metrics in one call each.
//
//	sent := metric.In(reg).Counter("waterclock_sent_total", "Records sent.")
package metric

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Maker makes metrics for one registry. Each method panics if the registry has a metric of that name already.
type Maker struct{ f promauto.Factory }

// In returns a maker of metrics for reg. If reg is nil, they are registered nowhere.
func In(reg prometheus.Registerer) Maker { return Maker{promauto.With(reg)} }

// Counter returns a counter without labels.
func (m Maker) Counter(name, help string) prometheus.Counter {
	return m.f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Counters returns counters by their labels.
func (m Maker) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return m.f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Gauge returns a gauge without labels.
func (m Maker) Gauge(name, help string) prometheus.Gauge {
	return m.f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// Gauges returns gauges by their labels.
func (m Maker) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return m.f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// Histogram returns a histogram with these upper bounds of its buckets.
func (m Maker) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return m.f.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// Histograms returns histograms by their labels.
func (m Maker) Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return m.f.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// GaugeFunc makes a gauge with the value that f returns. f may be called by any goroutine.
func (m Maker) GaugeFunc(name, help string, f func() float64) {
	m.f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
}

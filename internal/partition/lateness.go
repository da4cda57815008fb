package partition

import (
	dto "github.com/prometheus/client_model/go"
)

// maxLateness is the last bound of the metric, in seconds.
const maxLateness = 3600

// Lateness is how late firings have been, since the process started: bounds of
// waterclock_lateness_seconds, in seconds, that so many were not beyond.
type Lateness struct {
	Firings  uint64
	P50, P99 float64 // 0 where there are no firings; maxLateness: that or more
}

// Lateness sums up what the metric has counted.
func (m *Metrics) Lateness() Lateness {
	var now dto.Metric
	if err := m.lateness.Write(&now); err != nil {
		return Lateness{} // of a histogram without labels: never
	}
	h := now.GetHistogram()
	// The least bound that at least so many of 100 are not beyond.
	within := func(percent uint64) float64 {
		for _, b := range h.GetBucket() {
			if b.GetCumulativeCount()*100 >= h.GetSampleCount()*percent {
				return b.GetUpperBound()
			}
		}
		return maxLateness
	}
	l := Lateness{Firings: h.GetSampleCount()}
	if l.Firings > 0 {
		l.P50, l.P99 = within(50), within(99)
	}
	return l
}

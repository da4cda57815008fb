package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// histogramMax is the greatest lateness told apart, in microseconds.
	histogramMax = int64(time.Hour / time.Microsecond)
	// histogramDigits is the precision of a figure, in decimal digits.
	histogramDigits = 3
)

// Lateness is a distribution, in milliseconds.
type Lateness struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

type histogram struct{ h *hdrhistogram.Histogram }

func newHistogram() *histogram {
	return &histogram{hdrhistogram.New(1, histogramMax, histogramDigits)}
}

// record adds one value; what is negative counts as 0, what is too great as the
// greatest.
func (h *histogram) record(d time.Duration) {
	_ = h.h.RecordValue(min(max(d.Microseconds(), 0), histogramMax)) // within its range: never fails
}

func (h *histogram) lateness() *Lateness {
	if h.h.TotalCount() == 0 {
		return nil
	}
	ms := func(v int64) float64 { return float64(v) / 1000 }
	return &Lateness{P50: ms(h.h.ValueAtQuantile(50)), P99: ms(h.h.ValueAtQuantile(99)), Max: ms(h.h.Max())}
}

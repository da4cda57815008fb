package bench

import (
	"math"
	"slices"
	"time"
)

// Lateness is a distribution, in milliseconds.
type Lateness struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

func (l *Lateness) p99() float64 {
	if l == nil {
		return 0
	}
	return l.P99
}

// quantile of values in order, the nearest rank.
func quantile(sorted []int32, q float64) int32 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// latenessOf sorts values, of which perMs make a millisecond.
func latenessOf(values []int32, perMs float64) *Lateness {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	ms := func(q float64) float64 { return float64(quantile(values, q)) / perMs }
	return &Lateness{P50: ms(0.5), P99: ms(0.99), Max: ms(1)}
}

// window is a span of due times; the zero one is all time.
type window struct{ from, to time.Time }

func (w window) holds(due int64) bool {
	return w == window{} || due >= w.from.UnixMilli() && due < w.to.UnixMilli()
}

// received in w, by the consumer's clock: how many timers.
func (l *ledger) receivedIn(w window) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, late := range l.byReceipt {
		if late >= 0 && w.holds(l.due[i]+int64(late)/1000) {
			n++
		}
	}
	return n
}

// lateness is that of the timers that are due within w, by the emissions'
// timestamps and by receipt.
func (l *ledger) lateness(w window) (byStamp, byReceipt *Lateness) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var stamps, receipts []int32
	for n, due := range l.due {
		if l.byReceipt[n] >= 0 && w.holds(due) {
			stamps, receipts = append(stamps, l.byStamp[n]), append(receipts, l.byReceipt[n])
		}
	}
	return latenessOf(stamps, 1), latenessOf(receipts, 1000)
}

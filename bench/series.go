package bench

import "slices"

// seriesSlices is how many points a line over time has.
const seriesSlices = 120

// point is the lateness of the timers that were due within a slice of time.
type point struct {
	At   float64 // seconds since the first one of all was due
	Late Lateness
}

// series is what a plot shows of a phase.
type series struct {
	points    []point
	quantiles []float64 // ms, at plotQuantiles
}

// plotQuantiles are the points of a distribution, of which the last ones tell most.
func plotQuantiles() []float64 {
	return []float64{0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999}
}

// series is that of the timers that are due within w, by receipt.
func (l *ledger) series(w window) *series {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first, last int64
	var all []int32
	for n, due := range l.due {
		if l.byReceipt[n] < 0 || !w.holds(due) {
			continue
		}
		if len(all) == 0 {
			first, last = due, due
		}
		first, last = min(first, due), max(last, due)
		all = append(all, l.byReceipt[n])
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	s := &series{}
	for _, q := range plotQuantiles() {
		s.quantiles = append(s.quantiles, float64(quantile(all, q))/1000)
	}
	width := max(1, (last-first)/seriesSlices+1) // ms
	sliced := make([][]int32, (last-first)/width+1)
	for n, due := range l.due {
		if l.byReceipt[n] >= 0 && w.holds(due) {
			i := (due - first) / width
			sliced[i] = append(sliced[i], l.byReceipt[n])
		}
	}
	for i, values := range sliced {
		if late := latenessOf(values, 1000); late != nil {
			s.points = append(s.points, point{(float64(i) + 0.5) * float64(width) / 1000, *late})
		}
	}
	return s
}

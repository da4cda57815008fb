package console

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/recent"
)

// Sizes of charts in units of their own: pages stretch them.
const (
	chartWidth, chartHeight = 600.0, 120.0
	barGap                  = 2.0
)

// chart is lines over the last hour.
type chart struct {
	Title, Summary string
	Top            string // what the upper edge is
	Lines          []line
}

type line struct {
	Name, Now string
	Class     string
	Points    string // of an SVG polyline
}

// lines draws values over time into the hour before now; top is at least least.
func lines(now time.Time, points []recent.Point, least float64, of ...func(recent.Point) float64) (drawn []string, top float64) {
	top = least
	for _, p := range points {
		for _, f := range of {
			top = max(top, f(p))
		}
	}
	top = roundUp(top)
	for _, f := range of {
		var b strings.Builder
		add := func(at time.Time, value float64) {
			x := chartWidth * (1 - now.Sub(at).Hours())
			fmt.Fprintf(&b, "%.1f,%.1f ", min(chartWidth, max(0, x)), 1+(chartHeight-2)*(1-value/top))
		}
		for i, p := range points {
			if i == 0 {
				add(p.From, f(p)) // or a single point would be none
			}
			add(p.To, f(p))
		}
		drawn = append(drawn, strings.TrimSpace(b.String()))
	}
	return drawn, top
}

// roundUp is the next number that begins with 1, 2 or 5 and goes on with noughts.
func roundUp(x float64) float64 {
	if x <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, n := range []float64{1, 2, 5} {
		if x <= n*unit*(1+1e-9) {
			return n * unit
		}
	}
	return 10 * unit
}

// bar is how many timers are due in a span of time.
type bar struct {
	X, Y, Width, Height float64
	N                   int64
	More                bool // there are more than N
	From, To            time.Time
}

// bars scales counts to the chart.
func bars(all []bar) (top int64) {
	for _, b := range all {
		top = max(top, b.N)
	}
	scale := max(1, float64(top))
	width := chartWidth / float64(max(1, len(all)))
	for i := range all {
		b := &all[i]
		b.X, b.Width = float64(i)*width+barGap/2, width-barGap
		b.Height = float64(b.N) / scale * chartHeight
		if b.N > 0 {
			b.Height = max(b.Height, 2) // what is there is seen
		}
		b.Y = chartHeight - b.Height
	}
	return top
}

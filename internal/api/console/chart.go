package console

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/api/recent"
)

// Sizes of charts in their own units: pages stretch them.
const (
	chartWidth, chartHeight = 600.0, 120.0
	barGap                  = 2.0
	// mostTicks limits the steps of an axis.
	mostTicks = 4
)

// plot has the parts common to all charts. Ticks are evenly spaced, from edge to edge.
type plot struct {
	Up     []string  // ticks of the axis of values, from the top down to 0
	Along  []string  // of the axis of time, from left to right
	Rules  []float64 // heights of the lines of Up
	Points []point   // tooltips
}

// point is a span of time in a chart, with its tooltip.
type point struct {
	X, Width float64
	Says     string
}

// chart shows lines over the remembered time, at most an hour.
type chart struct {
	plot
	Title, Summary string
	Lines          []line
}

type line struct {
	Name, Now string
	Class     string
	Points    string // of an SVG polyline
}

// series is one line of a chart.
type series struct {
	name, now, class string
	value            func(recent.Point) float64
}

// lineChart draws values over the remembered time. The axis of values ends at least or above; say formats a value.
func lineChart(points []recent.Point, least float64, say func(float64) string, all ...series) chart {
	c, most := chart{}, least
	for _, p := range points {
		for _, s := range all {
			most = max(most, s.value(p))
		}
	}
	top := c.axis(most, 0, say)
	from, to := points[0].From, points[len(points)-1].To
	c.Along = instants(from, to, "15:04")
	x := func(at time.Time) float64 {
		return chartWidth * at.Sub(from).Seconds() / max(1, to.Sub(from).Seconds())
	}
	for _, s := range all {
		var b strings.Builder
		add := func(at time.Time, value float64) {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(at), 1+(chartHeight-2)*(1-value/top))
		}
		for i, p := range points {
			if i == 0 {
				add(p.From, s.value(p)) // a single point would not be a line
			}
			add(p.To, s.value(p))
		}
		c.Lines = append(c.Lines, line{s.name, s.now, s.class, strings.TrimSpace(b.String())})
	}
	for _, p := range points {
		says := p.From.Format("15:04:05") + " to " + p.To.Format("15:04:05") + ":"
		for _, s := range all {
			says += " " + s.name + " " + say(s.value(p)) + ","
		}
		c.Points = append(c.Points, point{x(p.From), x(p.To) - x(p.From), strings.TrimSuffix(says, ",")})
	}
	return c
}

// axis sets the ticks of values up to the largest value or beyond, and returns the upper end. whole is the smallest
// step.
func (p *plot) axis(most, whole float64, say func(float64) string) (top float64) {
	step := max(whole, roundUp(most/mostTicks))
	n := max(1, int(math.Ceil(most/step*(1-1e-9))))
	for i := n; i >= 0; i-- {
		p.Up = append(p.Up, say(float64(i)*step))
		p.Rules = append(p.Rules, 1+(chartHeight-2)*float64(n-i)/float64(n))
	}
	return float64(n) * step
}

// instants returns ticks between two instants, in the zone of the first.
func instants(from, to time.Time, layout string) (all []string) {
	for i := range mostTicks + 1 {
		all = append(all, from.Add(to.Sub(from)*time.Duration(i)/mostTicks).Format(layout))
	}
	if len(slices.Compact(slices.Clone(all))) < len(all) && layout != "15:04:05" { // the span is a few minutes
		return instants(from, to, "15:04:05")
	}
	return all
}

// roundUp returns the next number whose digits are 1, 2 or 5 and then zeros.
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

// bar is the number of timers that are due in a span of time.
type bar struct {
	X, Y, Width, Height float64
	N                   int64
	More                bool // there are more than N
	From, To            time.Time
}

// bars scales counts to the chart, and sets its axes.
func (p *plot) bars(all []bar, layout string) {
	most := int64(0)
	for _, b := range all {
		most = max(most, b.N)
	}
	top := p.axis(float64(max(1, most)), 1, func(n float64) string { return number(int64(n)) })
	p.Along = instants(all[0].From, all[len(all)-1].To, layout)
	width := chartWidth / float64(len(all))
	for i := range all {
		b := &all[i]
		b.X, b.Width = float64(i)*width+barGap/2, width-barGap
		b.Height = float64(b.N) / top * (chartHeight - 1)
		if b.N > 0 {
			b.Height = max(b.Height, 2) // even one timer is visible
		}
		b.Y = chartHeight - b.Height
		more := ""
		if b.More {
			more = " or more"
		}
		p.Points = append(
			p.Points, point{float64(i) * width, width, b.From.Format(layout) + " to " + b.To.Format(layout) + ": " +
				number(b.N) + more})
	}
}

package bench

import (
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// ErrNoPlot says that a workload has no lateness to draw.
var ErrNoPlot = errors.New("there is no lateness to plot")

// Sizes of a plot, in pixels.
const (
	plotWidth  = 960
	panelLeft  = 80
	panelWidth = plotWidth - panelLeft - 30
	panelTop   = 60
	panelHigh  = 260
	panelGap   = 70
	legendLine = 18
)

// leastLate is the least lateness told apart on the axis, in ms.
const leastLate = 0.1

// WritePlot draws lateness by receipt as SVG: over time, and as a distribution; the
// service in colours, bare loops in grey. It is drawn by hand: two panels of lines
// are less code than what a library for plots would add to the binary.
func (rep *Report) WritePlot(w io.Writer) error {
	var shown []*Phase
	most := leastLate
	for _, p := range rep.Phases {
		if p.series == nil {
			continue
		}
		shown = append(shown, p)
		for _, at := range p.series.points {
			most = max(most, at.Late.Max)
		}
	}
	if len(shown) == 0 {
		return fmt.Errorf("%s: %w", rep.title(), ErrNoPlot)
	}
	d := &drawing{top: math.Ceil(math.Log10(most)), bottom: math.Log10(leastLate)}
	d.top = max(d.top, d.bottom+1)
	high := panelTop + 2*(panelHigh+panelGap) + legendLine*len(shown)
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, high)
	fmt.Fprintf(d, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, high)
	d.text(plotWidth/2, 24, "middle", rep.title()+": lateness by receipt")
	d.overTime(shown)
	d.distribution(shown)
	for i, p := range shown {
		y := float64(panelTop + 2*(panelHigh+panelGap) + legendLine*i)
		d.line(colour(shown, i), 2, "", []xy{{panelLeft, y - 4}, {panelLeft + 30, y - 4}})
		d.text(panelLeft+40, y, "start", p.Name)
	}
	fmt.Fprint(d, "</svg>\n")
	_, err := io.WriteString(w, d.String())
	return err
}

// drawing is an SVG that grows, and the axis of lateness that its panels share, as
// powers of ten.
type drawing struct {
	strings.Builder
	bottom, top float64
}

type xy struct{ x, y float64 }

// colour is that of a line: grey for bare loops.
func colour(shown []*Phase, i int) string {
	if shown[i].Bare {
		return "#888888"
	}
	colours := []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"}
	n := 0
	for _, p := range shown[:i] {
		if !p.Bare {
			n++
		}
	}
	return colours[n%len(colours)]
}

func (d *drawing) text(x, y float64, anchor, s string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
}

func (d *drawing) line(colour string, width float64, dashes string, points []xy) {
	fmt.Fprintf(d, `<polyline fill="none" stroke="%s" stroke-width="%g" stroke-dasharray="%s" points="`, colour, width, dashes)
	for _, p := range points {
		fmt.Fprintf(d, "%.1f,%.1f ", p.x, p.y)
	}
	fmt.Fprint(d, `"/>`+"\n")
}

// y is where a lateness stands in the panel that begins at top.
func (d *drawing) y(top, ms float64) float64 {
	share := (math.Log10(max(ms, leastLate)) - d.bottom) / (d.top - d.bottom)
	return top + panelHigh*(1-share)
}

// frame draws a panel with its axis of lateness.
func (d *drawing) frame(top float64, title string) {
	const grid = "#dddddd"
	for e := d.bottom; e <= d.top+0.01; e++ {
		ms := math.Pow(10, e)
		y := d.y(top, ms)
		d.line(grid, 1, "", []xy{{panelLeft, y}, {panelLeft + panelWidth, y}})
		d.text(panelLeft-8, y+4, "end", fmt.Sprintf("%g ms", math.Round(ms*10)/10))
	}
	d.text(panelLeft+panelWidth/2, top-8, "middle", title)
}

// tick marks a place of the lower axis.
func (d *drawing) tick(top, x float64, label string) {
	d.line("#dddddd", 1, "", []xy{{x, top}, {x, top + panelHigh}})
	d.text(x, top+panelHigh+16, "middle", label)
}

// overTime draws, by when timers were due, how late half of them were, 99 of 100 and
// all of them.
func (d *drawing) overTime(shown []*Phase) {
	const ticks = 8
	span := 0.001
	for _, p := range shown {
		span = max(span, p.series.points[len(p.series.points)-1].At)
	}
	d.frame(panelTop, "by when they were due, in seconds: p50 (dotted), p99, max (thin)")
	x := func(at float64) float64 { return panelLeft + panelWidth*at/span }
	for i := range ticks + 1 {
		at := span * float64(i) / ticks
		d.tick(panelTop, x(at), fmt.Sprintf("%.3g", at))
	}
	for i, p := range shown {
		var half, most, all []xy
		for _, at := range p.series.points {
			half = append(half, xy{x(at.At), d.y(panelTop, at.Late.P50)})
			most = append(most, xy{x(at.At), d.y(panelTop, at.Late.P99)})
			all = append(all, xy{x(at.At), d.y(panelTop, at.Late.Max)})
		}
		d.line(colour(shown, i), 1.5, "2 3", half)
		d.line(colour(shown, i), 2, "", most)
		d.line(colour(shown, i), 0.5, "", all)
	}
}

// distribution draws how many were late by how much. Its lower axis gives each
// further nine as much room as the one before.
func (d *drawing) distribution(shown []*Phase) {
	const top, nines = panelTop + panelHigh + panelGap, 4
	d.frame(top, "distribution: so many of 100 were at most so late")
	x := func(q float64) float64 { return panelLeft + panelWidth*-math.Log10(1-q)/nines }
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 0.9999} {
		d.tick(top, x(q), fmt.Sprintf("%.4g", 100*q))
	}
	for i, p := range shown {
		var points []xy
		for n, q := range plotQuantiles() {
			points = append(points, xy{x(q), d.y(top, p.series.quantiles[n])})
		}
		d.line(colour(shown, i), 2, "", points)
	}
}

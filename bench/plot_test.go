package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// plotted is a phase of timers that are due in a row, each late by its number in ms.
func plotted(name string, bare bool, timers int) *Phase {
	l := newLedger(name+"-", 8, timers)
	const first = int64(1_700_000_000_000)
	for i := range timers {
		due := first + int64(10*i)
		l.schedule(due)
		r := emission(l, i, l.id(i), due)
		l.receive(r, time.UnixMilli(due).Add(time.Duration(i)*time.Millisecond))
	}
	p := &Phase{Name: name, Bare: bare}
	p.late(l, window{})
	return p
}

func TestSeries(t *testing.T) {
	s := plotted("x", false, 1200).series
	if len(s.points) < seriesSlices-2 || len(s.points) > seriesSlices {
		t.Errorf("%d points", len(s.points))
	}
	for i, p := range s.points {
		// Ten timers fall into a slice of 100 ms, the n-th of all is n ms late.
		if p.Late.P50 > p.Late.P99 || p.Late.P99 > p.Late.Max || p.Late.Max < 100*p.At || p.Late.Max > 100*p.At+10 {
			t.Errorf("point %d: %+v", i, p)
		}
	}
	for i, q := range plotQuantiles() {
		if want := q * 1200; s.quantiles[i] < want-2 || s.quantiles[i] > want+2 {
			t.Errorf("quantile %g is %g, want %g", q, s.quantiles[i], want)
		}
	}
	if newLedger("x", 8, 0).series(window{}) != nil {
		t.Error("a series of nothing")
	}
}

func TestPlot(t *testing.T) {
	rep := &Report{Workload: "steady", Rate: 100, Phases: []*Phase{plotted("bare <loop>", true, 300), plotted("100/s", false, 300), {Name: "other"}}}
	var out bytes.Buffer
	if err := rep.WritePlot(&out); err != nil {
		t.Fatal(err)
	}
	lines, texts := 0, ""
	for d := xml.NewDecoder(bytes.NewReader(out.Bytes())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			if x.Name.Local == "polyline" {
				lines++
				if strings.Contains(x.Attr[len(x.Attr)-1].Value, "NaN") {
					t.Error("a line leads nowhere")
				}
			}
		case xml.CharData:
			texts += string(x)
		}
	}
	if want := "steady 100/s: lateness by receipt"; !strings.Contains(texts, want) || !strings.Contains(texts, "bare <loop>") || strings.Contains(texts, "other") {
		t.Errorf("texts: %s", texts)
	}
	if lines < 2*4+2 {
		t.Errorf("%d lines", lines)
	}
	if err := (&Report{Workload: "limit", Phases: []*Phase{{}}}).WritePlot(&out); !errors.Is(err, ErrNoPlot) {
		t.Errorf("plot of nothing: %v", err)
	}
}

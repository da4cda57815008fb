package bench

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

// watchEvery is the interval between two readings of a watch.
const watchEvery = 250 * time.Millisecond

// watch reads figures of the instance of an overload at an interval. Its one goroutine fills the list.
type watch struct {
	o    *overload
	stop func()

	mu   sync.Mutex // guards list
	list []*glance
}

// glance is the result of one reading.
type glance struct {
	usage
	rss               float64 // bytes, of the instance
	settled, received float64 // requests, emissions
	end               float64 // of the request topic
	late              latenesses
}

// latenesses counts firings by upper bounds, in ms.
type latenesses map[float64]float64

func (w *watch) run(ctx context.Context) {
	for {
		if g, ok := w.look(ctx); ok {
			w.mu.Lock()
			w.list = append(w.list, g)
			w.mu.Unlock()
		}
		if !beats.Sleep(ctx, watchEvery) {
			return
		}
	}
}

// look returns false if the instance or a broker does not answer.
func (w *watch) look(ctx context.Context) (g *glance, ok bool) {
	g = &glance{usage: usageOf(w.o.run, w.o.serving.pid()), late: make(latenesses)}
	buckets, err := w.o.serving.samples(ctx, "waterclock_own_lateness_seconds_bucket")
	if err != nil {
		return g, false
	}
	for labels, n := range buckets {
		le, err := strconv.ParseFloat(strings.Trim(strings.TrimPrefix(labels, "{le="), `"}`), 64)
		if err != nil {
			return g, false
		}
		g.late[le*1000] += n
	}
	settled, err := w.o.settled(ctx)
	if err != nil {
		return g, false
	}
	end, err := w.o.logEnd(ctx)
	if err != nil {
		return g, false
	}
	rss, _ := memory(w.o.serving.pid())
	g.rss, g.settled, g.end, g.received = float64(rss), float64(settled), float64(end), float64(w.o.all.Received())
	return g, true
}

// looks returns the looks in a window.
func (w *watch) looks(in window) []*glance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(
		slices.Clone(w.list), func(g *glance) bool { return g.at.Before(in.from) || g.at.After(in.to) })
}

// within returns the first and the last look in a window. They are zero if there is none.
func (w *watch) within(in window) (first, last *glance) {
	looks := w.looks(in)
	if len(looks) == 0 {
		return &glance{}, &glance{}
	}
	return looks[0], looks[len(looks)-1]
}

// most returns the largest value in a window.
func (w *watch) most(in window, figure func(*glance) float64) (most float64) {
	for _, g := range w.looks(in) {
		most = max(most, figure(g))
	}
	return most
}

// since returns quantiles of the firings since then, in ms; 0 if there are none. It treats the values of a bucket as
// evenly spread.
func (l latenesses) since(then latenesses) (p50, p99 float64) {
	bounds := slices.Sorted(maps.Keys(l))
	if len(bounds) == 0 {
		return 0, 0
	}
	n := func(bound float64) float64 { return l[bound] - then[bound] }
	all := n(bounds[len(bounds)-1])
	at := func(q float64) float64 {
		below, counted := 0.0, 0.0
		for _, bound := range bounds {
			if c := n(bound); c >= q*all && c > 0 {
				if math.IsInf(bound, 1) {
					return below
				}
				return below + (bound-below)*(q*all-counted)/(c-counted)
			}
			below, counted = bound, n(bound)
		}
		return 0
	}
	return at(0.5), at(0.99)
}

package partition

import (
	"context"
	"math"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/partition/questions"
	"github.com/waterclock/waterclock/internal/partition/upcoming"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// forecastPause is how often the forecast looks whether there is something to read.
const forecastPause = time.Second

// turnRows is after how many rows the forecast gives its slot back and takes one again: some 300 µs.
const turnRows = 1024

// forecast counts when pending timers fall due: see package upcoming. The keeper tells it of committed steps and of
// checkpoints of the store. Its own goroutine reads the store. It takes turns with the bulk readers, so it uses half a
// processor at most, and lists get theirs.
//
// A scan must see the store as the last checkpoint has left it. A checkpoint is written in one batch, while
// checkpoints.writing is set. The view is opened only if it is not, and under the lock of all planners, which reads no
// disk. So no step and no checkpoint comes between the view and the counts that belong to it.
type forecast struct {
	*shared
	counts *upcoming.Counts // guarded by the locks of all planners
}

func newForecast(sh *shared) *forecast {
	return &forecast{shared: sh, counts: upcoming.New(sh.clock.millis())}
}

// apply counts the timers that a step has added and removed. The caller holds the locks of all planners.
func (f *forecast) apply(step *planner.Step) {
	for _, g := range step.Segments {
		for _, c := range g.Changes() {
			f.add(c.Before, -1)
			f.add(c.After, 1)
		}
	}
}

func (f *forecast) add(at timer.Ref, n int32) {
	if at.IsPending() {
		f.counts.Add(at.Due, n)
	}
}

// within returns how many timers fall due soon. Seconds that are not read yet are left out; complete says that none is.
func (f *forecast) within() (due upcoming.Due, complete bool) {
	f.subs.lock()
	defer f.subs.unlock()
	now := f.clock.millis()
	f.counts.Advance(now)
	return f.counts.Within(now)
}

// run reads the store until ctx ends.
func (f *forecast) run(ctx context.Context) {
	read := func() {
		for f.scan(ctx) {
		}
	}
	read()
	beats.Every(ctx, forecastPause, read)
}

// scan reads some seconds. It reports whether more are to be read immediately.
func (f *forecast) scan(ctx context.Context) (more bool) {
	view, from, to := f.begin()
	if view == nil {
		return false
	}
	found, err := f.read(ctx, view, from, to)
	f.subs.lock()
	defer f.subs.unlock()
	if err != nil {
		f.life.Log.Debug("due-count scan abandoned", "err", err)
		f.counts.Failed()
		return false
	}
	f.counts.Scanned(from, found)
	return true
}

// begin opens a view for the next scan, of the seconds [from, to); nil if there is none.
func (f *forecast) begin() (view *statestore.View, from, to int64) {
	f.subs.lock()
	defer f.subs.unlock()
	f.counts.Advance(f.clock.millis())
	if f.checkpoints.writing {
		return nil, 0, 0
	}
	from, to, ok := f.counts.Scan()
	if !ok {
		return nil, 0, 0
	}
	view, err := f.store.View()
	if err != nil {
		f.counts.Failed()
		return nil, 0, 0
	}
	return view, from, to
}

// read counts the rows that fall due in the seconds [from, to), by second, and closes the view.
func (f *forecast) read(ctx context.Context, view *statestore.View, from, to int64) (found []int32, err error) {
	turn := questions.NewSlot(f.o.Scans)
	defer turn.Give()
	if err = turn.Take(ctx); err != nil {
		_ = view.Close()
		return nil, err
	}
	found = make([]int32, to-from)
	rows, wait := 0, error(nil)
	err = view.Refs(timer.Ref{Due: from * 1000, Offset: math.MinInt64},
		timer.Ref{Due: to * 1000, Offset: math.MinInt64}, func(at timer.Ref) bool {
			if at.IsPending() {
				found[upcoming.Second(at.Due)-from]++
			}
			if rows++; rows%turnRows == 0 {
				wait = turn.Rest(ctx)
			}
			return wait == nil
		})
	if closed := view.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = wait
	}
	return found, err
}

package partition

import (
	"context"
	"math"
	"sync"
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
// A scan must see the store as the last checkpoint has left it. A checkpoint is written in one batch, between freeze
// and stored. The view is opened under mu, and only if none is being written.
type forecast struct {
	*shared

	mu      sync.Mutex // guards the following fields; held over opening a view, which reads no disk
	counts  *upcoming.Counts
	writing bool // a checkpoint is being written
}

func newForecast(sh *shared) *forecast {
	return &forecast{shared: sh, counts: upcoming.New(sh.clock.millis())}
}

// apply counts the timers that a step has added and removed.
func (f *forecast) apply(step *planner.Step) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range step.Segments {
		for _, c := range g.Changes() {
			f.addLocked(c.Before, -1)
			f.addLocked(c.After, 1)
		}
	}
}

func (f *forecast) addLocked(at timer.Ref, n int32) {
	if at.IsPending() {
		f.counts.Add(at.Due, n)
	}
}

// freeze notes that a checkpoint of everything committed so far is about to be written; stored notes that it has been.
func (f *forecast) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Freeze()
	f.writing = true
}

func (f *forecast) stored() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writing = false
}

// within returns how many timers fall due soon. Seconds that are not read yet are left out; complete says that none is.
func (f *forecast) within() (due upcoming.Due, complete bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
	f.mu.Lock()
	defer f.mu.Unlock()
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
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Advance(f.clock.millis())
	if f.writing {
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

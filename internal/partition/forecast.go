package partition

import (
	"context"
	"math"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/partition/questions"
	"github.com/waterclock/waterclock/internal/partition/upcoming"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// forecastPause is the pause between two checks of whether there is something to read.
const forecastPause = time.Second

// turnRows is the number of rows that the forecast reads in one turn, some 300 µs. Then it gives its slot back and
// takes one again.
const turnRows = 1024

// forecast reads the store to learn when pending timers fall due: see package upcoming, whose counts are with the
// checkpoints. Its goroutine takes turns with the bulk readers, so it uses half a processor at most, and lists get
// theirs.
//
// A scan must see the store as the last checkpoint has left it. A checkpoint is written in one batch, while
// checkpoints.writing is set. The view is opened only if it is not, and with the locks of all planners, which reads no
// disk. So no step and no checkpoint comes between the view and the counts that belong to it.
type forecast struct {
	part        *Partition
	store       *statestore.Handle
	subs        *subPartitions
	checkpoints *checkpoints
}

// within returns how many timers fall due soon. Seconds that are not read yet are left out; complete says that none is.
func (f *forecast) within() (due upcoming.Due, complete bool) {
	f.subs.lock()
	defer f.subs.unlock()
	now := f.part.clock.millis()
	f.checkpoints.counts.Advance(now)
	return f.checkpoints.counts.Within(now)
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
		f.part.life.Log.Debug("due-count scan abandoned", "err", err)
		f.checkpoints.counts.Failed()
		return false
	}
	f.checkpoints.counts.Scanned(from, found)
	return true
}

// begin opens a view for the next scan, of the seconds [from, to); nil if there is none.
func (f *forecast) begin() (view *statestore.View, from, to int64) {
	f.subs.lock()
	defer f.subs.unlock()
	f.checkpoints.counts.Advance(f.part.clock.millis())
	if f.checkpoints.writing {
		return nil, 0, 0
	}
	from, to, ok := f.checkpoints.counts.Scan()
	if !ok {
		return nil, 0, 0
	}
	view, err := f.store.View()
	if err != nil {
		f.checkpoints.counts.Failed()
		return nil, 0, 0
	}
	return view, from, to
}

// read counts the rows that fall due in the seconds [from, to), by second, and closes the view.
func (f *forecast) read(ctx context.Context, view *statestore.View, from, to int64) (found []int32, err error) {
	turn := questions.NewSlot(f.part.o.Scans)
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

package partition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/kit/tasks"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// keeper keeps the store: it writes checkpoints, loads timers that fire soon, and moves parked timers. The goroutine
// that calls loop owns all of it. Any goroutine may read missing.
type keeper struct {
	part        *Partition
	store       *statestore.Handle
	subs        *subPartitions
	checkpoints *checkpoints
	forecast    *forecast
	lane        *lane
	requests    *receiver
	parking     *parking
	follow      follow
	missing     atomic.Pointer[map[string]int64] // missing.names of the last pass that has ended; nil: none has

	keeps  time.Duration // delete.retention.ms as last noted by noteKeeps; 0: never
	raised time.Time     // since when the setting has been longer than noted; zero: it is not
}

func newKeeper(l *lane, r *receiver, f *forecast) *keeper {
	return &keeper{part: l.part, store: l.store, subs: l.subs, checkpoints: l.checkpoints, forecast: f, lane: l,
		requests: r, parking: newParking(l)}
}

// open reads the partition's state in the store. If it returns an error, there is nothing to stop.
func (k *keeper) open() error {
	err := errors.Join(k.noteKeeps(), k.parking.open())
	if err != nil {
		k.parking.close()
	}
	return err
}

// flush brings all committed changes into the store. It returns when that is done, ctx has ended, or loop has ended.
func (k *keeper) flush(ctx context.Context) {
	c, done := k.checkpoints, make(chan struct{})
	for ask := c.asked; c.running.Err() == nil; { // asks once: nothing is ever sent to nil
		select {
		case ask <- done:
			ask = nil
			k.part.life.Wake.Send()
		case <-done:
			return
		case <-c.running.Done():
		case <-ctx.Done():
			return
		}
	}
}

// stop brings all committed changes into the store at the end of an acquisition, when nothing is sealed any more. The
// next owner replays changes that cannot be stored.
func (k *keeper) stop() {
	k.parking.close()
	if err := k.checkpoints.last(); err != nil && !errors.Is(err, statestore.ErrEnded) {
		k.part.life.Log.Warn("cannot write the last changes to the local store, they will be replayed", "err", err)
	}
	m := &k.part.o.Memory
	for _, a := range []*budget.Account{m.Requests, m.Firings, m.Wheel, m.Dirty} {
		a.Set(0)
	}
	k.part.o.Metrics.dropMissing(k.part.o.Topics.Request.Name, k.part.o.Partition)
}

// loop writes checkpoints, moves parked timers, and loads timers that fire soon.
func (k *keeper) loop(ctx context.Context) error {
	defer k.checkpoints.stop()
	counting := tasks.New(ctx)
	defer counting.Stop()
	ctx = counting.Context() // ends the checkpoint that is being written, too
	counting.Go(k.forecast.run)
	t := beats.NewTicker(ownership.Tick)
	defer t.Stop()
	for {
		more, err := k.round(ctx)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return ownership.ErrStopped
		case <-k.part.life.Failed():
			return k.part.life.Failure()
		case <-k.part.life.Wake:
		case <-t.C:
			if err := k.noteKeeps(); err != nil {
				return err
			}
			k.requests.showLag()
			k.part.life.Steps.AwaitLeader()
			if k.lane.Wait() == 0 {
				// The clock was set ahead, or the machine was suspended: Go's timers follow neither.
				k.part.o.Lanes.Wake()
			}
		}
	}
}

// round does once whatever is waiting, and reports whether there is more to load. While a checkpoint is written, no
// timer is parked or unparked. So they come before the next checkpoint, which may begin immediately.
func (k *keeper) round(ctx context.Context) (more bool, err error) {
	ended, err := k.checkpoints.end()
	if err != nil {
		return false, err
	}
	if ended {
		k.lane.wakeForDue()
	}
	if !k.checkpoints.writing { // otherwise this would wait for the store
		if err := k.parking.round(); err != nil {
			return false, err
		}
	}
	k.requests.resumeIfFree()
	k.checkpoints.beginIfDue(ctx)
	k.part.life.Look(ctx)
	if err := k.followRules(ctx); err != nil {
		return false, err
	}
	return k.load()
}

// load scans a chunk of the store and gives the timers to the planners. It reports whether another scan should follow
// immediately.
func (k *keeper) load() (more bool, err error) {
	from, wheels, ok := k.roomToLoad()
	to := timer.Ref{Due: k.part.clock.millis() + loadWindow.Milliseconds(), Offset: math.MinInt64}
	if !ok || k.parking.muchToPark() || from.Due > to.Due-loadWindow.Milliseconds()/2 {
		return false, nil
	}
	found, next, done, err := k.store.Scan(from, to, loadRows, min(loadBytes, max(leastLoad, wheels)))
	if err != nil {
		return false, fmt.Errorf("scan the store: %w", err)
	}
	topic := ""
	for _, t := range found {
		if t.Target.Topic != topic {
			topic = t.Target.Topic
			k.part.o.Targets.Prefetch(topic)
		}
	}
	if done {
		next = to
	}
	parts := k.subs.split(found)
	k.subs.ask(func(s *subPartition) { s.planner.Load(from, next, parts[s.number]) })
	k.lane.wakeForDue()
	return !done, nil
}

// roomToLoad returns the place from which to scan, and how many bytes the memtables may hold, which depends on the use
// by other partitions. It returns false if they are full.
func (k *keeper) roomToLoad() (from timer.Ref, wheels int64, ok bool) {
	_, held := k.subs.size()
	k.part.o.Memory.Wheel.Set(held)
	wheels = k.part.o.Memory.Wheel.Limit()
	k.subs.ask(func(s *subPartition) {
		s.planner.Resize(wheels / int64(len(k.subs.all)))
		if stats := s.planner.Stats(); !stats.Full && (!ok || stats.Horizon.Compare(from) < 0) {
			from, ok = stats.Horizon, true
		}
	})
	return from, wheels, ok
}

// A raised delete.retention.ms is noted only after it has been in force for raiseAfter. By then the store's in-sync
// time is later than the change, and the store has every deletion that was stamped before the change.
const raiseAfter = 5 * time.Minute

// noteKeeps tells the store how long the changelog keeps deletions. The next opening of the view needs the lowest value
// that was in force since the view was in sync.
func (k *keeper) noteKeeps() error {
	keeps := k.part.life.Settings().Keeps()
	switch {
	case keeps <= k.keeps:
		k.raised = time.Time{}
	case k.raised.IsZero():
		k.raised = time.Now()
	}
	if keeps == k.keeps || k.keeps > 0 && keeps > k.keeps && time.Since(k.raised) < raiseAfter {
		return nil
	}
	k.keeps = keeps
	return k.store.Keeps(keeps)
}

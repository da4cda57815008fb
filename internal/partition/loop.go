package partition

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/waterclock/waterclock/internal/beats"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

// loop folds committed steps, has checkpoints written, and loads the wheel.
func (p *Partition) loop(ctx context.Context) error {
	t := beats.NewTicker(ownership.Tick)
	defer t.Stop()
	for {
		more, err := p.round(ctx)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return ownership.ErrStopped
		case <-p.life.Failed():
			return p.life.Failure()
		case <-p.life.Kicked:
		case <-t.C:
			if err := p.noteKeeps(); err != nil {
				return err
			}
			p.publishParked()
			p.showLag()
			p.life.Steps.AwaitLeader()
			p.noticeJump()
			p.lapse()
		}
	}
}

// round looks once at all that may wait, and says whether more is to be loaded. What a
// checkpoint holds up, which are timers to be parked or to be let pass and steps behind a
// full delta, has its turn before the next one begins: that may be at once, each time.
func (p *Partition) round(ctx context.Context) (more bool, err error) {
	if err := p.endCheckpoint(); err != nil {
		return false, err
	}
	if !p.checkpoints.writing { // else they would wait for the store
		if err := errors.Join(p.parkAll(), p.unpark(), p.expireParked()); err != nil {
			return false, err
		}
	}
	for j := p.nextJob(); j != nil; j = p.nextJob() {
		p.apply(j)
	}
	p.resumeIfFree()
	p.checkpoint(ctx)
	p.life.Look(ctx)
	return p.load()
}

// noticeJump has the lane seal what is due before its time to sleep is over: the clock
// was set ahead, or the machine was suspended, and timers do not follow that.
func (p *Partition) noticeJump() {
	if p.Wait() == 0 {
		p.o.Lanes.Wake()
	}
}

// Wake has the lane and the partition look at the clock again: it was set.
func (p *Partition) Wake() {
	p.o.Lanes.Wake()
	p.life.Kick()
}

// load scans a chunk of the store and gives the planner what it finds. It reports
// whether another should follow at once.
func (p *Partition) load() (more bool, err error) {
	from, wheels, ok := p.roomToLoad()
	to := timer.Ref{Due: p.clock.millis() + loadWindow.Milliseconds(), Offset: math.MinInt64}
	if !ok || p.muchToPark() || from.Due > to.Due-loadWindow.Milliseconds()/2 {
		return false, nil
	}
	var found []*timer.Timer
	topic := ""
	next, done, err := p.handle.Scan(from, to, loadRows, min(loadBytes, max(leastLoad, wheels)), func(t *timer.Timer) error {
		if t.Target.Topic != topic {
			topic = t.Target.Topic
			p.o.Targets.Prefetch(topic)
		}
		found = append(found, t)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("scan the store: %w", err)
	}
	if done {
		next = to
	}
	p.plans.load(from, next, found)
	p.wakeForDue()
	return !done, nil
}

// roomToLoad returns where a scan is to begin, and how many bytes the wheels may hold,
// which changes with what other partitions hold.
func (p *Partition) roomToLoad() (from timer.Ref, wheels int64, ok bool) {
	_, held := p.plans.size()
	p.o.Memory.Wheel.Set(held)
	wheels = p.o.Memory.Wheel.Limit()
	from, ok = p.plans.loadFrom(wheels)
	return from, wheels, ok
}

package partition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// loop folds committed steps, has checkpoints written, and loads wheels.
func (p *Partition) loop(ctx context.Context) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	reached := lowest // where the last load ended
	for {
		more, err := p.round(ctx, &reached)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return ErrStopped
		case <-p.failed:
			return p.failure
		case <-p.kicked:
		case <-t.C:
			p.publishParked()
			p.followLag(ctx)
			p.awaitLeader()
			p.peekAtTail(ctx)
		}
	}
}

// round looks once at all that may wait, and says whether more is to be loaded. What a
// checkpoint holds up, which are timers to be parked or to be let pass and steps behind a
// full delta, has its turn before the next one begins: that may be at once, each time.
func (p *Partition) round(ctx context.Context, reached *timer.Ref) (more bool, err error) {
	if err := p.endCheckpoint(); err != nil {
		return false, err
	}
	if p.delta.frozen == nil { // else they would wait for the store
		if err := errors.Join(p.parkAll(), p.unpark()); err != nil {
			return false, err
		}
	}
	for j := p.nextJob(); j != nil; j = p.nextJob() {
		p.apply(j)
	}
	p.checkpoint(ctx)
	p.lookAtTail(ctx)
	p.lookAtOversized(ctx)
	return p.load(reached)
}

// awaitLeader has the lane ask again, if nothing is sealed for want of a leader.
func (p *Partition) awaitLeader() {
	p.mu.Lock()
	leaderless := p.leaderless
	p.mu.Unlock()
	if leaderless {
		p.o.Lane.Wake()
	}
}

// load scans a chunk of the store from the lowest horizon of the workers and
// posts it. It reports whether another should follow at once.
func (p *Partition) load(reached *timer.Ref) (more bool, err error) {
	wait := false
	for _, w := range p.workers {
		lowered, busy := w.loadState()
		if lowered.Compare(*reached) < 0 {
			*reached = lowered
		}
		wait = wait || busy
	}
	if wait || p.muchToPark() {
		return false, nil
	}
	from := *reached
	to := timer.Ref{Due: p.clock.millis() + loadWindow.Milliseconds(), Offset: math.MinInt64}
	if from.Due > to.Due-loadWindow.Milliseconds()/2 {
		return false, nil
	}
	loads := make([]*load, len(p.workers))
	for i := range loads {
		loads[i] = &load{from: from}
	}
	topic := ""
	next, done, err := p.take.Scan(from, to, loadRows, loadBytes, func(t *timer.Timer) error {
		if t.Target.Topic != topic {
			topic = t.Target.Topic
			p.o.Targets.Prefetch(topic)
		}
		l := loads[p.worker(t.ID)]
		l.timers = append(l.timers, t)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("scan the store: %w", err)
	}
	if done {
		next = to
	}
	*reached = next
	for i, w := range p.workers {
		loads[i].to = next
		w.setLoading(true)
		w.post(message{load: loads[i]})
	}
	return !done, nil
}

// worker returns the index of the sub-partition that an ID belongs to.
func (p *Partition) worker(id []byte) int {
	return int(xxhash.Sum64(id) % uint64(len(p.workers)))
}

// kick makes the loop look again. It never blocks.
func (p *Partition) kick() {
	select {
	case p.kicked <- struct{}{}:
	default:
	}
}

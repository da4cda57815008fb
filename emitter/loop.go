package emitter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

// run commits steps, while the lane is active, until ctx ends.
func (l *Lane) run(ctx context.Context) error {
	due := time.NewTimer(maxSleep)
	defer due.Stop()
	active, backoff := false, minBackoff
	for {
		if !active {
			select {
			case <-ctx.Done():
				return nil
			case <-l.called:
			}
			l.pool.prepare(ctx)
			l.of.joined()
			active = true
		}
		if wait := l.pace.wait(time.Now()); wait > 0 && !beats.Sleep(ctx, wait) {
			return nil
		}
		worked, err := l.step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kerr.InvalidTransactionTimeout):
			return err
		case err != nil:
			l.o.Logger.Warn("step aborted", "lane", l.name, "err", err)
			l.of.Wake() // another lane may fare better
			beats.Sleep(ctx, backoff)
			backoff = min(2*backoff, pauseLimit(l.o.Leaders))
			continue
		}
		backoff = minBackoff
		if active = !l.of.leaves(l.called); !active {
			l.of.Wake() // another lane now listens for wake-ups
			continue
		}
		if worked {
			continue
		}
		due.Reset(l.of.untilDue())
		select {
		case <-ctx.Done():
			return nil
		case <-l.of.wake:
		case <-due.C:
		}
	}
}

// step seals and runs one step. It reports whether there was one.
func (l *Lane) step(ctx context.Context) (bool, error) {
	at := time.Now()
	shares := l.seal(l.nextStep())
	if len(shares) == 0 {
		return false, nil
	}
	over := l.of.watch()
	err := l.runStep(ctx, shares)
	over()
	l.pace.sealed(at, l.more || err != nil)
	switch {
	case err == nil:
		took, trips := time.Since(at), l.timings.of("announce", "offsets", "end")
		l.o.Metrics.carried(l.filled, took, trips)
		l.size.committed(took - trips)
	case errors.Is(err, errLate), errors.Is(err, errHeld):
		l.size.unacknowledged()
	}
	for _, again := range []error{errEmissions, errTokens, errHeld, errUnknown, errFence, errAlone} {
		if errors.Is(err, again) {
			return true, nil // sealed again at once, without the culprits
		}
	}
	return true, err
}

func (l *Lane) nextStep() string {
	l.counter++
	return fmt.Sprintf("%s/%s/%d", l.o.Process, l.name, l.counter)
}

// runStep runs the step of these shares and tells them its outcome; with errUnknown
// they are told later, by a goroutine of its own.
func (l *Lane) runStep(ctx context.Context, shares []*Share) error {
	start := time.Now()
	// A step that has begun is ended in order, even if the lane is stopped. The broker's own limit bounds it.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.o.TransactionTimeout)
	defer cancel()
	err := l.commit(bounded, shares)
	if errors.Is(err, errUnknown) {
		c := l.pool.clients[l.pool.turn]
		l.pool.forget(c)
		l.background.Go(func() {
			l.finish(ctx, shares, start, (&inDoubt{l, c, shares}).resolve())
			l.of.Wake()
		})
		return err
	}
	if c := l.pool.clients[l.pool.turn]; c != nil {
		c.used = time.Now()
	}
	l.finish(ctx, shares, start, err)
	return err
}

// finish reports the outcome of a step to its sources, to the roster and to the metrics.
func (l *Lane) finish(ctx context.Context, shares []*Share, start time.Time, err error) {
	if err == nil {
		l.passed(shares)
	}
	for _, s := range shares {
		switch {
		case err == nil:
			s.Done(Committed)
		case errors.Is(err, errRefused), s.Token.Err() != nil:
			s.Done(Lost)
		default:
			s.Done(Aborted)
		}
	}
	l.of.settled(ctx, shares)
	l.o.Metrics.step(err, time.Since(start))
}

// seal collects shares of the sources that the lane has claimed. One source with suspects is enough for a step, because
// each suspect takes a round trip.
func (l *Lane) seal(name string) (shares []*Share) {
	for {
		wakes := l.of.wakes.Load()
		limit := Room{Entries: l.size.limit, Bytes: MaxStepBytes}
		room := limit
		members, fair, others := l.of.claim(room, time.Now())
		full := false
		l.more = false
		var all []asked
		for _, m := range members {
			offered := fair.of(m, room)
			left := offered
			share := l.of.sealOf(m, name, &left)
			took := taken(share, offered, left)
			l.more = l.more || took.all
			all = append(all, asked{m, share, took})
			room = room.Minus(offered.Minus(left))
			if share != nil {
				shares = append(shares, share)
			}
			if full = room.IsUsedUp() || len(shares) >= MaxStepPartitions; full || share.suspects() {
				break
			}
		}
		several := l.of.sealed(all, members[len(all):], fair.room, limit.Minus(room), full)
		l.filled = filled(limit, limit.Minus(room), full)
		if len(all) < len(members) {
			l.more, others = true, true
		}
		if len(shares) > 0 && (others || several) {
			l.of.Wake()
		}
		if len(shares) > 0 || !others && (!several || l.of.wakes.Load() == wakes) {
			return shares
		}
	}
}

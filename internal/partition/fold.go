package partition

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// fold is the replay of the changelog into the store. It implements
// delaytopics.Fold. It has one of the places for replays, which bound their
// memory, from when there is something to be fetched until nothing comes any more.
type fold struct {
	p      *Partition
	ctx    context.Context
	replay *delaytopics.Replay
	sink   *statestore.Replay // nil: no place is held
	// empty: the fold began with nothing, at begun; otherwise inSync says how old
	// it was.
	empty  bool
	begun  time.Time
	inSync time.Time
	newest time.Time // timestamp in the changelog when the fold began
	said   time.Time // when progress was last logged
	// waiting for a place.
	waiting atomic.Bool
}

// openFold begins where the store's view ends, or wipes it first if it cannot
// be trusted, or there is a reason why not.
func (p *Partition) openFold(ctx context.Context, why string) (*fold, error) {
	meta, err := p.take.Meta()
	if err != nil && !statestore.IsCorrupt(err) && !errors.Is(err, statestore.ErrNewerFormat) {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	unreadable := errors.Join(err, p.damage)
	start, _, end, err := partlog.Bounds(ctx, p.o.Client, p.changelogTarget())
	if err != nil {
		return nil, err
	}
	newest, err := partlog.Newest(ctx, p.o.Client, p.changelogTarget())
	if err != nil {
		return nil, err
	}
	if why == "" {
		why = p.untrusted(meta, start, end)
	}
	if unreadable != nil {
		why = unreadable.Error()
	}
	if statestore.IsCorrupt(unreadable) {
		p.log.Error("the local store is damaged: wiping what it holds of the partition and replaying it", "err", unreadable)
		p.o.Metrics.damaged()
	}
	if meta.Position >= 0 && meta.Changelog != p.o.Topics.Changelog.ID && !p.o.AcceptLostChangelog {
		if err := p.replaced(ctx, start, end); err != nil {
			return nil, err
		}
	}
	if why != "" {
		p.log.Warn("wiping the local view of the partition", "reason", why)
		if err := p.take.Wipe(); err != nil {
			return nil, fmt.Errorf("wipe the store: %w", err)
		}
		p.damage = nil
		meta = statestore.Meta{Position: -1}
	}
	if err := p.countMisplaced(ctx); err != nil {
		return nil, err
	}
	return p.newFold(ctx, meta, start, end, newest)
}

func (p *Partition) newFold(ctx context.Context, meta statestore.Meta, start, end int64, newest time.Time) (*fold, error) {
	f := &fold{p: p, ctx: ctx, empty: meta.Position < 0, begun: time.Now(), inSync: meta.InSync, newest: newest, said: time.Now()}
	var last *delaytopics.Checkpoint
	from := meta.Position
	if f.empty {
		from = start
	} else if len(meta.Checkpoint) > 0 {
		cp, err := delaytopics.DecodeCheckpoint(meta.Checkpoint)
		if err != nil {
			return nil, beyond(fmt.Errorf("stored checkpoint: %w", err))
		}
		last = &cp
	}
	f.replay = delaytopics.NewReplay(partlog.NewReader(p.o.Client, p.changelogTarget(), from), f, last)
	f.replay.Progress = f.progress
	p.replayed.Store(from)
	p.replayEnd.Store(end)
	return f, nil
}

// replaced sees to it that a changelog other than the one that the local view is of
// holds something at all. If it does not, that view may be the last that is left of
// the pending timers, and is not wiped before an operator says so.
func (p *Partition) replaced(ctx context.Context, start, end int64) error {
	f := &fold{p: p, ctx: ctx, said: time.Now()}
	f.replay = delaytopics.NewReplay(partlog.NewReader(p.o.Client, p.changelogTarget(), start), nothing{}, nil)
	err := f.to(end)
	if err == nil && f.replay.Last() == nil {
		err = p.lostChangelog("the data folder has timers")
	}
	return err
}

// nothing is a fold that keeps nothing.
type nothing struct{}

func (nothing) Hold(context.Context) error            { return nil }
func (nothing) Put(_, _ []byte, _ *timer.Timer) error { return nil }
func (nothing) Delete([]byte) error                   { return nil }
func (nothing) Checkpoint([]byte) error               { return nil }
func (nothing) Flush(int64) error                     { return nil }
func (nothing) Rest()                                 {}

// lostChangelog is why a partition does not run whose changelog holds nothing,
// though something tells that it did.
func (p *Partition) lostChangelog(tells string) error {
	return &Fatal{fmt.Errorf("%s for %s/%d and changelog %s holds no checkpoint: the changelog was lost, and pending timers with it; "+
		"start once with --accept-lost-changelog to read the request log from its start; before that, %s",
		tells, p.o.Topics.Request.Name, p.o.Partition, p.o.Topics.Changelog.Name, delaytopics.LostAdvice)}
}

// untrusted says why the local view must not be used, "" if it may, as far as it
// can be told before the claim.
func (p *Partition) untrusted(m statestore.Meta, start, end int64) string {
	switch {
	case m.Position < 0:
		return ""
	case m.Changelog != p.o.Topics.Changelog.ID:
		return "the changelog was created anew"
	case m.Position > end:
		return fmt.Sprintf("its position %d lies beyond the changelog's end %d", m.Position, end)
	case m.Position < start:
		return fmt.Sprintf("its position %d lies before the changelog's start %d", m.Position, start)
	}
	return ""
}

// stale says why the local view that the fold began with must not be used, now
// that a broker has said what time it is; "" if it may. One that was begun with
// nothing is as old as that: its leader may have been away in the middle of it.
func (f *fold) stale(now time.Time) string {
	switch took := time.Since(f.begun); {
	case f.empty && took > f.p.o.MaxAbsence:
		return fmt.Sprintf("it was %s in the making, longer than %s: deletions may be gone from the changelog", took.Round(time.Second), f.p.o.MaxAbsence)
	case f.empty, now.Sub(f.inSync) <= f.p.o.MaxAbsence:
		return ""
	}
	return fmt.Sprintf("it was last in sync at %s, longer ago than %s: deletions may be gone from the changelog",
		f.inSync.UTC().Format(time.RFC3339), f.p.o.MaxAbsence)
}

// toEnd folds what is in the changelog now, and waits for what is open there.
func (f *fold) toEnd() error {
	_, _, end, err := partlog.Bounds(f.ctx, f.p.o.Client, f.p.changelogTarget())
	if err != nil {
		return err
	}
	return f.to(end)
}

// to folds up to an offset, while somebody sees to it that no vanished owner's
// transaction is in the way.
func (f *fold) to(end int64) error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	helper := make(chan error, 1)
	go func() { helper <- f.help(ctx, cancel) }()
	err := f.replay.To(ctx, end)
	cancel()
	if helpErr := <-helper; helpErr != nil && err != nil {
		return helpErr
	}
	return beyond(err)
}

// Hold implements delaytopics.Fold: it takes a place.
func (f *fold) Hold(ctx context.Context) (err error) {
	f.waiting.Store(true)
	defer f.waiting.Store(false)
	if err := f.p.o.Replays.Acquire(ctx, 1); err != nil {
		return err
	}
	if f.sink, err = f.p.take.Replay(f.p.o.Topics.Changelog.ID, f.newest); err != nil {
		f.p.o.Replays.Release(1)
		return fmt.Errorf("open the store for replay: %w", err)
	}
	f.p.state.Store(int32(Replaying))
	return nil
}

// Rest implements delaytopics.Fold: it gives the place back.
func (f *fold) Rest() {
	f.sink = nil
	f.p.state.Store(int32(Taking))
	f.p.o.Replays.Release(1)
}

// Put implements delaytopics.Fold.
func (f *fold) Put(id, value []byte, t *timer.Timer) error { return f.sink.Put(id, value, t) }

// Delete implements delaytopics.Fold.
func (f *fold) Delete(id []byte) error { return f.sink.Delete(id) }

// Checkpoint implements delaytopics.Fold.
func (f *fold) Checkpoint(raw []byte) error { return f.sink.Checkpoint(raw) }

// Flush implements delaytopics.Fold.
func (f *fold) Flush(position int64) error { return f.sink.Flush(position) }

// help ends transactions that hold up the replay. It ends with ctx, or with an
// error after calling stop.
func (f *fold) help(ctx context.Context, stop func()) error {
	t := time.NewTicker(vanishedAfter)
	defer t.Stop()
	last := f.p.replayed.Load()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		now := f.p.replayed.Load()
		if now != last || f.waiting.Load() {
			last = now
			continue
		}
		if err := f.p.endVanished(ctx, false); err != nil {
			stop()
			return err
		}
	}
}

func (f *fold) progress(position, end int64) {
	if now := time.Now(); now.Sub(f.said) > progressEvery {
		f.said = now
		f.p.log.Info("replaying the changelog", "position", position, "end", end)
	}
	f.p.o.Metrics.replayed(position - f.p.replayed.Load())
	f.p.replayed.Store(position)
	f.p.replayEnd.Store(end)
}

// beyond marks what trying again will not make readable.
func beyond(err error) error {
	switch {
	case errors.Is(err, delaytopics.ErrNewerFormat):
		return &Fatal{err}
	case errors.Is(err, delaytopics.ErrCorrupt):
		return &Fatal{fmt.Errorf("%w; see who else writes to the changelog, and delete the record", err)}
	}
	return err
}

package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/statestore"
)

// fold is the replay of the changelog into the store.
type fold struct {
	p      *Partition
	reader *partlog.Reader
	sink   *statestore.Replay
	last   *delaytopics.Checkpoint // last checkpoint folded
	said   time.Time               // when progress was last logged
}

// openFold begins where the store's view ends, or wipes it first if it can not
// be trusted.
func (p *Partition) openFold(ctx context.Context) (*fold, error) {
	meta, err := p.take.Meta()
	if err != nil && !statestore.IsCorrupt(err) && !errors.Is(err, statestore.ErrNewerFormat) {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	unreadable := errors.Join(err, p.damage)
	start, _, end, err := partlog.Bounds(ctx, p.o.Client, p.changelogTarget())
	if err != nil {
		return nil, err
	}
	why := p.untrusted(meta, start, end)
	if unreadable != nil {
		why = unreadable.Error()
	}
	if statestore.IsCorrupt(unreadable) {
		p.log.Error("the local store is damaged: wiping what it holds of the partition and replaying it", "err", unreadable)
		p.o.Metrics.damaged()
	}
	if why != "" {
		p.log.Warn("wiping the local view of the partition", "reason", why)
		if err := p.take.Wipe(); err != nil {
			return nil, fmt.Errorf("wipe the store: %w", err)
		}
		p.damage = nil
		meta = statestore.Meta{Position: -1}
	}
	f := &fold{p: p, said: time.Now()}
	from := meta.Position
	if from < 0 {
		from = start
	} else if len(meta.Checkpoint) > 0 {
		cp, err := delaytopics.DecodeCheckpoint(meta.Checkpoint)
		if err != nil {
			return nil, fmt.Errorf("stored checkpoint: %w", err)
		}
		f.last = &cp
	}
	f.reader = partlog.NewReader(p.o.Client, p.changelogTarget(), from)
	f.reader.SetCompacted(true)
	if f.sink, err = p.take.Replay(p.o.Topics.Changelog.ID); err != nil {
		return nil, fmt.Errorf("open the store for replay: %w", err)
	}
	p.replayed.Store(from)
	p.replayEnd.Store(end)
	return f, nil
}

// untrusted says why the local view must not be used, "" if it may.
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
	case p.o.Now().Sub(m.InSync) > p.o.MaxAbsence:
		return fmt.Sprintf("it was last in sync at %s, longer ago than %s: deletions may be gone from the changelog", m.InSync.UTC().Format(time.RFC3339), p.o.MaxAbsence)
	}
	return ""
}

// toEnd looks for the last checkpoint that is committed as of now.
func (f *fold) toEnd(ctx context.Context) error {
	_, _, end, err := partlog.Bounds(ctx, f.p.o.Client, f.p.changelogTarget())
	if err != nil {
		return err
	}
	if f.reader.Position() >= end {
		return nil
	}
	return f.helped(ctx, func(ctx context.Context) error {
		r := partlog.NewReader(f.p.o.Client, f.p.changelogTarget(), f.reader.Position())
		last, found, err := delaytopics.FindCheckpoint(ctx, r, end, nil)
		return f.found(last, found, err)
	})
}

// replay folds until the claim is met.
func (f *fold) replay(ctx context.Context, mine func(delaytopics.Claim) bool) error {
	return f.helped(ctx, func(ctx context.Context) error {
		last, found, err := delaytopics.Replay(ctx, f.reader, f.sink, mine, f.progress)
		return f.found(last, found, err)
	})
}

// helped runs a look at the changelog while somebody sees to it that no vanished
// owner's transaction is in the way.
func (f *fold) helped(ctx context.Context, look func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	helper := make(chan error, 1)
	go func() { helper <- f.help(ctx, cancel) }()
	err := look(ctx)
	cancel()
	if helpErr := <-helper; helpErr != nil && err != nil {
		return helpErr
	}
	return err
}

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
		if now != last {
			last = now
			continue
		}
		if err := f.p.endVanished(ctx, false); err != nil && ctx.Err() == nil {
			if errors.Is(err, emitter.ErrForeignTransaction) {
				stop()
				return err
			}
			f.p.log.Warn("cannot look for a vanished owner's transactions", "err", err)
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

// found takes the last checkpoint of a look at the changelog.
func (f *fold) found(last delaytopics.Checkpoint, found bool, err error) error {
	if found {
		f.last = &last
	}
	if errors.Is(err, delaytopics.ErrNewerFormat) {
		return &Fatal{err}
	}
	return err
}

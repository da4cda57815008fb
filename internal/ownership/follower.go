package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/internal/partlog"
)

const (
	// followEvery is how often a follower looks for more: it is hardly farther behind.
	followEvery = time.Second
	// progressEvery is how often a long replay is logged.
	progressEvery = 5 * time.Second
)

// FollowOptions of a follower.
type FollowOptions struct {
	Topics    *delaytopics.Set
	Partition int32
	Client    *kgo.Client
	Local     *Local // nil: nothing is kept but the last checkpoint
	Logger    *slog.Logger
	Metrics   Metrics
}

// Follower folds the changelog of a partition: into its local view, or only as far back as
// the last checkpoint, where that is all there is to know. It claims nothing and ends no
// transaction of others, so any number may follow what somebody owns. An acquisition has
// one too, and goes on from where it stands. It is used by one goroutine.
//
// # Why a view may go on
//
// A compacted log forgets deletions some time after they were written. Who has read up to a
// position sees all that come behind it only if he reads on within that time, of which
// MaxAbsence is the half. A follower goes on from its own position again and again, so
// three spans must be that short: from when the view was last in sync to when the log's end
// was first reached; from when the end was asked for that was reached to when the next one
// is; and from the last one to the claim. The first begins with the brokers' time of
// another life, so only the brokers can end it: the claim has their time, and what has
// passed here since the end was first reached is taken off. The others are measured here.
type Follower struct {
	o      FollowOptions
	log    partlog.Log
	replay *delaytopics.Replay // nil: not opened
	by     *Life               // who acquires the partition; nil: it is merely followed
	// claimed, unless it is nil, is told of the claims that are folded.
	claimed func(delaytopics.Claim)

	view  view
	first time.Time // when an end was reached for the first time; zero: none was
	met   time.Time // all that was in the log at this moment is folded
	// missed: it took so long from one end to the next that deletions may be gone.
	missed time.Duration
	said   time.Time // when progress was last logged

	// What follows is safe for all.
	position atomic.Int64
	end      atomic.Int64 // of the log, as far as it is known
	waiting  atomic.Bool  // for a slot
}

// NewFollower returns a follower that begins where the local view ends.
func NewFollower(o FollowOptions) *Follower {
	return &Follower{o: o, log: logOf(&o.Topics.Changelog, o.Partition)}
}

// NewFollower returns the follower of an acquisition; local is as in FollowOptions.
func (l *Life) NewFollower(local *Local) *Follower {
	return NewFollower(FollowOptions{
		Topics: l.o.Topics, Partition: l.o.Partition, Client: l.o.Client, Local: local, Logger: l.Log, Metrics: l.metrics,
	})
}

// Position is the offset up to which the changelog is folded. It is safe for all.
func (f *Follower) Position() int64 { return f.position.Load() }

// Last is the last checkpoint, with the group and the owner of whoever wrote last, nil if
// there is none, or nothing was read yet.
func (f *Follower) Last() *delaytopics.Checkpoint {
	if f.replay == nil {
		return nil
	}
	return f.replay.Last()
}

// Follow folds what is in the log, and what comes, until ctx ends or it cannot: it may be
// called again then. A view that was missing for too long is begun again.
func (f *Follower) Follow(ctx context.Context) error {
	for {
		if err := f.ToEnd(ctx); err != nil {
			return err
		}
		if why := f.stale(f.view.newest); why != "" {
			if err := f.open(ctx, why); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followEvery):
		}
	}
}

// ToEnd folds what is in the changelog now, and waits for what is open there.
func (f *Follower) ToEnd(ctx context.Context) error {
	if f.replay == nil {
		if err := f.open(ctx, ""); err != nil {
			return err
		}
	}
	asked := time.Now()
	_, _, end, err := partlog.Bounds(ctx, f.o.Client, f.log)
	if err != nil {
		return err
	}
	if err := f.to(ctx, end); err != nil {
		return err
	}
	f.meet(asked)
	return nil
}

// meet notes that all is folded that was in the log at a moment.
func (f *Follower) meet(asked time.Time) {
	if f.met.IsZero() {
		f.first = time.Now()
	} else {
		f.missed = max(f.missed, passed(f.met))
	}
	f.met = asked
}

// passed is how long ago a moment was, at most: the time in which the machine was suspended
// counts too.
func passed(since time.Time) time.Duration {
	return max(time.Since(since), time.Now().Round(0).Sub(since.Round(0)))
}

// stale says why the view must not be used, now that a broker has said what time it is; ""
// if it may. One that was begun with nothing is as old as that: its leader may have been
// away in the middle of it. A time before that of the brokers finds less.
func (f *Follower) stale(now time.Time) string {
	if f.o.Local == nil {
		return ""
	}
	limit := f.o.Local.MaxAbsence
	took, age := passed(f.view.begun), now.Sub(f.view.inSync)
	if !f.first.IsZero() {
		took, age = f.first.Sub(f.view.begun), age-time.Since(f.first)
		f.missed = max(f.missed, passed(f.met))
	}
	switch {
	case f.missed > limit:
		return fmt.Sprintf("nothing was read for %s, longer than %s: deletions may be gone from the changelog", f.missed.Round(time.Second), limit)
	case f.view.empty && took > limit:
		return fmt.Sprintf("it was %s in the making, longer than %s: deletions may be gone from the changelog", took.Round(time.Second), limit)
	case f.view.empty, age <= limit:
		return ""
	}
	return fmt.Sprintf("it was last in sync at %s, longer ago than %s: deletions may be gone from the changelog",
		f.view.inSync.UTC().Format(time.RFC3339), limit)
}

// open begins where the view ends, or wipes it first if it cannot be trusted, or there is
// a reason why not.
func (f *Follower) open(ctx context.Context, why string) (err error) {
	var fold delaytopics.Fold = noTimers{}
	if f.o.Local == nil {
		f.view, err = f.openCheckpoints(ctx)
	} else {
		fold = &intoLocal{f: f}
		f.view, err = f.openLocal(ctx, why)
	}
	if err != nil {
		f.replay = nil
		return err
	}
	f.first, f.met, f.missed, f.said = time.Time{}, time.Time{}, 0, time.Now()
	f.replay = delaytopics.NewReplay(partlog.NewReader(f.o.Client, f.log, f.view.from), fold, f.view.last)
	f.replay.Progress = f.progress
	f.replay.Claimed = func(c delaytopics.Claim) {
		if f.claimed != nil {
			f.claimed(c)
		}
	}
	f.position.Store(f.view.from)
	f.end.Store(f.view.end)
	return nil
}

// to folds up to an offset.
func (f *Follower) to(ctx context.Context, end int64) error { return f.run(ctx, f.replay, end) }

// run has a replay go up to an offset. In an acquisition somebody sees to it that no former
// owner's transaction is in the way.
func (f *Follower) run(ctx context.Context, r *delaytopics.Replay, end int64) error {
	if f.by == nil {
		return beyond(r.To(ctx, end))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	helper := make(chan error, 1)
	go func() { helper <- f.by.help(ctx, f, cancel) }()
	err := r.To(ctx, end)
	cancel()
	if helpErr := <-helper; helpErr != nil && err != nil {
		return helpErr
	}
	return beyond(err)
}

func (f *Follower) progress(position, end int64) {
	if now := time.Now(); f.by != nil && now.Sub(f.said) > progressEvery {
		f.said = now
		f.o.Logger.Info("replaying the changelog", "position", position, "end", end)
	}
	if f.o.Local != nil {
		f.o.Metrics.Replayed(position - f.position.Load())
	}
	f.position.Store(position)
	f.end.Store(end)
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

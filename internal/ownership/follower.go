package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/replay"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/clocks"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// followEvery is how often a follower looks for more records, so it is hardly farther behind.
	followEvery = time.Second
	// progressEvery is how often a long replay is logged.
	progressEvery = 5 * time.Second
	// backgroundPart is how long a background replay works before it lets others go first.
	backgroundPart = 250 * time.Millisecond
)

// FollowOptions of a follower.
type FollowOptions struct {
	Topics    *topics.Set
	Partition int32
	Client    *kgo.Client
	Settings  *Settings
	Local     *Local // nil: nothing is kept but the last checkpoint
	Logger    *slog.Logger
	Metrics   FollowMetrics
}

// Follower folds the changelog of a partition into its local view. For a log of checkpoints it reads only from the last
// one on. It claims nothing and ends no transactions of others, so any number of followers may follow a partition that
// another process owns. An acquisition has a follower too, and continues at its position. One goroutine uses it.
//
// It collects the evidence on whether its view can be reused. Type evidence decides.
type Follower struct {
	o      FollowOptions
	log    partlog.Log
	replay *replay.Replay // nil: not opened
	// help ends transactions that hold up a replay, until ctx ends. If it cannot, it calls stop and returns why. It is
	// nil unless the follower serves an acquisition.
	help func(ctx context.Context, f *Follower, stop func()) error
	show func(State) // set together with help: shows where the acquisition is

	view  view
	first time.Time // when an end of the log was first reached; zero: never yet
	// making is how long the view was in the making before first, by the longer of two clocks.
	making time.Duration
	// missed is the longest time from one end to the next, see spans.
	missed time.Duration
	logged time.Time // when progress was last logged

	// The following fields are safe for concurrent use.
	position atomic.Int64
	end      atomic.Int64 // of the log, as far as it is known
	waiting  atomic.Bool  // for a slot
	// reached is a time: everything that was in the log then is folded; nil: no end was reached yet.
	reached atomic.Pointer[time.Time]
}

// NewFollower returns a follower that begins where the local view ends.
func NewFollower(o FollowOptions) *Follower {
	if o.Settings == nil {
		o.Settings = NewSettings(nil, o.Topics)
	}
	return &Follower{o: o, log: logOf(&o.Topics.Changelog, o.Partition)}
}

// Position is the offset up to which the changelog is folded. It is safe for concurrent use.
func (f *Follower) Position() int64 { return f.position.Load() }

// Reached returns the latest time up to which the whole log is known to be folded; the zero time if there is none yet.
// It is a hint: whether the view can be reused is decided when it is used. It is safe for concurrent use.
func (f *Follower) Reached() time.Time {
	if at := f.reached.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Last is the last checkpoint, with the group and the owner of the last writer. It is nil if there is none, or if
// nothing was read yet.
func (f *Follower) Last() *wire.Checkpoint {
	if f.replay == nil {
		return nil
	}
	return f.replay.Last()
}

// Follow folds the log, and new records as they are written, until ctx ends or it fails. Then it may be called again,
// or the follower may serve an acquisition (Life.TakeOver). If it read nothing for too long, it begins the view again.
func (f *Follower) Follow(ctx context.Context) error {
	for {
		if err := f.ToEnd(ctx); err != nil {
			return err
		}
		why, err := f.whyUnusable(ctx, f.view.newest)
		if err == nil && why != "" {
			err = f.open(ctx, why)
		}
		switch {
		case err != nil:
			return err
		case why != "":
			continue
		}
		if !beats.Sleep(ctx, followEvery) {
			return ctx.Err()
		}
	}
}

// ToEnd folds everything that is in the changelog now, and waits for the transactions that are open there.
func (f *Follower) ToEnd(ctx context.Context) error {
	for why, opened := "", f.replay != nil; ; opened = true {
		if !opened || why != "" {
			if err := f.open(ctx, why); err != nil {
				return err
			}
		}
		asked := time.Now()
		end, cut, err := f.look(ctx)
		if why = cut; err == nil && why == "" {
			err = f.to(ctx, end)
		}
		var refuted *refutedError
		switch {
		case errors.As(err, &refuted):
			why = refuted.why
		case err != nil:
			return err
		case why == "":
			f.noteReached(asked)
			return nil
		}
	}
}

// look asks the leader where the log ends, and whether it still holds the records that were read. It returns why not;
// "" if it does.
func (f *Follower) look(ctx context.Context) (end int64, why string, err error) {
	epoch, read := f.replay.Read()
	if f.o.Local == nil {
		epoch = 0
	}
	now, err := partlog.EndOf(ctx, f.o.Client, f.log, epoch)
	if err != nil || epoch == 0 {
		return now.End, "", err
	}
	f.view.log.epochAsked, f.view.log.epochEnd, f.view.log.read = true, now.Same, read
	if f.view.view.Position < 0 && now.Same < read { // it began with nothing
		return now.End, cutWhy(now.Same, read), nil
	}
	return now.End, f.view.refuted(), nil
}

// refutedError ends a replay of a view that must not be reused.
type refutedError struct{ why string }

func (r *refutedError) Error() string { return r.why }

// named is called with the name of the step whose checkpoint the replay has found where the view ends; "" if there is
// none.
func (f *Follower) named(step string) error {
	f.view.log.nameAsked, f.view.log.named = true, step
	if why := f.view.refuted(); why != "" {
		return &refutedError{why}
	}
	return nil
}

// noteReached notes that everything that was in the log at the given moment is folded.
func (f *Follower) noteReached(asked time.Time) {
	if before := f.reached.Load(); before == nil {
		f.first = time.Now()
		f.making = clocks.Passed(f.view.begun, f.first)
	} else {
		f.missed = max(f.missed, clocks.Passed(*before, time.Now()))
	}
	f.reached.Store(&asked)
}

// whyUnusable returns why the view must not be used, given the brokers' time; "" if it may be used. The age of
// a view that began empty counts from its begin, because its leader may have been away during the
// replay. If now is zero, because no broker has said it, or earlier than the brokers' time, it may miss that a view is
// too old; an acquisition asks again, with the claim's time.
func (f *Follower) whyUnusable(ctx context.Context, now time.Time) (why string, err error) {
	if f.o.Local == nil {
		return "", nil
	}
	keeps, err := f.keepsNow(ctx)
	if err != nil {
		return "", err
	}
	v := &f.view
	v.keeps = min(v.keeps, keeps)
	v.past = spans{known: true, making: clocks.Passed(v.begun, time.Now())}
	if !now.IsZero() {
		v.past.age = now.Sub(v.view.InSync)
	}
	if !f.first.IsZero() {
		v.past.age -= min(v.past.age, time.Since(f.first)) // the clock that never shows too much
		v.past.making = f.making
		f.missed = max(f.missed, clocks.Passed(f.Reached(), time.Now()))
	}
	v.past.missed = f.missed
	return v.refuted(), nil
}

// open begins where the view ends. It wipes the view first if it is refuted, or if the caller says why
// it must not be believed.
func (f *Follower) open(ctx context.Context, why string) (err error) {
	var fold replay.Fold = noTimers{}
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
	v := &f.view
	f.first, f.making, f.missed, f.logged = time.Time{}, 0, 0, time.Now()
	f.reached.Store(nil)
	f.replay = replay.NewReplay(partlog.NewReader(f.o.Client, f.log, v.from), fold)
	f.replay.Continue(v.last, replay.Point{
		Position: v.from, Named: v.view.Named, Epoch: partlog.Epoch(v.view.Epoch), Read: v.view.Read,
	}, f.named)
	f.replay.Progress = f.progress
	if f.o.Local != nil {
		f.replay.Room = f.o.Local.Room
	}
	f.position.Store(v.from)
	f.end.Store(v.end)
	return nil
}

// to folds up to an offset. If the view lacks something afterwards, or the log begins behind its position by now, the
// follower opens it again next time.
func (f *Follower) to(ctx context.Context, end int64) error {
	f.replay.Part, f.replay.Between = 0, nil
	if f.o.Local != nil && f.o.Local.Turns != nil {
		f.replay.Part, f.replay.Between = backgroundPart, f.o.Local.Handle.AwaitRoom
	}
	err := f.run(ctx, f.replay, end)
	var out *partlog.OutOfRangeError
	deleted := errors.As(err, &out) && out.Position < out.LogStart
	// A damaged store refuses the replay before it folds anything.
	if deleted || f.replay.Broken() || statestore.IsCorrupt(err) {
		f.replay = nil
		f.reached.Store(nil)
	}
	return err
}

// run replays up to an offset. In an acquisition, help ends former owners' transactions that are in the way.
func (f *Follower) run(ctx context.Context, r *replay.Replay, end int64) error {
	if f.help == nil {
		return beyond(r.To(ctx, end))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	helper := make(chan error, 1)
	go func() { helper <- f.help(ctx, f, cancel) }()
	err := r.To(ctx, end)
	cancel()
	if helpErr := <-helper; helpErr != nil && err != nil {
		return helpErr
	}
	return beyond(err)
}

func (f *Follower) progress(position, end int64) {
	if now := time.Now(); f.help != nil && now.Sub(f.logged) > progressEvery {
		f.logged = now
		f.o.Logger.Info("replaying the changelog", "position", position, "end", end)
	}
	from := f.position.Load()
	// Records that are read again to find the view's step are not counted.
	if position = max(position, from); f.o.Local != nil {
		f.o.Metrics.Replayed(position - from)
	}
	f.position.Store(position)
	f.end.Store(end)
}

// beyond marks errors that trying again will not fix.
func beyond(err error) error {
	switch {
	case errors.Is(err, wire.ErrNewerFormat):
		return &Fatal{err}
	case errors.Is(err, wire.ErrCorrupt):
		return &Fatal{fmt.Errorf("%w; find the other program that writes to the changelog, and delete the record", err)}
	}
	return err
}

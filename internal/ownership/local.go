package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/replay"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// Local is the local view of a changelog, in the store.
type Local struct {
	Handle *statestore.Handle
	Slots  *semaphore.Weighted // of replays, which bound their memory
	Room   int                 // bytes that one replay takes in memory; 0: see replay.Replay
	// the changelog may be lost, unless the view can be read: only an operator gives that up
	AcceptLost bool
	Damage     error // why the view is wiped when it is next opened; nil: it can be read
	// Turns limits background replays, so that they never have all slots. A background replay works in parts
	// (backgroundPart), and gives its turn and its slot back after each. If the store does not keep up, it waits there,
	// and not with a turn. nil: an acquisition waits for the replay.
	Turns *semaphore.Weighted
}

// acquire takes the slot and the memory that a replay needs.
func (l *Local) acquire(ctx context.Context) error {
	if l.Turns == nil {
		return l.Slots.Acquire(ctx, 1)
	}
	if err := l.Turns.Acquire(ctx, 1); err != nil {
		return err
	}
	err := l.Slots.Acquire(ctx, 1)
	if err != nil {
		l.Turns.Release(1)
	}
	return err
}

func (l *Local) release() {
	l.Slots.Release(1)
	if l.Turns != nil {
		l.Turns.Release(1)
	}
}

// view is the view that a follower begins with.
type view struct {
	evidence
	from, end int64            // where it goes on, and the log's end at that time
	last      *wire.Checkpoint // below from
	begun     time.Time
	newest    time.Time // timestamp in the changelog when it began
}

// openLocal begins where the store's view ends. If the view is refuted, or why is not empty, it wipes
// the view and begins at the log's start.
func (f *Follower) openLocal(ctx context.Context, why string) (v view, err error) {
	local := f.o.Local
	if v.keeps, err = f.keepsNow(ctx); err != nil {
		return v, err
	}
	v.view, err = local.Handle.Meta()
	if err != nil && !statestore.IsCorrupt(err) && !errors.Is(err, statestore.ErrNewerFormat) {
		return v, fmt.Errorf("read the store: %w", err)
	}
	unreadable := errors.Join(err, local.Damage)
	if v.last, err = lastOf(&v.view); err != nil {
		return v, err
	}
	if v.last != nil {
		v.step = v.last.Step
	}
	v.log.id = f.log.ID
	start, stable, end, err := partlog.Bounds(ctx, f.o.Client, f.log)
	if err != nil {
		return v, err
	}
	v.log.start, v.log.end = start, end
	if v.newest, err = partlog.Newest(ctx, f.o.Client, f.log); err != nil {
		return v, err
	}
	partitions := f.o.Topics.Request.Partitions
	if why == "" {
		why = v.refuted()
	}
	if why == "" && unreadable == nil {
		switch counted, err := local.Handle.CountFor(partitions); {
		case err != nil:
			return v, fmt.Errorf("read the store: %w", err)
		case !counted:
			why = fmt.Sprintf("misplaced timers were counted for %d partitions, and the request topic has %d",
				v.view.Partitions, partitions)
		}
	}
	if why != "" && (!local.AcceptLost || unreadable == nil && v.view.Position >= 0) {
		if err := f.holdsSomething(ctx, start, stable, end); err != nil {
			return v, err
		}
	}
	if unreadable != nil {
		why = unreadable.Error()
	}
	if statestore.IsCorrupt(unreadable) {
		f.o.Logger.Error("local store damaged: wiping its view of the partition and replaying it",
			"err", unreadable)
		f.o.Metrics.Damaged()
	}
	if why != "" {
		f.o.Logger.Warn("wiping the local view of the partition", "reason", why)
		if err := local.Handle.Wipe(); err != nil {
			return v, fmt.Errorf("wipe the store: %w", err)
		}
		if _, err := local.Handle.CountFor(partitions); err != nil {
			return v, fmt.Errorf("count misplaced timers: %w", err)
		}
		local.Damage = nil
		v.view, v.last = statestore.Meta{Position: -1}, nil
	}
	v.begun, v.end, v.from = time.Now(), v.log.end, v.view.Position
	if v.from < 0 {
		v.from = v.log.start
	}
	return v, nil
}

// lastOf returns the last checkpoint of a view; nil if it has none.
func lastOf(m *statestore.Meta) (*wire.Checkpoint, error) {
	if len(m.Checkpoint) == 0 {
		return nil, nil
	}
	cp, err := wire.DecodeCheckpoint(m.Checkpoint)
	if err != nil {
		return nil, beyond(fmt.Errorf("stored checkpoint: %w", err))
	}
	return &cp, nil
}

// keepsNow asks for how long the changelog keeps deletions. It returns an error as long as no view can be
// built from a log with the topic's settings.
func (f *Follower) keepsNow(ctx context.Context) (time.Duration, error) {
	now, err := f.o.Settings.Now(ctx)
	if err == nil {
		err = now.Unusable(f.log.Topic)
	}
	return now.Keeps(), err
}

// holdsSomething checks, before a refuted view is wiped, that the changelog holds anything at all. If it
// does not, the view may be the last copy of the pending timers, and only an operator may
// give it up.
func (f *Follower) holdsSomething(ctx context.Context, start, stable, end int64) error {
	if _, found, err := f.checkpointBefore(ctx, start, stable); err != nil || found {
		return err
	}
	f.logged = time.Now() // an open transaction there may hold one
	r := replay.NewReplay(partlog.NewReader(f.o.Client, f.log, start), nothing{})
	err := f.run(ctx, r, end)
	switch {
	case err != nil || r.Last() != nil:
	case f.o.Local.AcceptLost:
		err = &Fatal{fmt.Errorf("changelog %v was lost, and accept-lost-changelog does not give up the timers of "+
			"%s/%d that the data directory still has: %s; "+
			"take accept-lost-changelog out again, or remove the directory to give them up", f.log,
			f.o.Topics.Request.Name, f.o.Partition, topics.LostAdvice)}
	default:
		err = LostChangelog(logOf(&f.o.Topics.Request, f.o.Partition), f.log, "the data directory has timers")
	}
	return err
}

// LostChangelog returns why a partition does not run if its changelog is empty although there is evidence that it was
// not.
func LostChangelog(requests, changelog partlog.Log, tells string) error {
	return &Fatal{fmt.Errorf("%s for %s/%d and changelog %s holds no checkpoint: the changelog was lost, and "+
		"pending timers with it: %s. "+
		"Only if no directory has them, start once with --accept-lost-changelog: the request log is read from its "+
		"start, so what has fired fires again, and what retention has deleted there is lost",
		tells, requests.Topic, requests.Partition, changelog.Topic, topics.LostAdvice)}
}

// intoLocal folds into the store. It holds one of the slots from when there is something to fetch until no more comes.
type intoLocal struct {
	*statestore.Replay // nil: no slot is held
	f                  *Follower
}

var _ replay.Fold = (*intoLocal)(nil)

// Hold implements replay.Fold: it acquires a slot.
func (i *intoLocal) Hold(ctx context.Context) (err error) {
	local := i.f.o.Local
	i.f.waiting.Store(true)
	defer i.f.waiting.Store(false)
	if err := local.acquire(ctx); err != nil {
		return err
	}
	if i.Replay, err = local.Handle.Replay(i.f.log.ID, i.f.view.newest); err != nil {
		local.release()
		return fmt.Errorf("open the store for replay: %w", err)
	}
	i.show(Replaying)
	return nil
}

// Rest implements replay.Fold: it gives the slot back.
func (i *intoLocal) Rest() {
	i.Close()
	i.Replay = nil
	i.show(Acquiring)
	i.f.o.Local.release()
}

func (i *intoLocal) show(s State) {
	if i.f.show != nil {
		i.f.show(s)
	}
}

func (i *intoLocal) Flush(at replay.Point) error {
	i.At(statestore.Mark{Named: at.Named, Epoch: int32(at.Epoch), Read: at.Read})
	return i.Replay.Flush(at.Position)
}

// lookBack is how many offsets of a log of checkpoints are read first. If they hold no checkpoint, lookMore times as
// many are read: a compacted log has few records.
const lookBack, lookMore = 1000, 8

// openCheckpoints begins before the last checkpoint that can be read now.
func (f *Follower) openCheckpoints(ctx context.Context) (v view, err error) {
	v.view.Position = -1
	start, stable, end, err := partlog.Bounds(ctx, f.o.Client, f.log)
	if err != nil {
		return v, err
	}
	v.end = end
	v.from, _, err = f.checkpointBefore(ctx, start, stable)
	return v, err
}

// checkpointBefore looks for the last checkpoint below an offset. It returns an offset at or before the checkpoint, or
// the start if there is none.
func (f *Follower) checkpointBefore(ctx context.Context, start, end int64) (from int64, found bool, err error) {
	for back := int64(lookBack); ; back *= lookMore {
		from = max(start, end-back)
		found, err = f.hasCheckpoint(ctx, from, end)
		if err != nil || found || from == start {
			return from, found, err
		}
	}
}

// hasCheckpoint reports whether a checkpoint is committed between two offsets. end is not above the last stable offset,
// so no open transaction makes it wait.
func (f *Follower) hasCheckpoint(ctx context.Context, from, end int64) (bool, error) {
	r := partlog.NewReader(f.o.Client, f.log, from)
	r.SetCompacted(true)
	for page, err := range r.To(ctx, end) {
		if err != nil {
			return false, fmt.Errorf("look for the last checkpoint: %w", err)
		}
		for _, rec := range page.Records {
			if kind, _, err := wire.ParseKey(rec.Key); err == nil && kind == wire.KindCheckpoint {
				return true, nil
			}
		}
	}
	return false, nil
}

// nothing is a fold that keeps nothing.
type nothing struct{}

func (nothing) Hold(context.Context) error            { return nil }
func (nothing) Put(_, _ []byte, _ *timer.Timer) error { return nil }
func (nothing) Delete([]byte) error                   { return nil }
func (nothing) Checkpoint([]byte) error               { return nil }
func (nothing) Flush(replay.Point) error              { return nil }
func (nothing) Rest()                                 {}

// noTimers is the fold of a log that holds only checkpoints and claims.
type noTimers struct{ nothing }

var _ replay.Fold = noTimers{}

func (noTimers) Put([]byte, []byte, *timer.Timer) error { return errTimer }
func (noTimers) Delete([]byte) error                    { return errTimer }

var errTimer = fmt.Errorf("unexpected timer: %w", wire.ErrCorrupt)

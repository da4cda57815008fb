package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// Local is the local view of a changelog: what the store holds of the partition.
type Local struct {
	Handle *statestore.Handle
	Slots  *semaphore.Weighted // of replays, which bound their memory
	// MaxAbsence is how old a view may be: half of delete.retention.ms.
	MaxAbsence time.Duration
	AcceptLost bool  // the changelog may be lost
	Damage     error // why the view is wiped when it is opened next; nil: it can be read
	// Opened, unless it is nil, is called when it is known that the view is used.
	Opened func(context.Context) error
}

// view is what a follower begins with.
type view struct {
	from, end int64                   // where it goes on, and the log's end at that time
	last      *delaytopics.Checkpoint // below from
	// empty: it begins with nothing, at begun; otherwise inSync says how old it was.
	empty  bool
	begun  time.Time
	inSync time.Time
	newest time.Time // timestamp in the changelog when it began
}

// openLocal begins where the store's view ends.
func (f *Follower) openLocal(ctx context.Context, why string) (v view, err error) {
	local := f.o.Local
	meta, err := local.Handle.Meta()
	if err != nil && !statestore.IsCorrupt(err) && !errors.Is(err, statestore.ErrNewerFormat) {
		return v, fmt.Errorf("read the store: %w", err)
	}
	unreadable := errors.Join(err, local.Damage)
	start, _, end, err := partlog.Bounds(ctx, f.o.Client, f.log)
	if err != nil {
		return v, err
	}
	newest, err := partlog.Newest(ctx, f.o.Client, f.log)
	if err != nil {
		return v, err
	}
	untrusted := f.untrusted(meta, start, end)
	if why == "" {
		why = untrusted
	}
	if unreadable != nil {
		why = unreadable.Error()
	}
	if statestore.IsCorrupt(unreadable) {
		f.o.Logger.Error("the local store is damaged: wiping what it holds of the partition and replaying it", "err", unreadable)
		f.o.Metrics.Damaged()
	}
	if untrusted != "" && !local.AcceptLost {
		if err := f.holdsSomething(ctx, start, end); err != nil {
			return v, err
		}
	}
	if why != "" {
		f.o.Logger.Warn("wiping the local view of the partition", "reason", why)
		if err := local.Handle.Wipe(); err != nil {
			return v, fmt.Errorf("wipe the store: %w", err)
		}
		local.Damage = nil
		meta = statestore.Meta{Position: -1}
	}
	if local.Opened != nil {
		if err := local.Opened(ctx); err != nil {
			return v, err
		}
	}
	return viewOf(meta, start, end, newest)
}

func viewOf(meta statestore.Meta, start, end int64, newest time.Time) (view, error) {
	v := view{from: meta.Position, end: end, empty: meta.Position < 0, begun: time.Now(), inSync: meta.InSync, newest: newest}
	if v.empty {
		v.from = start
	} else if len(meta.Checkpoint) > 0 {
		cp, err := delaytopics.DecodeCheckpoint(meta.Checkpoint)
		if err != nil {
			return v, beyond(fmt.Errorf("stored checkpoint: %w", err))
		}
		v.last = &cp
	}
	return v, nil
}

// untrusted says why the local view must not be used, "" if it may, as far as it
// can be told before the claim.
func (f *Follower) untrusted(m statestore.Meta, start, end int64) string {
	switch {
	case m.Position < 0:
		return ""
	case m.Changelog != f.log.ID:
		return "the changelog was recreated"
	case m.Position > end:
		return fmt.Sprintf("its position %d lies beyond the changelog's end %d", m.Position, end)
	case m.Position < start:
		return fmt.Sprintf("its position %d lies before the changelog's start %d", m.Position, start)
	}
	return ""
}

// holdsSomething sees to it that a changelog which is not what the local view is of,
// being another one or having lost what the view has seen, holds anything at all. If it
// does not, that view may be the last that is left of the pending timers, and is not
// wiped before an operator says so.
func (f *Follower) holdsSomething(ctx context.Context, start, end int64) error {
	f.said = time.Now()
	r := delaytopics.NewReplay(partlog.NewReader(f.o.Client, f.log, start), nothing{}, nil)
	err := f.run(ctx, r, end)
	if err == nil && r.Last() == nil {
		err = LostChangelog(logOf(&f.o.Topics.Request, f.o.Partition), f.log, "the data directory has timers")
	}
	return err
}

// LostChangelog is why a partition does not run whose changelog holds nothing,
// though something tells that it did.
func LostChangelog(requests, changelog partlog.Log, tells string) error {
	return &Fatal{fmt.Errorf("%s for %s/%d and changelog %s holds no checkpoint: the changelog was lost, and pending timers with it: %s. "+
		"Only if no directory has them, start once with --accept-lost-changelog: the request log is read from its start, so what has fired fires again, and what retention has deleted there is lost",
		tells, requests.Topic, requests.Partition, changelog.Topic, delaytopics.LostAdvice)}
}

// intoLocal folds into the store. It has one of the slots from when there is something to
// be fetched until nothing comes any more.
type intoLocal struct {
	f    *Follower
	sink *statestore.Replay // nil: no slot is held
}

// Hold implements delaytopics.Fold: it acquires a slot.
func (i *intoLocal) Hold(ctx context.Context) (err error) {
	local := i.f.o.Local
	i.f.waiting.Store(true)
	defer i.f.waiting.Store(false)
	if err := local.Slots.Acquire(ctx, 1); err != nil {
		return err
	}
	if i.sink, err = local.Handle.Replay(i.f.log.ID, i.f.view.newest); err != nil {
		local.Slots.Release(1)
		return fmt.Errorf("open the store for replay: %w", err)
	}
	i.show(Replaying)
	return nil
}

// Rest implements delaytopics.Fold: it gives the slot back.
func (i *intoLocal) Rest() {
	i.sink.Close()
	i.sink = nil
	i.show(Acquiring)
	i.f.o.Local.Slots.Release(1)
}

func (i *intoLocal) show(s State) {
	if i.f.by != nil {
		i.f.by.SetState(s)
	}
}

// Put implements delaytopics.Fold.
func (i *intoLocal) Put(id, value []byte, t *timer.Timer) error { return i.sink.Put(id, value, t) }

// Delete implements delaytopics.Fold.
func (i *intoLocal) Delete(id []byte) error { return i.sink.Delete(id) }

// Checkpoint implements delaytopics.Fold.
func (i *intoLocal) Checkpoint(raw []byte) error { return i.sink.Checkpoint(raw) }

// Flush implements delaytopics.Fold.
func (i *intoLocal) Flush(position int64) error { return i.sink.Flush(position) }

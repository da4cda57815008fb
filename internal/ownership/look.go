package ownership

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/wire"
)

const (
	// tailWait is the pause between two fetches that look at the tail and bring nothing. It
	// grows to a tailWaitShare-th of the time that the look has taken, tailWaitMax at most.
	tailWait, tailWaitMax = 20 * time.Millisecond, time.Second
	tailWaitShare         = 16
	// tailSaid is how often the log says that a look does not get to the end.
	tailSaid = 10 * time.Second
	// tailEvery is how often a partition that is idle compares the end of its
	// changelog with what it knows, and peekTimeout bounds that.
	tailEvery, peekTimeout = time.Minute, 5 * time.Second
)

// tailWatch looks at the end of the changelog: when the Steps are in doubt, and from time to time while they are
// idle. It waits for nothing itself; aside runs what does.
type tailWatch struct {
	o       *Options
	log     *slog.Logger
	failure *failure
	steps   *Steps
	aside   func(func())
}

// peek has an idle partition notice that somebody else has written to its
// changelog: a step of its own would tell.
func (w *tailWatch) peek(ctx context.Context) {
	if !w.steps.idleFor(tailEvery) {
		return
	}
	w.aside(func() {
		ctx, cancel := context.WithTimeout(ctx, peekTimeout)
		defer cancel()
		if _, _, end, err := partlog.Bounds(ctx, w.o.Client, w.o.changelog()); err == nil {
			w.steps.endsAt(end)
		}
	})
}

// look begins a look if there is doubt and none is under way. There is none while the leader is
// away: its successor shows what its followers have, so at first less than
// there is, and what is sealed on that word is aborted again.
func (w *tailWatch) look(ctx context.Context) {
	from, start := w.steps.beginLook()
	if !start {
		return
	}
	w.aside(func() {
		at, err := w.readTail(ctx, from)
		if err != nil {
			w.failure.giveUp(err)
			return
		}
		w.steps.known(at)
		w.o.Lanes.Wake()
	})
}

// readTail reads the changelog from an offset to its end, and returns the end. A
// claim that it meets, not being ours, ends the partition once it is committed.
//
// The end is where the leader writes next, not the high watermark. A step of ours that was
// given up while a replica was dying may have left records that are shown only when that
// replica is out of the ISR. The next step stands behind them: without waiting for them it
// would be taken for one that stands behind a claim, and be aborted.
func (w *tailWatch) readTail(ctx context.Context, from int64) (int64, error) {
	claimed := int64(-1)
	note := func(rec *kgo.Record) error {
		if kind, _, err := wire.ParseKey(rec.Key); err == nil && kind == wire.KindClaim {
			claimed = rec.Offset
		}
		return nil
	}
	written := partlog.NewReader(w.o.Client, w.o.changelog(), from)
	written.SetUncommitted()
	err := w.eachOfTail(ctx, written, func() (int64, error) { return partlog.End(ctx, w.o.Client, w.o.changelog()) }, note)
	if err == nil && claimed >= 0 {
		err = w.eachOfTail(ctx, partlog.NewReader(w.o.Client, w.o.changelog(), from), func() (int64, error) { return claimed + 1, nil }, w.overtaken)
	}
	return written.Position(), err
}

// eachOfTail reads up to an offset, which is asked for again when nothing comes: a new
// leader may have less than the one before. It fetches at least once, also where there is
// nothing to read: if the log has lost its end, from is not in it, and only a fetch says so.
func (w *tailWatch) eachOfTail(ctx context.Context, r *partlog.Reader, upTo func() (int64, error), take func(*kgo.Record) error) error {
	r.SetCompacted(true)
	end, err := upTo()
	begun, said := time.Now(), time.Now()
	for read := false; err == nil && (!read || r.Position() < end); read = true {
		at := r.Position()
		var page partlog.Page
		if page, err = r.Next(ctx, 0); err != nil {
			break
		}
		for _, rec := range page.Records {
			if err := take(rec); err != nil {
				return err
			}
		}
		if r.Position() > at || r.Position() >= end {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(tailWaitMax, max(tailWait, time.Since(begun)/tailWaitShare))):
		}
		if time.Since(said) > tailSaid {
			said = time.Now()
			r.LookAgain()
			w.log.Warn("cannot read the end of the changelog yet: replicas lack it, or somebody else has claimed the partition in a transaction that is open", "offset", r.Position(), "end", end)
		}
		end, err = upTo()
	}
	if err != nil {
		return fmt.Errorf("look at the end of the changelog: %w", err)
	}
	return nil
}

// overtaken returns why the partition must end if rec is a claim.
func (w *tailWatch) overtaken(rec *kgo.Record) error {
	kind, _, err := wire.ParseKey(rec.Key)
	if err != nil {
		return beyond(fmt.Errorf("changelog record %d: %w", rec.Offset, err))
	}
	if kind != wire.KindClaim {
		return nil
	}
	c, err := wire.DecodeClaim(rec.Value)
	if err != nil {
		return beyond(fmt.Errorf("changelog record %d: %w", rec.Offset, err))
	}
	if c.Group != w.o.Group {
		return w.o.otherGroup(c.Group)
	}
	err = fmt.Errorf("%s has claimed %v meanwhile", c.Owner, w.o.requests())
	w.o.Token.Refused(err)
	return err
}

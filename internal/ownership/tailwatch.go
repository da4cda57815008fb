package ownership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// tailWait is the pause after a fetch of the tail that brought nothing. It grows to a tailWaitShare-th of the time
	// that the look has taken, up to tailWaitMax.
	tailWait, tailWaitMax = 20 * time.Millisecond, time.Second
	tailWaitShare         = 16
	// tailSaid is how often the log says that a look does not reach the end.
	tailSaid = 10 * time.Second
	// tailEvery is how often an idle partition compares the end of its changelog with what it knows. peekTimeout bounds
	// that.
	tailEvery, peekTimeout = time.Minute, 5 * time.Second
)

// tailWatch looks at the end of the changelog if the Steps are in doubt, and from time to time while they are idle.
// aside starts the goroutines for what blocks.
type tailWatch struct {
	o       *Options
	log     *slog.Logger
	failure *failure
	steps   *Steps
	aside   func(func())
}

// peek makes an idle partition notice that another owner has written to its changelog, or that the changelog has lost
// its end. A busy one notices by its own steps.
func (tw *tailWatch) peek(ctx context.Context) {
	if !tw.steps.idleFor(tailEvery) {
		return
	}
	tw.aside(func() {
		ctx, cancel := context.WithTimeout(ctx, peekTimeout)
		defer cancel()
		acked := tw.steps.acked()
		if _, _, end, err := partlog.Bounds(ctx, tw.o.Client, tw.o.changelog()); err == nil {
			tw.steps.endsAt(end, acked)
		}
	})
}

// look begins a look if there is doubt and no look is under way. It waits until there is a leader again. A new leader
// first shows only what its followers have, which may be less than there is. A step that is sealed on that basis would
// be aborted, because it stands behind records that the look has not seen.
func (tw *tailWatch) look(ctx context.Context) {
	t, start := tw.steps.beginLook()
	if !start {
		return
	}
	tw.aside(func() {
		tw.log.Debug("looking at the end of the changelog", "because", t.doubt)
		at, leader, err := tw.readTail(ctx, &t)
		if err != nil {
			tw.failure.giveUp(err)
			return
		}
		tw.steps.known(at, leader)
		tw.o.Lanes.Wake()
	})
}

// readTail reads the changelog from our last record to its end. It returns the end, and the epoch of the leader that
// had all of this. What the last look has read under the same leader is not read again. If our record is no longer
// there, the log was cut; if there is nothing at all at its place, that is believed after partlog.CutAfter. If it meets
// a foreign claim, it waits for the end of that; a committed claim ends the partition.
//
// The end is where the leader writes next, not the high watermark. If a step of ours was given up while a replica was
// dying, it may have left records that are shown only when that replica is out of the ISR. The next step stands behind
// them. Without waiting for them it would look as if a claim stood before it, and be aborted.
func (tw *tailWatch) readTail(ctx context.Context, t *tail) (at int64, leader partlog.Epoch, err error) {
	log, ours := tw.o.changelog(), t.acked-1
	uncommitted := partlog.NewReader(tw.o.Client, log, ours)
	uncommitted.SetUncommitted()
	uncommitted.SetMaxBytes(1)             // one batch: the rest may be known
	ourLast, others := false, false        // what was found
	first, claimed := int64(-1), int64(-1) // claims
	note := func(rec *kgo.Record) error {
		uncommitted.SetMaxBytes(partlog.MaxBytes)
		if rec.Offset == ours && bytes.Equal(rec.Value, t.last) {
			if ourLast = true; uncommitted.Leader() == t.readEpoch {
				uncommitted.SetPosition(max(uncommitted.Position(), t.seen))
			}
			return nil
		}
		others = true
		if kind, _, err := wire.ParseKey(rec.Key); err == nil && kind == wire.KindClaim {
			if claimed = rec.Offset; first < 0 {
				first = rec.Offset
			}
		}
		return nil
	}
	for nothing := (time.Time{}); ; uncommitted.LookAgain() {
		leader, err = tw.eachOfTail(ctx, uncommitted, uncommitted.End, note)
		if err != nil || ourLast || others || isOver(&nothing) {
			break
		}
		if !beats.Sleep(ctx, tailWaitMax) {
			return 0, 0, ctx.Err()
		}
		uncommitted.SetPosition(ours)
	}
	if err == nil && claimed >= 0 {
		_, err = tw.eachOfTail(ctx, partlog.NewReader(tw.o.Client, log, first),
			func(context.Context) (int64, error) { return claimed + 1, nil }, tw.overtaken)
	}
	if err == nil && !ourLast {
		err = fmt.Errorf("%w: our last one is no longer at offset %d", errCut, ours)
	}
	return uncommitted.Position(), leader, err
}

// isOver reports whether partlog.CutAfter has passed since the first call with this time.
func isOver(first *time.Time) bool {
	if first.IsZero() {
		*first = time.Now()
	}
	return time.Since(*first) > partlog.CutAfter
}

// eachOfTail calls take for each record up to an offset, and returns the lowest epoch among the leaders that gave the
// offset or the records. It asks for the offset again if nothing comes, because a new leader may have less than the one
// before. It fetches at least once, even if there is nothing to read: if the log has lost its end, only a fetch says
// that the position is not in the log. That is believed after partlog.CutAfter.
func (tw *tailWatch) eachOfTail(ctx context.Context, r *partlog.Reader, upTo func(context.Context) (int64, error),
	take func(*kgo.Record) error) (leader partlog.Epoch, err error) {
	r.SetCompacted(true)
	end, err := upTo(ctx)
	leader = r.Leader()
	begun, said, missing := time.Now(), time.Now(), time.Time{}
	for read := false; err == nil && (!read || r.Position() < end); {
		at := r.Position()
		read = false
		var page partlog.Page
		page, err = r.Next(ctx, 0)
		if errors.Is(err, partlog.ErrOutOfRange) && !isOver(&missing) {
			r.LookAgain()
		} else if read = true; err != nil {
			break
		} else {
			leader = min(leader, r.Leader())
		}
		for _, rec := range page.Records {
			if err := take(rec); err != nil {
				return leader, err
			}
		}
		if read && (r.Position() > at || r.Position() >= end) {
			continue
		}
		if !beats.Sleep(ctx, min(tailWaitMax, max(tailWait, time.Since(begun)/tailWaitShare))) {
			return leader, ctx.Err()
		}
		if time.Since(said) > tailSaid {
			said = time.Now()
			r.LookAgain()
			tw.log.Warn("cannot read the end of the changelog yet: replicas lack it, or another owner has claimed "+
				"the partition in an open transaction", "offset", r.Position(), "end", end)
		}
		end, err = upTo(ctx)
		leader = min(leader, r.Leader())
	}
	if err != nil {
		return leader, fmt.Errorf("look at the end of the changelog: %w", err)
	}
	return leader, nil
}

// overtaken returns why the partition must end if rec is a claim.
func (tw *tailWatch) overtaken(rec *kgo.Record) error {
	var c wire.Claim
	kind, _, err := wire.ParseKey(rec.Key)
	if err == nil && kind == wire.KindClaim {
		c, err = wire.DecodeClaim(rec.Value)
	}
	switch {
	case err != nil:
		return beyond(fmt.Errorf("changelog record %d: %w", rec.Offset, err))
	case kind != wire.KindClaim:
		return nil
	case c.Group != tw.o.Group:
		return tw.o.otherGroup(c.Group)
	}
	err = fmt.Errorf("%s has claimed %v meanwhile", c.Owner, tw.o.requests())
	tw.o.Token.Refused(err)
	return err
}

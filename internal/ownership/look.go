package ownership

import (
	"context"
	"fmt"
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
	// doubtShown is from when on a doubt is shown: it mostly is over at once.
	doubtShown = time.Second
)

// Look sees to all that is to be looked up while the partition is served: the end of its
// changelog, in doubt or from time to time, and a batch that intake does not get past. It
// waits for nothing.
func (l *Life) Look(ctx context.Context) {
	l.peekAtTail(ctx)
	l.lookAtTail(ctx)
	l.lookAtOversized(ctx)
}

// followTail notes how a step of ours has ended. Mu is held.
func (l *Life) followTail(records []*kgo.Record) {
	if err := l.Tail.check(records); err != nil {
		l.Tail.distrust()
		l.Log.Debug("looking at the end of the changelog", "err", err)
		l.Kick()
		return
	}
	l.Tail.passed(records)
}

// peekAtTail has an idle partition notice that somebody else has written to its
// changelog: a step of its own would tell.
func (l *Life) peekAtTail(ctx context.Context) {
	l.Mu.Lock()
	idle := !l.Tail.doubt && time.Since(l.Tail.at) > tailEvery
	if idle {
		l.Tail.at = time.Now()
	}
	l.Mu.Unlock()
	if !idle {
		return
	}
	l.Aside(func() {
		ctx, cancel := context.WithTimeout(ctx, peekTimeout)
		defer cancel()
		_, _, end, err := partlog.Bounds(ctx, l.o.Client, l.Changelog())
		if err != nil {
			return
		}
		l.Mu.Lock()
		defer l.Mu.Unlock()
		if end > l.Tail.next && !l.inFlight {
			l.Tail.distrust()
		}
	})
}

// lookAtTail sees to it that somebody looks while there is doubt. Where the leader is
// away nobody does: its successor shows what its followers have, so at first less than
// there is, and what is sealed on that word is aborted again.
func (l *Life) lookAtTail(ctx context.Context) {
	l.Mu.Lock()
	start := l.Tail.doubt && !l.Tail.look
	if start {
		l.leaderless = l.o.Targets.Stalled(l.o.Topics.Changelog.Name, l.o.Partition)
		start = !l.leaderless
	}
	from := l.Tail.seen
	l.Tail.look = l.Tail.look || start
	l.Mu.Unlock()
	if !start {
		return
	}
	l.Aside(func() {
		at, err := l.readTail(ctx, from)
		if err != nil {
			l.GiveUp(err)
			return
		}
		l.Mu.Lock()
		l.Tail.Known(at)
		l.Mu.Unlock()
		l.o.Lanes.Wake()
	})
}

// readTail reads the changelog from an offset to its end, and returns the end. A
// claim that it meets, not being ours, ends the partition once it is committed.
//
// The end is where the leader writes next, not the high watermark. A step of ours that was
// given up while a replica was dying may have left records that are shown only when that
// replica is out of the ISR. The next step stands behind them: without waiting for them it
// would be taken for one that stands behind a claim, and be aborted.
func (l *Life) readTail(ctx context.Context, from int64) (int64, error) {
	claimed := int64(-1)
	note := func(rec *kgo.Record) error {
		if kind, _, err := wire.ParseKey(rec.Key); err == nil && kind == wire.KindClaim {
			claimed = rec.Offset
		}
		return nil
	}
	written := partlog.NewReader(l.o.Client, l.Changelog(), from)
	written.SetUncommitted()
	err := l.eachOfTail(ctx, written, func() (int64, error) { return partlog.End(ctx, l.o.Client, l.Changelog()) }, note)
	if err == nil && claimed >= 0 {
		err = l.eachOfTail(ctx, partlog.NewReader(l.o.Client, l.Changelog(), from), func() (int64, error) { return claimed + 1, nil }, l.overtaken)
	}
	return written.Position(), err
}

// eachOfTail reads up to an offset, which is asked for again when nothing comes: a new
// leader may have less than the one before. It fetches at least once, also where there is
// nothing to read: if the log has lost its end, from is not in it, and only a fetch says so.
func (l *Life) eachOfTail(ctx context.Context, r *partlog.Reader, upTo func() (int64, error), take func(*kgo.Record) error) error {
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
			l.Log.Warn("cannot read the end of the changelog yet: replicas lack it, or somebody else has claimed the partition in a transaction that is open", "offset", r.Position(), "end", end)
		}
		end, err = upTo()
	}
	if err != nil {
		return fmt.Errorf("look at the end of the changelog: %w", err)
	}
	return nil
}

// overtaken returns why the partition must end if rec is a claim.
func (l *Life) overtaken(rec *kgo.Record) error {
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
	if c.Group != l.o.Group {
		return l.otherGroup(c.Group)
	}
	err = fmt.Errorf("%s has claimed %v meanwhile", c.Owner, l.Requests())
	l.o.Token.Refused(err)
	return err
}

// otherGroup is why a partition ends whose changelog another group has written to
// last.
func (l *Life) otherGroup(group string) error {
	return &Fatal{l.o.Topics.OtherGroup(group, l.o.Group)}
}

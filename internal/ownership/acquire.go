package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/topics"
	"github.com/waterclock/waterclock/internal/transaction"
	"github.com/waterclock/waterclock/internal/wire"
)

const (
	// stablePoll is the pause between two looks at an unstable offset.
	stablePoll = 5 * time.Millisecond
	// hangingAfter is how long an acquisition waits for others' open transactions
	// before it looks whose they are and ends those of an owner that is gone.
	hangingAfter = 200 * time.Millisecond
	// fetchWait is how long a fetch of an acquisition waits at the broker for data.
	fetchWait = 5 * time.Millisecond
	// behindPatience is how long a leader may show less of a log than has been read,
	// and behindPause the pause between two questions.
	behindPatience = 10 * time.Second
	behindPause    = 200 * time.Millisecond
	// hangingSaid is how often it is said that others' transactions cannot be
	// looked at.
	hangingSaid = 10 * time.Second
)

// Acquired is what an acquisition has found.
type Acquired struct {
	Last      wire.Checkpoint // before the claim
	Committed int64           // the group's offset, which is a fence alone; -1: there was none
	Now       time.Time       // at the brokers when they took the claim
}

// Acquire makes this process the partition's owner, see the package comment for the order.
// f goes on from where it stands; afterwards it has folded all that earlier owners have
// committed. begin says where a partition begins whose log holds no checkpoint, and
// whether it may. The lane seals nothing but the claim before Own is called.
func (l *Life) Acquire(ctx context.Context, f *Follower, begin func(ctx context.Context, committed int64) (int64, error)) (a Acquired, err error) {
	if err := l.sameTopics(ctx); err != nil {
		return a, err
	}
	committed, note, err := l.stableOffset(ctx)
	if err != nil {
		return a, err
	}
	if err := l.samePartitions(note); err != nil {
		return a, err
	}
	l.found.Store(&note)
	l.follower.Store(f)
	f.by = l
	defer func() { f.by = nil }()
	c, err := l.claimBehind(ctx, f, committed, lastStep(note), begin)
	if err != nil {
		return a, err
	}
	now, err := l.toClaim(ctx, f, c)
	if err != nil {
		return a, err
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.Tail.Known(c.behind())
	return Acquired{Last: *f.Last(), Committed: committed, Now: now}, nil
}

// claimBehind claims the partition directly behind what was folded of the
// changelog. What comes between the two is folded first, and looked at.
func (l *Life) claimBehind(ctx context.Context, f *Follower, committed int64, step string, begin func(context.Context, int64) (int64, error)) (*claim, error) {
	for {
		if err := f.ToEnd(ctx); err != nil {
			return nil, err
		}
		at, err := l.claimPosition(ctx, f.Last(), committed, begin)
		if err != nil {
			return nil, err
		}
		c := &claim{
			l: l, note: wire.CommitNote{Last: step}, at: at, first: f.Last() == nil,
			end: f.replay.Position(), done: make(chan transaction.Outcome, 1),
		}
		if o, err := l.makeClaim(ctx, c); err != nil || o == transaction.Committed {
			return c, err
		}
	}
}

// claimPosition returns the position that the claim's offset commit must carry.
// Who has written last to the changelog says which group is served, also where
// an offset of ours is committed: another group may have taken over since.
func (l *Life) claimPosition(ctx context.Context, last *wire.Checkpoint, committed int64, begin func(context.Context, int64) (int64, error)) (int64, error) {
	switch {
	case last == nil:
		return begin(ctx, committed)
	case last.Group != l.o.Group && !l.o.AcceptGroup:
		return 0, l.otherGroup(last.Group)
	case committed < 0:
		l.Log.Warn("no offset is committed for the group, the changelog's checkpoint decides", "position", last.Position)
		return last.Position, nil
	}
	return committed, nil
}

// toClaim folds up to the claim, and returns the time that the broker gave it. A view that
// turns out to be too old by then is folded again.
func (l *Life) toClaim(ctx context.Context, f *Follower, c *claim) (now time.Time, err error) {
	for {
		now = time.Time{}
		f.claimed = func(x wire.Claim) {
			if x.Step == c.note.Step {
				now = time.UnixMilli(x.Appended)
				l.metrics.Stamped(c.sealed, c.settled, now)
			}
		}
		if err := f.to(ctx, c.behind()); err != nil {
			return now, err
		}
		if now.IsZero() || f.Last() == nil {
			return now, fmt.Errorf("the claim of %v is gone: somebody else has claimed the partition", l.Requests())
		}
		why, err := f.stale(ctx, now)
		if err != nil || why == "" {
			return now, err
		}
		if err := f.open(ctx, why); err != nil {
			return now, err
		}
	}
}

// stableOffset fetches the committed offset, waiting for the end of a former
// owner's accepted step, and helping it to one if that owner is gone.
func (l *Life) stableOffset(ctx context.Context) (at int64, note wire.CommitNote, err error) {
	o := transaction.StableOffset{
		Client: l.o.Client, Group: l.o.Group, Member: l.o.Token.Member,
		Topic: l.o.Topics.Request.Name, TopicID: l.o.Topics.Request.ID, Partition: l.o.Partition,
	}
	help := time.Now().Add(hangingAfter)
	for {
		at, metadata, err := o.Fetch(ctx)
		if err == nil && at >= 0 {
			if note, err = wire.ParseCommitNote(metadata); err != nil {
				l.Log.Warn("the group's committed offset was not written by waterclock; the changelog decides", "err", err)
			}
			return at, note, nil
		}
		if !errors.Is(err, kerr.UnstableOffsetCommit) {
			return at, note, err
		}
		if time.Now().After(help) {
			if err := l.endHanging(ctx, true); err != nil {
				return 0, note, err
			}
			help = time.Now().Add(hangingAfter)
		}
		select {
		case <-ctx.Done():
			return 0, note, ctx.Err()
		case <-l.failed:
			return 0, note, l.Failure()
		case <-time.After(stablePoll):
		}
	}
}

// help ends transactions that hold up a replay. It ends with ctx, or with an
// error after calling stop. Where the leader is away it is not they: each look asks
// every broker, and many partitions may wait for one that died.
func (l *Life) help(ctx context.Context, f *Follower, stop func()) error {
	t := time.NewTicker(hangingAfter)
	defer t.Stop()
	last := f.position.Load()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		now := f.position.Load()
		if now != last || f.waiting.Load() || l.o.Targets.Stalled(l.o.Topics.Changelog.Name, l.o.Partition) {
			last = now
			continue
		}
		if err := l.endHanging(ctx, false); err != nil {
			stop()
			return err
		}
	}
}

// endHanging ends what a former owner left open. offsets: the committed offset
// is what is waited for. Whether it works or not, whoever waits goes on waiting;
// it returns only what an operator must end.
func (l *Life) endHanging(ctx context.Context, offsets bool) error {
	n, err := hanging.End(ctx, hanging.Options{
		Client: l.o.Client, Group: l.o.Group, Topic: l.o.Topics.Changelog.Name, Partition: l.o.Partition,
		Offsets: offsets, Markers: l.o.Markers, Committed: l.committed, Logger: l.Log,
	})
	if n > 0 {
		l.metrics.Ended(n)
	}
	if errors.Is(err, hanging.ErrForeignTransaction) {
		return err
	}
	if err != nil && ctx.Err() == nil && time.Since(l.hangingSaid) > hangingSaid {
		l.hangingSaid = time.Now()
		l.Log.Warn("waiting for the end of a transaction, and cannot look after it", "err", err)
	}
	return nil
}

// ReadFrom says where what is owned is to be read on behind a checkpoint: at its position,
// or where retention has left its begin. end is the log's, the high watermark. What
// it counts as lost are offsets: markers of transactions and records of aborted ones among
// them were no requests, and nothing is left that could tell.
//
// Of a log that was cut below the position, and has grown again beyond, what stands below
// the position now is not read. An offset that is settled names a generation for ever, in
// rows, in events, in what consumers deduplicate by; a second request there would be taken for
// the first. So it is said as loudly as possible: an operator knows who can send again.
func (l *Life) ReadFrom(ctx context.Context, last *wire.Checkpoint) (at, end int64, err error) {
	from, epoch := last.Position, last.Epoch
	start, end, cut, err := l.boundsFrom(ctx, from, epoch)
	switch {
	case err != nil:
		return 0, 0, err
	case from > end:
		return 0, 0, &Fatal{topics.LostTail(from, l.Requests(), end)}
	case from < start:
		l.Log.Error("requests were lost to retention before they were read; count has markers of transactions and aborted records in it", "from", from, "to", start, "count", start-from)
		l.metrics.Lost(l.o.Topics.Request.Name, start-from)
		from, epoch = start, 0
	case cut < from:
		l.sayCut(max(cut, start), from)
		epoch = 0 // what is below from now is of another one
	}
	l.epochs.begin(from, epoch)
	return from, end, nil
}

// sayCut says that requests are settled which the log holds no more, and that of those that
// are in their place none is read. The next checkpoint ends that.
func (l *Life) sayCut(from, to int64) {
	why := fmt.Sprintf("%v was cut at offset %d and has grown again: requests up to %d were settled before, and what stands at these offsets now is not read; see \"A request log that lost its tail\" in docs/OPERATIONS.md",
		l.Requests(), from, to)
	l.Log.Error("a log lost requests that are settled, and holds others in their place that are not read: send those again", "from", from, "to", to, "why", why)
	l.metrics.Cut(l.o.Topics.Request.Name, to-from)
	l.warning.Store(&why)
}

// boundsFrom asks where what is owned begins and ends, and below which offset it still is as
// it was when it was read up to from, in an epoch. It asks again for some time where that is
// before from: a leader that was unresponsive, and wakes, shows the log without its end
// until it hears that others have taken over.
func (l *Life) boundsFrom(ctx context.Context, from int64, epoch partlog.Epoch) (start, end, same int64, err error) {
	for patience := time.Now().Add(behindPatience); ; {
		start, _, end, err = partlog.Bounds(ctx, l.o.Client, l.Requests())
		if same = end; err == nil && epoch > 0 {
			same, err = partlog.EpochEnd(ctx, l.o.Client, l.Requests(), epoch)
		}
		if err != nil || from <= min(end, same) || time.Now().After(patience) {
			return start, end, same, err
		}
		select {
		case <-ctx.Done():
			return 0, 0, 0, ctx.Err()
		case <-time.After(behindPause):
		}
	}
}

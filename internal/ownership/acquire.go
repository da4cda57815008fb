package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// stablePoll is the pause between two looks at an unstable offset.
	stablePoll = 5 * time.Millisecond
	// hangingAfter is how long an acquisition waits for open transactions of others before it looks whose they are,
	// and ends those of an owner that is gone.
	hangingAfter = 200 * time.Millisecond
	// hangingSaid is how often the log says that transactions of others cannot be looked at.
	hangingSaid = 10 * time.Second
)

// Acquired is what an acquisition has found.
type Acquired struct {
	Last      wire.Checkpoint // before the claim
	Committed int64           // the group's offset, which is only a fence; -1: there was none
	Step      string          // the step that committed it together with a checkpoint; "": not known
	Now       time.Time       // the brokers' time when they took the claim
	Claimed   Claimed         // for Life.Own
}

// Claimed is the last record of our claim as it was read back from the changelog. Below it stands no foreign claim that
// was not replayed.
type Claimed struct {
	Behind int64         // the offset behind it
	Value  []byte        // unlike that of any other record
	Leader partlog.Epoch // the epoch in which it was written, not that of the leader that served the read
}

// acquirer makes this process a partition's owner, any number of times. One acquisition is under way at a time.
type acquirer struct {
	o       *Options
	log     *slog.Logger
	metrics Metrics
	failure *failure
	steps   *Steps
	records *Records
	show    func(State)

	cannotLook beats.Reminder // that others' transactions cannot be looked at

	// The following fields are safe for concurrent use.
	found    atomic.Pointer[wire.CommitNote] // the note of the committed offset when the acquisition began
	follower atomic.Pointer[Follower]        // of the last acquisition
	unended  atomic.Bool                     // the acquisition waits for the end of a transaction of a former owner
}

// acquire is Life.Acquire.
func (a *acquirer) acquire(ctx context.Context, f *Follower,
	begin func(ctx context.Context, committed int64) (int64, error)) (got Acquired, err error) {
	defer a.unended.Store(false)
	var committed int64
	var note wire.CommitNote
	// neither changes anything, and both have passed before anything else happens
	asking, both := errgroup.WithContext(ctx)
	asking.Go(func() error { return sameTopics(both, a.o) })
	asking.Go(func() (err error) { committed, note, err = a.stableOffset(both); return err })
	if err := asking.Wait(); err != nil {
		return got, err
	}
	a.unended.Store(false)
	if err := samePartitions(a.o, note); err != nil {
		return got, err
	}
	a.found.Store(&note)
	a.follower.Store(f)
	f.help, f.show = a.help, a.show
	defer func() { f.help, f.show = nil, nil }()
	c, err := a.claimBehind(ctx, f, committed, lastStep(note), begin)
	if err != nil {
		return got, err
	}
	now, leader, err := a.toClaim(ctx, f, c)
	if err != nil {
		return got, err
	}
	last := c.last()
	return Acquired{
		Last: *f.Last(), Committed: committed, Step: lastStep(note), Now: now,
		Claimed: Claimed{Behind: last.Offset + 1, Value: last.Value, Leader: leader},
	}, nil
}

// claimBehind claims the partition directly behind what was folded of the changelog. If a record comes between the two,
// it folds that and tries again.
func (a *acquirer) claimBehind(ctx context.Context, f *Follower, committed int64, step string,
	begin func(context.Context, int64) (int64, error)) (*claim, error) {
	for {
		if err := f.ToEnd(ctx); err != nil {
			return nil, err
		}
		at, err := a.claimPosition(ctx, f.Last(), committed, step, begin)
		if err != nil {
			return nil, err
		}
		c := &claim{
			o: a.o, steps: a.steps, recs: a.records, note: wire.CommitNote{Last: step}, at: at, first: f.Last() == nil,
			end: f.replay.Position(), done: make(chan emitter.Outcome, 1),
		}
		if o, err := c.make(ctx, a.failure); err != nil || o == emitter.Committed {
			return c, err
		}
	}
}

// claimPosition returns the position that the claim's offset commit must carry. The last writer of the changelog says
// which group is served, even if an offset of this group is committed: another group may have taken over since. Then
// that offset is from before, and Kafka's tools would show a lag until the next step.
//
// An offset that no step has committed, such as one that an operator has set, is not repeated. Otherwise Kafka's tools
// would show a wrong lag until the next step.
func (a *acquirer) claimPosition(ctx context.Context, last *wire.Checkpoint, committed int64, step string,
	begin func(context.Context, int64) (int64, error)) (int64, error) {
	switch {
	case last == nil:
		return begin(ctx, committed)
	case last.Group != a.o.Group && !a.o.AcceptGroup:
		return 0, a.o.otherGroup(last.Group)
	case last.Group != a.o.Group:
		return last.Position, nil
	case committed < 0:
		a.log.Warn("no offset is committed for the group, the changelog's checkpoint decides", "position",
			last.Position)
		return last.Position, nil
	case step == "":
		return last.Position, nil
	}
	return committed, nil
}

// toClaim folds up to the claim, and returns the time that the broker gave it and the epoch of that broker's lead. If
// the view turns out to be too old by then, it is wiped and folded again.
func (a *acquirer) toClaim(
	ctx context.Context, f *Follower, c *claim) (now time.Time, leader partlog.Epoch, err error) {
	for {
		now = time.Time{}
		f.replay.Claimed = func(x wire.Claim) {
			if x.Step == c.note.Step {
				now, leader = time.UnixMilli(x.Appended), x.Leader
				a.o.Clocks.Measured(c.sealed, c.ended, now)
			}
		}
		if err := f.to(ctx, c.last().Offset+1); err != nil {
			return now, leader, err
		}
		if now.IsZero() || f.Last() == nil {
			return now, leader, fmt.Errorf("the claim of %v is gone: another owner has claimed the partition",
				a.o.requests())
		}
		why, err := f.whyUnusable(ctx, now)
		if err != nil || why == "" {
			return now, leader, err
		}
		if err := f.open(ctx, why); err != nil {
			return now, leader, err
		}
	}
}

// stableOffset fetches the committed offset. It waits for the end of a former owner's accepted step, and ends that
// step's transaction if the owner is gone.
func (a *acquirer) stableOffset(ctx context.Context) (at int64, note wire.CommitNote, err error) {
	o := emitter.StableOffset{
		Client: a.o.Client, Group: a.o.Group, Member: a.o.Token.Member,
		Topic: a.o.Topics.Request.Name, TopicID: a.o.Topics.Request.ID, Partition: a.o.Partition,
	}
	help := time.Now().Add(hangingAfter)
	for {
		at, metadata, err := o.Fetch(ctx)
		if err == nil && at >= 0 {
			if note, err = wire.ParseCommitNote(metadata); err != nil {
				a.log.Warn("the group's committed offset was not written by waterclock; the changelog decides", "err",
					err)
			}
			return at, note, nil
		}
		if !errors.Is(err, kerr.UnstableOffsetCommit) {
			return at, note, err
		}
		if time.Now().After(help) {
			if err := a.endHanging(ctx, true); err != nil {
				return 0, note, err
			}
			a.unended.Store(true)
			help = time.Now().Add(hangingAfter)
		}
		select {
		case <-ctx.Done():
			return 0, note, ctx.Err()
		case <-a.failure.done():
			return 0, note, a.failure.why()
		case <-time.After(stablePoll):
		}
	}
}

// help ends transactions that hold up a replay, until ctx ends. If it cannot, it calls stop and returns why. It does
// not look for them while the leader is away, which is another reason to wait: each look asks every broker, and many
// partitions may wait for one that died.
func (a *acquirer) help(ctx context.Context, f *Follower, stop func()) error {
	last := f.position.Load()
	for beats.Sleep(ctx, hangingAfter) {
		now := f.position.Load()
		if now != last || f.waiting.Load() || a.o.Targets.Leaders.Stalled(a.o.Topics.Changelog.Name, a.o.Partition) {
			last = now
			a.unended.Store(false)
			continue
		}
		if err := a.endHanging(ctx, false); err != nil {
			stop()
			return err
		}
		a.unended.Store(true)
	}
	return nil
}

// reason is why the acquisition makes no progress, as far as is known; "" if nothing is known.
func (a *acquirer) reason() string {
	if !a.unended.Load() {
		return ""
	}
	return "waiting for the end of a transaction of the former owner, whose markers the brokers have not written yet"
}

// endHanging ends transactions that a former owner left open. offsets says that the caller waits for the committed
// offset. The caller goes on waiting even if this fails. It returns an error only if an operator must end a
// transaction.
func (a *acquirer) endHanging(ctx context.Context, offsets bool) error {
	n, err := repair.End(ctx, repair.Options{
		Client: a.o.Client, Group: a.o.Group, Topic: a.o.Topics.Changelog.Name, Partition: a.o.Partition,
		Offsets: offsets, Markers: a.o.Markers, Outcome: a.outcome, Logger: a.log,
	})
	if n > 0 {
		a.metrics.Ended(n)
	}
	if errors.Is(err, repair.ErrForeignTransaction) {
		return err
	}
	if err != nil && ctx.Err() == nil && a.cannotLook.Due(hangingSaid) {
		a.log.Warn("waiting for a transaction that cannot be inspected", "err", err)
	}
	return nil
}

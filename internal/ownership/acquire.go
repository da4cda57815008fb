package ownership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
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

// Acquired has the results of an acquisition.
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
	input   *Input
	show    func(State)

	cannotLook beats.Reminder // that others' transactions cannot be looked at

	// The following fields are safe for concurrent use.
	found    atomic.Pointer[wire.CommitNote] // of the committed offset; nil: this acquisition has not fetched it yet
	follower atomic.Pointer[Follower]        // of the last acquisition
	unended  atomic.Bool                     // the acquisition waits for the end of a transaction of a former owner
}

// acquire is Life.Acquire.
func (a *acquirer) acquire(ctx context.Context, f *Follower,
	begin func(ctx context.Context, committed int64) (int64, error)) (got Acquired, err error) {
	defer a.unended.Store(false)
	a.found.Store(nil)
	a.follower.Store(f)
	f.help, f.show = a.help, a.show
	defer func() { f.help, f.show = nil, nil }()
	var committed int64
	var note wire.CommitNote
	// The two questions change nothing, and both are answered before anything is written or a view is opened. The
	// follower of a standby continues during that time, as it would have done by itself.
	standby := f.replay != nil
	asking, all := errgroup.WithContext(ctx)
	asking.Go(func() error {
		return a.o.Settings.together(all, func(ctx context.Context) error { return sameTopics(ctx, a.o) })
	})
	asking.Go(func() (err error) {
		if committed, note, err = a.stableOffset(all); err == nil {
			err = samePartitions(a.o, note)
		}
		if err == nil {
			a.found.Store(&note)
		}
		return err
	})
	if standby {
		asking.Go(func() error { return f.ToEnd(all) })
	}
	if err := asking.Wait(); err != nil {
		return got, err
	}
	a.unended.Store(false)
	c, err := a.claimBehind(ctx, f, standby, committed, lastStep(note), begin)
	if err != nil {
		return got, err
	}
	now, leader, err := a.readBack(ctx, f, c)
	if err != nil {
		return got, err
	}
	last := c.last()
	return Acquired{
		Last: *f.Last(), Committed: committed, Step: lastStep(note), Now: now,
		Claimed: Claimed{Behind: last.Offset + 1, Value: last.Value, Leader: leader},
	}, nil
}

// readBack folds up to the claim, and asks for the request log at the same time. The claim is committed by then, so the
// log's end that Input.ReadFrom returns is at or behind every request that was in the log before.
func (a *acquirer) readBack(
	ctx context.Context, f *Follower, c *claim) (now time.Time, leader partlog.Epoch, err error) {
	asking, both := errgroup.WithContext(ctx)
	if last := f.Last(); last != nil {
		asking.Go(func() error { a.input.lookAhead(both, last); return nil })
	}
	asking.Go(func() (err error) { now, leader, err = a.toClaim(both, f, c); return err })
	err = asking.Wait()
	return now, leader, err
}

// claimBehind claims the partition directly behind the folded part of the changelog. folded says that the log was
// folded up to an end that was looked up since the acquisition began. If a record comes between that and the claim, it
// is folded, and the claim is tried again.
func (a *acquirer) claimBehind(ctx context.Context, f *Follower, folded bool, committed int64, step string,
	begin func(context.Context, int64) (int64, error)) (*claim, error) {
	for ; ; folded = false {
		if !folded {
			if err := f.ToEnd(ctx); err != nil {
				return nil, err
			}
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
		a.log.Warn("no committed offset for the group, using the changelog's checkpoint", "position",
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
			return now, leader, fmt.Errorf("claim of %v superseded: another owner has claimed the partition",
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
				a.log.Warn("committed offset of the group not written by waterclock, using the changelog", "err",
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
		case <-a.failure.Failed():
			return 0, note, a.failure.Failure()
		case <-time.After(stablePoll):
		}
	}
}

// help ends transactions that hold up a replay, until ctx ends. If it cannot, it calls stop and returns why. It does
// not look for them before the committed offset is known, which decides about a lost marker (outcome), nor while the
// leader is away, which is another reason to wait: each look asks every broker, and many partitions may wait for one
// that died.
func (a *acquirer) help(ctx context.Context, f *Follower, stop func()) error {
	last := f.position.Load()
	for beats.Sleep(ctx, hangingAfter) {
		now := f.position.Load()
		if a.found.Load() == nil {
			last = now
			continue
		}
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

// sameTopics checks that the topics are those that the instance started with. Requests are read by the topic's name, so
// if the topic was recreated, those below the old position would be silently skipped.
func sameTopics(ctx context.Context, o *Options) error {
	// If authorised operations are requested, kadm does not answer from its cache, which would hide a new topic ID.
	details, err := kadm.NewClient(o.Client).ListTopics(kadm.WithAuthorizedOps(ctx), o.Topics.Request.Name,
		o.Topics.Changelog.Name)
	if err != nil {
		return fmt.Errorf("compare topic IDs: %w", err)
	}
	for _, t := range []*topics.Topic{&o.Topics.Request, &o.Topics.Changelog} {
		switch got, there := details[t.Name]; {
		case !there:
		case got.Err != nil:
			return fmt.Errorf("compare the ID of topic %s: %w", t.Name, got.Err)
		case got.ID != t.ID:
			return &Fatal{fmt.Errorf("topic %s was recreated while this instance ran (its ID is %s, it was %s): %s",
				t.Name, topics.TopicID(got.ID), topics.TopicID(t.ID), o.Topics.ChangedAdvice(t.Name))}
		}
	}
	return nil
}

// samePartitions checks that the request topic has as many partitions as when the note was written. Otherwise a timer
// whose ID belongs on another partition now would miss its cancels.
func samePartitions(o *Options, note wire.CommitNote) error {
	if partitions := o.Topics.Request.Partitions; note.Partitions != 0 && note.Partitions != partitions {
		return &Fatal{fmt.Errorf("request topic %s has %d partitions and its timers lie as for %d: %s",
			o.Topics.Request.Name, partitions, note.Partitions, topics.FollowAdvice)}
	}
	return nil
}

// SamePartitionsElsewhere checks, for a partition that was never acquired, that the request topic has as many
// partitions as when its other partitions were acquired. The notes of those tell whether the topic is new or has grown.
// The changelog does not, since it may have been given partitions by hand.
func (l *Life) SamePartitionsElsewhere(ctx context.Context) error {
	committed, err := kadm.NewClient(l.o.Client).FetchOffsets(ctx, l.o.Group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("fetch the offsets of other partitions: %w", err)
	}
	for _, c := range committed[l.o.Topics.Request.Name] {
		note, err := wire.ParseCommitNote(c.Metadata)
		if err != nil {
			continue // not written by waterclock: see stableOffset
		}
		if err := samePartitions(&l.o, note); err != nil {
			return err
		}
	}
	return nil
}

// outcome finds out how a step ended if its marker is missing in the changelog. The step's producer wrote it from
// the given offset on. Readers wait where a marker is missing. So either the owner went on, and the log shows that
// behind the step, or nothing was committed after it. In the second case the name of the last step in the committed
// offset decides. It is known once the acquisition has fetched that offset.
func (a *acquirer) outcome(ctx context.Context, producerID, from int64) (repair.Ending, error) {
	owned, note := a.o.changelog(), a.found.Load()
	if note == nil {
		return repair.EndingUnknown, fmt.Errorf("the changelog %v lacks the marker of producer %d at offset %d, and "+
			"the committed offset is not known yet",
			owned, producerID, from)
	}
	_, _, end, err := partlog.Bounds(ctx, a.o.Client, owned)
	if err != nil {
		return repair.EndingUnknown, err
	}
	r := partlog.NewReader(a.o.Client, owned, from)
	r.SetCompacted(true)
	r.SetUncommitted()
	unmarked, after := "", false
	for page, err := range r.To(ctx, end) {
		if err != nil {
			return repair.EndingUnknown, err
		}
		for _, rec := range page.Records {
			step, err := stepOf(rec.Key, rec.Value)
			switch {
			case err != nil:
				return repair.EndingUnknown, err
			case step == "":
			case rec.ProducerID == producerID:
				unmarked = cmp.Or(unmarked, step)
			case unmarked != "" && (step == note.Step || step == note.Last):
				after = true
			}
		}
	}
	switch {
	case unmarked == "":
		return repair.EndingAbort, nil // a step without its checkpoint was never committed
	case note.Step == unmarked || note.Last == unmarked:
		return repair.EndingCommit, nil
	case after:
		return repair.EndingUnknown, fmt.Errorf("the changelog %v lacks the marker of step %s, and later ones are "+
			"committed: whether that one was is not known",
			owned, unmarked)
	}
	return repair.EndingAbort, nil
}

// stepOf returns the name of the step that wrote a checkpoint or a claim; "" for other records.
func stepOf(key, value []byte) (string, error) {
	kind, _, err := wire.ParseKey(key)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the changelog: %w", err)
	case kind == wire.KindCheckpoint:
		c, err := wire.DecodeCheckpoint(value)
		return c.Step, err
	case kind == wire.KindClaim:
		c, err := wire.DecodeClaim(value)
		return c.Step, err
	}
	return "", nil
}

package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/partlog"
)

const (
	// stablePoll is the pause between two looks at an unstable offset.
	stablePoll = 5 * time.Millisecond
	// vanishedAfter is how long a take waits for others' open transactions
	// before it looks whose they are and ends those of a vanished owner.
	vanishedAfter = 200 * time.Millisecond
	// fetchWait is how long a fetch of a take waits at the broker for data.
	fetchWait = 5 * time.Millisecond
	// progressEvery is how often a long replay is logged.
	progressEvery = 5 * time.Second
	// behindPatience is how long a leader may show less of the request log than
	// has been read, and behindPause the pause between two questions.
	behindPatience = 10 * time.Second
	behindPause    = 200 * time.Millisecond
	// vanishedSaid is how often it is said that others' transactions cannot be
	// looked at.
	vanishedSaid = 10 * time.Second
)

// takeOver makes this process the partition's owner (DESIGN.md, "Taking a
// partition"). It returns where requests are to be read from, and the request
// partition's last stable offset as of the take, for the gate.
func (p *Partition) takeOver(ctx context.Context) (from, stable int64, err error) {
	if err := p.sameTopics(ctx); err != nil {
		return 0, 0, err
	}
	committed, note, err := p.stableOffset(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := p.samePartitions(note); err != nil {
		return 0, 0, err
	}
	p.found.Store(&note)
	last, now, err := p.takeLog(ctx, committed, lastStep(note))
	if err != nil {
		return 0, 0, err
	}
	from, stable, err = p.requestPosition(ctx, last, committed)
	if err != nil {
		return 0, 0, err
	}
	meta, err := p.take.Meta()
	if err != nil {
		return 0, 0, err
	}
	p.pending.Store(meta.Pending)
	p.taken.Store(true)
	p.ledger.open(meta.Pending)
	return from, stable, p.take.Live(now)
}

// takeLog folds the changelog, claims it, and folds it up to the claim. It
// returns the last checkpoint, and what time it was at the brokers.
func (p *Partition) takeLog(ctx context.Context, committed int64, step string) (last *delaytopics.Checkpoint, now time.Time, err error) {
	f, err := p.openFold(ctx, "")
	if err != nil {
		return nil, now, err
	}
	c, err := p.claimBehind(ctx, f, committed, step)
	if err != nil {
		return nil, now, err
	}
	for why := ""; ; {
		if now, err = p.toClaim(f, c); err != nil {
			return nil, now, err
		}
		if why = f.stale(now); why == "" {
			break
		}
		if f, err = p.openFold(ctx, why); err != nil {
			return nil, now, err
		}
	}
	p.mu.Lock()
	p.tail.known(c.behind())
	p.mu.Unlock()
	return f.replay.Last(), now, nil
}

// claimBehind claims the partition directly behind what was folded of the
// changelog. What comes between the two is folded first, and looked at.
func (p *Partition) claimBehind(ctx context.Context, f *fold, committed int64, step string) (*claim, error) {
	for {
		if err := f.toEnd(); err != nil {
			return nil, err
		}
		at, err := p.claimPosition(ctx, f.replay.Last(), committed)
		if err != nil {
			return nil, err
		}
		c := &claim{
			p: p, note: delaytopics.CommitNote{Last: step}, at: at, first: f.replay.Last() == nil,
			end: f.replay.Position(), done: make(chan emitter.Outcome, 1),
		}
		if o, err := p.makeClaim(ctx, c); err != nil || o == emitter.Committed {
			return c, err
		}
	}
}

// toClaim folds up to the claim, and returns the time that the broker gave it.
func (p *Partition) toClaim(f *fold, c *claim) (now time.Time, err error) {
	f.replay.Claimed = func(x delaytopics.Claim) {
		if x.Step == c.note.Step {
			p.o.Metrics.clockOffset(x.Time, p.o.Now().UnixMilli(), x.Appended)
			now = time.UnixMilli(x.Appended)
		}
	}
	if err := f.to(c.behind()); err != nil {
		return now, err
	}
	if now.IsZero() {
		return now, fmt.Errorf("the claim of %s/%d is gone: somebody else has claimed the partition", p.o.Topics.Request.Name, p.o.Partition)
	}
	return now, nil
}

// stableOffset fetches the committed offset, waiting for the end of a former
// owner's accepted step, and helping it to one if that owner is gone.
func (p *Partition) stableOffset(ctx context.Context) (at int64, note delaytopics.CommitNote, err error) {
	help := time.Now().Add(vanishedAfter)
	for {
		at, metadata, err := p.fetchOffset(ctx)
		switch {
		case err == nil && at < 0:
			return at, note, nil
		case err == nil:
			note, err := delaytopics.ParseCommitNote(metadata)
			if err != nil {
				p.log.Warn("the group's committed offset was not written by waterclock; the changelog decides", "err", err)
			}
			return at, note, nil
		case !errors.Is(err, kerr.UnstableOffsetCommit):
			return 0, note, err
		}
		if time.Now().After(help) {
			if err := p.endVanished(ctx, true); err != nil {
				return 0, note, err
			}
			help = time.Now().Add(vanishedAfter)
		}
		select {
		case <-ctx.Done():
			return 0, note, ctx.Err()
		case <-time.After(stablePoll):
		}
	}
}

func (p *Partition) fetchOffset(ctx context.Context) (int64, string, error) {
	o := emitter.StableOffset{
		Client: p.o.Client, Group: p.o.Group, Member: p.o.Token.Member,
		Topic: p.o.Topics.Request.Name, TopicID: p.o.Topics.Request.ID, Partition: p.o.Partition,
	}
	return o.Fetch(ctx)
}

// endVanished ends what a vanished owner left open. offsets: the committed offset
// is what is waited for. Whether it works or not, whoever waits goes on waiting;
// it returns only what an operator must end.
func (p *Partition) endVanished(ctx context.Context, offsets bool) error {
	n, err := emitter.EndVanished(ctx, emitter.Vanished{
		Client: p.o.Client, Group: p.o.Group, Topic: p.o.Topics.Changelog.Name, Partition: p.o.Partition,
		Offsets: offsets, Markers: p.o.Markers, Committed: p.committed, Logger: p.log,
	})
	if n > 0 {
		p.o.Metrics.ended(n)
	}
	if errors.Is(err, emitter.ErrForeignTransaction) {
		return err
	}
	if err != nil && ctx.Err() == nil && time.Since(p.vanishedSaid) > vanishedSaid {
		p.vanishedSaid = time.Now()
		p.log.Warn("waiting for the end of a transaction, and cannot look after it", "err", err)
	}
	return nil
}

// claimPosition returns the position that the claim's offset commit must carry.
// Who has written last to the changelog says which group is served, also where
// an offset of ours is committed: another group may have taken over since.
func (p *Partition) claimPosition(ctx context.Context, last *delaytopics.Checkpoint, committed int64) (int64, error) {
	if last != nil {
		if last.Group != p.o.Group && !p.o.AcceptGroup {
			return 0, p.otherGroup(last.Group)
		}
		if committed < 0 {
			p.log.Warn("no offset is committed for the group, the changelog's checkpoint decides", "position", last.Position)
			return last.Position, nil
		}
		return committed, nil
	}
	if committed >= 0 && !p.o.AcceptLostChangelog {
		return 0, p.lostChangelog("an offset is committed")
	}
	if err := p.samePartitionsElsewhere(ctx); err != nil {
		return 0, err
	}
	start, _, _, err := partlog.Bounds(ctx, p.o.Client, p.requestTarget())
	if err != nil {
		return 0, err
	}
	if committed >= 0 {
		p.log.Warn("the changelog is lost and that is accepted: reading requests from the log's start", "position", start, "committed", committed)
	} else {
		p.log.Info("first take of this partition: reading requests from the log's start", "position", start)
	}
	return start, nil
}

// requestPosition says where requests go on, from the last checkpoint before
// the claim.
func (p *Partition) requestPosition(ctx context.Context, last *delaytopics.Checkpoint, committed int64) (from, stable int64, err error) {
	if last.Request != p.o.Topics.Request.ID {
		return 0, 0, &Fatal{fmt.Errorf("request topic %s was created anew since changelog %s was written (its ID is %s, it was %s), where its pending timers are kept: %s",
			p.o.Topics.Request.Name, p.o.Topics.Changelog.Name, delaytopics.TopicID(p.o.Topics.Request.ID), delaytopics.TopicID(last.Request), delaytopics.FollowAdvice)}
	}
	if last.Changelog != p.o.Topics.Changelog.ID {
		return 0, 0, &Fatal{fmt.Errorf("changelog %s was copied from another topic (its checkpoint names %s, its own ID is %s): %s",
			p.o.Topics.Changelog.Name, delaytopics.TopicID(last.Changelog), delaytopics.TopicID(p.o.Topics.Changelog.ID), delaytopics.FollowAdvice)}
	}
	from = last.Position
	if committed >= 0 && committed != from {
		p.log.Warn("the group's offset differs from the changelog's checkpoint and is ignored", "committed", committed, "checkpoint", from)
	}
	start, stable, end, err := p.requestBounds(ctx, from)
	if err != nil {
		return 0, 0, err
	}
	switch {
	case from > end:
		return 0, 0, &Fatal{delaytopics.LostTail(from, p.requestTarget(), end)}
	case from < start:
		p.log.Error("requests were lost to retention before they were read", "from", from, "to", start, "count", start-from)
		p.o.Metrics.lostRequests(p.o.Topics.Request.Name, start-from)
		from = start
	}
	return from, stable, nil
}

// requestBounds asks where the request log begins and ends, and again for some
// time where that is before from: a leader that was asleep, and wakes, shows the
// log without its end until it hears that others have taken over.
func (p *Partition) requestBounds(ctx context.Context, from int64) (start, stable, end int64, err error) {
	for patience := time.Now().Add(behindPatience); ; {
		start, stable, end, err = partlog.Bounds(ctx, p.o.Client, p.requestTarget())
		if err != nil || from <= end || time.Now().After(patience) {
			return start, stable, end, err
		}
		select {
		case <-ctx.Done():
			return 0, 0, 0, ctx.Err()
		case <-time.After(behindPause):
		}
	}
}

func (p *Partition) requestTarget() partlog.Target {
	return partlog.Target{Topic: p.o.Topics.Request.Name, ID: p.o.Topics.Request.ID, Partition: p.o.Partition}
}

func (p *Partition) changelogTarget() partlog.Target {
	return partlog.Target{Topic: p.o.Topics.Changelog.Name, ID: p.o.Topics.Changelog.ID, Partition: p.o.Partition}
}

// readError words an error of intake.
func readError(err error) error {
	if errors.Is(err, kerr.OffsetOutOfRange) {
		return fmt.Errorf("the request log no longer holds the position: %w", err)
	}
	return fmt.Errorf("read requests: %w", err)
}

package delaytopics

import (
	"context"
	"fmt"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/ownership"
)

// acquire makes this process the partition's owner. The package comment has the order. It returns where records are to
// be read from, where their log ended, and the argument of Life.Own.
func (p *Partition) acquire(ctx context.Context) (from, end int64, claimed ownership.Claimed, err error) {
	got, err := p.life.Acquire(ctx, p.life.NewFollower(nil), p.begin)
	if err != nil {
		return 0, 0, claimed, err
	}
	from, end, err = p.from(ctx, &got)
	if err == nil && got.Committed >= 0 && got.Committed != from {
		p.life.Log.Warn("the group's offset differs from the last checkpoint and is ignored", "committed",
			got.Committed, "checkpoint", from)
	}
	return from, end, got.Claimed, err
}

// begin returns where a partition without a checkpoint begins.
func (p *Partition) begin(ctx context.Context, committed int64) (int64, error) {
	switch {
	case committed >= 0 && !p.o.AcceptLost:
		return 0, &ownership.Fatal{Err: fmt.Errorf("an offset is committed for %v and %s holds no checkpoint: the "+
			"checkpoints were lost; if no other group has served the topic since, %s",
			p.life.Requests(), p.o.Topics.Changelog.Name, topics.LostCheckpointsAdvice)}
	case committed >= 0:
		p.life.Log.Warn("the checkpoints are lost and that is accepted: the group's offset decides",
			"position", committed)
		return committed, nil
	}
	start, _, _, err := partlog.Bounds(ctx, p.o.Client, p.life.Requests())
	if err != nil {
		return 0, err
	}
	p.life.Log.Info("first acquisition of this partition: passing the topic on from its start", "position", start)
	return start, nil
}

// from returns where records are to be read from after the last checkpoint before the claim, and where their log
// ends.
func (p *Partition) from(ctx context.Context, got *ownership.Acquired) (from, end int64, err error) {
	last := &got.Last
	if last.Changelog != p.o.Topics.Changelog.ID {
		return 0, 0, &ownership.Fatal{Err: fmt.Errorf(
			"%s was copied from another topic (its checkpoint names %s, its own ID is %s): delete it; then %s",
			p.o.Topics.Changelog.Name, topics.TopicID(last.Changelog), topics.TopicID(p.o.Topics.Changelog.ID),
			topics.LostCheckpointsAdvice)}
	}
	if last.Request == p.o.Topics.Request.ID {
		if last, err = p.complete(got); err != nil {
			return 0, 0, err
		}
		return p.life.Input.ReadFrom(ctx, last)
	}
	from, _, end, err = partlog.Bounds(ctx, p.o.Client, p.life.Requests())
	if err == nil {
		p.life.Log.Warn("the topic was recreated since its checkpoint was written: passing it on from its start",
			"position", from)
	}
	return from, end, err
}

// complete returns the last checkpoint, or an error if the log of checkpoints has lost its end. A step commits its
// checkpoint and its offset together. So if the group's offset lies beyond the last checkpoint, and is of another step,
// the checkpoints of later steps were lost. What those passed on is on the targets. As in begin, an operator may decide
// that the offset counts. (An offset that an operator has set is of no step, or names the step before.)
func (p *Partition) complete(got *ownership.Acquired) (*wire.Checkpoint, error) {
	last := got.Last
	if last.Group != p.o.Group || got.Step == "" || got.Step == last.Step || got.Committed <= last.Position {
		return &last, nil
	}
	if !p.o.AcceptLost {
		return nil, &ownership.Fatal{Err: fmt.Errorf("offset %d is committed for %v and the last checkpoint in %s "+
			"is at %d: later checkpoints were lost; if no other group has served the topic since, %s",
			got.Committed, p.life.Requests(), p.o.Topics.Changelog.Name, last.Position, topics.LostCheckpointsAdvice)}
	}
	p.life.Log.Warn("the last checkpoints are lost and that is accepted: the group's offset decides", "position",
		got.Committed, "checkpoint", last.Position)
	last.Position, last.Epoch = got.Committed, 0
	return &last, nil
}

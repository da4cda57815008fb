package delaytopics

import (
	"context"
	"fmt"

	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/topics"
	"github.com/waterclock/waterclock/internal/wire"
)

// acquire makes this process the partition's owner, see the package comment. It
// returns where records are to be read from. From then on the lane seals what is due.
func (p *Partition) acquire(ctx context.Context) (from int64, err error) {
	a, err := p.life.Acquire(ctx, p.life.NewFollower(nil), p.begin)
	if err != nil {
		return 0, err
	}
	from, end, err := p.from(ctx, &a.Last)
	if err != nil {
		return 0, err
	}
	if a.Committed >= 0 && a.Committed != from {
		p.life.Log.Warn("the group's offset differs from the last checkpoint and is ignored", "committed", a.Committed, "checkpoint", from)
	}
	p.mu.Lock()
	p.acquired, p.position, p.end = true, from, end
	p.mu.Unlock()
	p.life.Own(a.Behind)
	return from, nil
}

// begin says where a partition begins that has no checkpoint.
func (p *Partition) begin(ctx context.Context, committed int64) (int64, error) {
	switch {
	case committed >= 0 && !p.o.AcceptLost:
		return 0, &ownership.Fatal{Err: fmt.Errorf("an offset is committed for %v and %s holds no checkpoint: the checkpoints were lost; if no other group has served the topic since, %s",
			p.life.Requests(), p.o.Topics.Changelog.Name, topics.LostCheckpointsAdvice)}
	case committed >= 0:
		p.life.Log.Warn("the checkpoints are lost and that is accepted: the group's offset decides", "position", committed)
		return committed, nil
	}
	start, _, _, err := partlog.Bounds(ctx, p.o.Client, p.life.Requests())
	if err != nil {
		return 0, err
	}
	p.life.Log.Info("first acquisition of this partition: passing the topic on from its start", "position", start)
	return start, nil
}

// from says where records go on, from the last checkpoint before the claim, and where
// their log ends.
func (p *Partition) from(ctx context.Context, last *wire.Checkpoint) (from, end int64, err error) {
	if last.Changelog != p.o.Topics.Changelog.ID {
		return 0, 0, &ownership.Fatal{Err: fmt.Errorf("%s was copied from another topic (its checkpoint names %s, its own ID is %s): delete it; then %s",
			p.o.Topics.Changelog.Name, topics.TopicID(last.Changelog), topics.TopicID(p.o.Topics.Changelog.ID), topics.LostCheckpointsAdvice)}
	}
	if last.Request == p.o.Topics.Request.ID {
		return p.life.Input.ReadFrom(ctx, last)
	}
	from, _, end, err = partlog.Bounds(ctx, p.o.Client, p.life.Requests())
	if err == nil {
		p.life.Log.Warn("the topic was recreated since its checkpoint was written: passing it on from its start", "position", from)
	}
	return from, end, err
}

package partition

import (
	"context"
	"fmt"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/ownership"
)

// acquired is the result of an acquisition.
type acquired struct {
	*served
	claimed ownership.Claimed
	end     int64 // of the request log at the acquisition
}

// acquire makes this process the partition's owner (DESIGN.md, "Acquiring a
// partition"), and makes what serves it.
func (p *Partition) acquire(ctx context.Context, l *lane) (*acquired, error) {
	// When ctx ends, losing the handle ends a replay's wait for the disk, which may take half a minute.
	stop := context.AfterFunc(ctx, l.store.Release)
	defer stop()
	p.local.Handle = l.store
	got, err := p.life.Acquire(ctx, p.follower(), p.begin)
	if err != nil {
		return nil, err
	}
	p.standby = nil
	from, end, err := p.requestPosition(ctx, &got.Last, got.Committed)
	if err != nil {
		return nil, err
	}
	meta, err := l.store.Meta()
	if err != nil {
		return nil, err
	}
	if err := l.store.Live(got.Now, p.o.Token.Confirmed); err != nil {
		return nil, err
	}
	s := p.newServed(l, from, meta.Pending)
	if err := s.keeper.open(); err != nil {
		return nil, err
	}
	p.served.Store(s)
	return &acquired{served: s, claimed: got.Claimed, end: end}, nil
}

// follower returns the follower that an acquisition begins with.
func (p *Partition) follower() *ownership.Follower {
	if p.standby == nil {
		return p.life.NewFollower(&p.local)
	}
	p.life.TakeOver(p.standby, &p.local)
	return p.standby
}

// begin returns where requests are read from if the changelog holds no checkpoint.
func (p *Partition) begin(ctx context.Context, committed int64) (int64, error) {
	if committed >= 0 && !p.o.AcceptLost {
		return 0, ownership.LostChangelog(p.life.Requests(), p.life.Changelog(), "an offset is committed")
	}
	if err := p.life.SamePartitionsElsewhere(ctx); err != nil {
		return 0, err
	}
	start, _, _, err := partlog.Bounds(ctx, p.o.Client, p.life.Requests())
	if err != nil {
		return 0, err
	}
	if committed >= 0 {
		p.life.Log.Warn("the changelog is lost and that is accepted: reading requests from the log's start, so "+
			"timers that have fired and whose requests are still there fire again", "position", start,
			"committed", committed)
	} else {
		p.life.Log.Info("first acquisition of this partition: reading requests from the log's start", "position", start)
	}
	return start, nil
}

// requestPosition returns where requests are read from, by the last checkpoint before the claim.
func (p *Partition) requestPosition(ctx context.Context, last *wire.Checkpoint,
	committed int64) (from, end int64, err error) {
	if last.Request != p.o.Topics.Request.ID {
		return 0, 0, &ownership.Fatal{Err: fmt.Errorf("request topic %s was recreated since changelog %s was "+
			"written (its ID is %s, it was %s), where its pending timers are kept: %s",
			p.o.Topics.Request.Name, p.o.Topics.Changelog.Name, topics.TopicID(p.o.Topics.Request.ID),
			topics.TopicID(last.Request), topics.FollowAdvice)}
	}
	if last.Changelog != p.o.Topics.Changelog.ID {
		return 0, 0, &ownership.Fatal{Err: fmt.Errorf(
			"changelog %s was copied from another topic (its checkpoint names %s, its own ID is %s): %s",
			p.o.Topics.Changelog.Name, topics.TopicID(last.Changelog), topics.TopicID(p.o.Topics.Changelog.ID),
			topics.FollowAdvice)}
	}
	if committed >= 0 && committed != last.Position {
		p.life.Log.Warn("the group's offset differs from the changelog's checkpoint and is ignored", "committed",
			committed, "checkpoint", last.Position)
	}
	return p.life.Input.ReadFrom(ctx, last)
}

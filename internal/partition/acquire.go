package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/topics"
	"github.com/waterclock/waterclock/internal/wire"
)

// acquire makes this process the partition's owner (DESIGN.md, "Acquiring a
// partition"). It returns where requests are to be read from, and the end of
// the request log as of the acquisition, for the gate, and what Life.Own wants.
func (p *Partition) acquire(ctx context.Context) (from, end, behind int64, err error) {
	p.local.Handle = p.handle
	a, err := p.life.Acquire(ctx, p.life.NewFollower(&p.local), p.begin)
	if err != nil {
		return 0, 0, 0, err
	}
	from, end, err = p.requestPosition(ctx, &a.Last, a.Committed)
	if err != nil {
		return 0, 0, 0, err
	}
	meta, err := p.handle.Meta()
	if err != nil {
		return 0, 0, 0, err
	}
	p.pending.Store(meta.Pending)
	p.taken.Store(true)
	p.ledger.open(meta.Pending)
	if err := p.handle.Live(a.Now, p.o.Token.Confirmed); err != nil {
		return 0, 0, 0, err
	}
	return from, end, a.Behind, p.noteKeeps()
}

// raiseAfter is for how long delete.retention.ms must have been longer than noted before the longer value
// is noted. By then the store's in-sync time is later than the change, and the store has every deletion
// that was stamped before the change.
const raiseAfter = 5 * time.Minute

// noteKeeps tells the store for how long the changelog keeps deletions. The next opening of the view
// needs the lowest value in force since the view was in sync.
func (p *Partition) noteKeeps() error {
	keeps := p.life.Settings().Keeps()
	switch {
	case keeps <= p.keeps:
		p.raised = time.Time{}
	case p.raised.IsZero():
		p.raised = time.Now()
	}
	if keeps == p.keeps || p.keeps > 0 && keeps > p.keeps && time.Since(p.raised) < raiseAfter {
		return nil
	}
	p.keeps = keeps
	return p.handle.Keeps(keeps)
}

// begin says where requests are read from whose changelog holds no checkpoint.
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
		p.life.Log.Warn("the changelog is lost and that is accepted: reading requests from the log's start, so what has fired and is still there fires again", "position", start, "committed", committed)
	} else {
		p.life.Log.Info("first acquisition of this partition: reading requests from the log's start", "position", start)
	}
	return start, nil
}

// requestPosition says where requests go on, from the last checkpoint before
// the claim.
func (p *Partition) requestPosition(ctx context.Context, last *wire.Checkpoint, committed int64) (from, end int64, err error) {
	if last.Request != p.o.Topics.Request.ID {
		return 0, 0, &ownership.Fatal{Err: fmt.Errorf("request topic %s was recreated since changelog %s was written (its ID is %s, it was %s), where its pending timers are kept: %s",
			p.o.Topics.Request.Name, p.o.Topics.Changelog.Name, topics.TopicID(p.o.Topics.Request.ID), topics.TopicID(last.Request), topics.FollowAdvice)}
	}
	if last.Changelog != p.o.Topics.Changelog.ID {
		return 0, 0, &ownership.Fatal{Err: fmt.Errorf("changelog %s was copied from another topic (its checkpoint names %s, its own ID is %s): %s",
			p.o.Topics.Changelog.Name, topics.TopicID(last.Changelog), topics.TopicID(p.o.Topics.Changelog.ID), topics.FollowAdvice)}
	}
	if committed >= 0 && committed != last.Position {
		p.life.Log.Warn("the group's offset differs from the changelog's checkpoint and is ignored", "committed", committed, "checkpoint", last.Position)
	}
	return p.life.Input.ReadFrom(ctx, last)
}

// readError words an error of intake.
func readError(err error) error {
	if errors.Is(err, kerr.OffsetOutOfRange) {
		return fmt.Errorf("the request log no longer holds the position: %w", err)
	}
	return fmt.Errorf("read requests: %w", err)
}

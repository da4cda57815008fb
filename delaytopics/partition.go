package delaytopics

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
)

// Options configure a partition.
type Options struct {
	ownership.Options               // with the Topics of a fixed-delay topic
	Rules             *intake.Rules // DefaultTarget is the topic's target
	Reader            *intake.Reader
	Queue             *budget.Account      // memory of queued records; at its limit intake pauses; Run closes it
	ClockSkew         *partition.ClockSkew // nil: the clock is compared only at acquisitions
	Metrics           *partition.Metrics
	Traces            *tracing.Firings // nil: records keep their trace context
}

// Partition is one owned partition of a fixed-delay topic. Each acquisition has its own relay.
type Partition struct {
	life  *ownership.Life
	o     Options
	relay atomic.Pointer[relay] // nil before and after an acquisition
}

// New returns a partition that Run will acquire.
func New(o Options) *Partition { return &Partition{life: ownership.New(o.Options, o.Metrics), o: o} }

// Run acquires the partition and serves it until ctx ends or its lease does.
func (p *Partition) Run(ctx context.Context) {
	defer p.o.Queue.Close()
	p.life.Run(ctx, p.serve)
}

// serve acquires the partition and runs it until the end.
func (p *Partition) serve(ctx context.Context) error {
	p.life.SetState(ownership.Acquiring)
	r := newRelay(&p.o, p.life)
	defer r.close()
	defer p.life.Steps.Join(r).Leave()
	from, end, claimed, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	r.begin(from, end)
	p.relay.Store(r)
	defer p.relay.Store(nil)
	p.life.Own(claimed)
	topic := p.o.Topics.Request.Name
	p.o.Reader.Add(topic, p.o.Partition, from, r)
	defer p.o.Reader.Remove(topic, p.o.Partition, r)
	p.life.SetState(ownership.Live)
	p.life.Log.Info("partition live", "position", from, "delay", p.o.Topics.Delay)
	return p.loop(ctx, r)
}

// loop wakes the lanes when a record is due, resumes intake when there is room, and resolves steps with an unknown
// outcome.
func (p *Partition) loop(ctx context.Context, r *relay) error {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ownership.ErrStopped
		case <-p.life.Failed():
			return p.life.Failure()
		case <-p.life.Wake:
		case <-t.C:
		}
		p.life.Look(ctx)
		r.admit()
		t.Reset(r.round())
	}
}

// Wake makes the partition read the clock again, because it was set.
func (p *Partition) Wake() { p.life.Wake.Send() }

// Life returns the state common to partitions of all kinds.
func (p *Partition) Life() *ownership.Life { return p.life }

// SetLogEnd records the end of the topic's log.
func (p *Partition) SetLogEnd(e ownership.LogEnd) { p.life.Input.SetEnd(e) }

// Drain stops sealing and waits, at most for a second, until the step in flight has ended.
func (p *Partition) Drain() { p.life.Drain() }

// Status returns a snapshot.
func (p *Partition) Status() ownership.Status {
	s := p.life.Status()
	if r := p.relay.Load(); r != nil {
		r.show(&s)
	}
	return s
}

// acquire makes this process the partition's owner, in the order of the package comment. It returns the offset to
// read from, the end of the log, and the argument of Life.Own.
func (p *Partition) acquire(ctx context.Context) (from, end int64, claimed ownership.Claimed, err error) {
	got, err := p.life.Acquire(ctx, p.life.NewFollower(nil), p.begin)
	if err != nil {
		return 0, 0, claimed, err
	}
	from, end, err = p.from(ctx, &got)
	if err == nil && got.Committed >= 0 && got.Committed != from {
		p.life.Log.Warn("group offset differs from the last checkpoint and is ignored", "committed",
			got.Committed, "checkpoint", from)
	}
	return from, end, got.Claimed, err
}

// begin returns the first offset to read for a partition without a checkpoint.
func (p *Partition) begin(ctx context.Context, committed int64) (int64, error) {
	switch {
	case committed >= 0 && !p.o.AcceptLost:
		return 0, &ownership.Fatal{Err: fmt.Errorf("an offset is committed for %v and %s holds no checkpoint: the "+
			"checkpoints were lost; if no other group has served the topic since, %s",
			p.life.Requests(), p.o.Topics.Changelog.Name, topics.LostCheckpointsAdvice)}
	case committed >= 0:
		p.life.Log.Warn("checkpoints lost and accepted as lost: continuing from the group's offset",
			"position", committed)
		return committed, nil
	}
	start, _, _, err := partlog.Bounds(ctx, p.o.Client, p.life.Requests())
	if err != nil {
		return 0, err
	}
	p.life.Log.Info("first acquisition: reading from the start of the topic", "position", start)
	return start, nil
}

// from returns the offset to read from, after the last checkpoint before the claim, and the end of the log.
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
		p.life.Log.Warn("topic recreated since its last checkpoint: starting at its start",
			"position", from)
	}
	return from, end, err
}

// complete returns the last checkpoint, or an error if the log of checkpoints has lost its end. A step commits its
// checkpoint and its offset together. So if the group's offset is beyond the last checkpoint, and is of another step,
// the checkpoints of later steps were lost. The records that they passed on are on the targets. As in begin, an
// operator may decide that the offset counts. (An offset that an operator has set belongs to no step, or names the
// step before.)
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
	p.life.Log.Warn("last checkpoints lost and accepted as lost: continuing from the group's offset", "position",
		got.Committed, "checkpoint", last.Position)
	last.Position, last.Epoch = got.Committed, 0
	return &last, nil
}

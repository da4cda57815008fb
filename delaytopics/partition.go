package delaytopics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
)

// Options of a partition: what it is made of.
type Options struct {
	ownership.Options               // Topics are those of a fixed-delay topic
	Rules             *intake.Rules // DefaultTarget is the topic's target
	Reader            *intake.Reader
	Queue             *budget.Account      // memory of queued records; at its limit intake pauses; Run closes it
	ClockSkew         *partition.ClockSkew // nil: the clock is compared at acquisitions alone
	Metrics           *partition.Metrics
	Traces            *tracing.Firings // nil: records keep their trace context
}

// Partition is one owned partition of a fixed-delay topic. Each acquisition has a relay of its own.
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

// serve is one acquisition and the life after it.
func (p *Partition) serve(ctx context.Context) error {
	p.life.SetState(ownership.Acquiring)
	r := newRelay(&p.o, p.life)
	defer r.close()
	p.life.Steps.Join(r)
	defer p.life.Steps.Leave(r)
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

// loop wakes the lanes when a record is due, resumes intake when there is room, and looks up what is in doubt.
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

// Wake makes the partition look at the clock again: it was set.
func (p *Partition) Wake() { p.life.Wake.Send() }

// Life returns what partitions of all kinds have in common.
func (p *Partition) Life() *ownership.Life { return p.life }

// Serving is the Serving of its Life.
func (p *Partition) Serving() (s ownership.State, leaving bool) { return p.life.Serving() }

// SetLogEnd records a look at the end of the topic's log.
func (p *Partition) SetLogEnd(e ownership.LogEnd) { p.life.Input.SetEnd(e) }

// Drain stops sealing and waits, at most for a second, until the step under way has ended.
func (p *Partition) Drain() { p.life.Drain() }

// Status returns a snapshot.
func (p *Partition) Status() ownership.Status {
	s := p.life.Status()
	if r := p.relay.Load(); r != nil {
		r.show(&s)
	}
	return s
}

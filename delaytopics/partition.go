package delaytopics

import (
	"context"
	"sync"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/budget"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

// Options of a partition: what it is made of.
type Options struct {
	ownership.Options               // Topics are those of a fixed-delay topic
	Rules             *intake.Rules // DefaultTarget is the topic's target
	Reader            *intake.Reader
	Queue             *budget.Account   // on their way, at whose limit intake pauses; Run closes it
	Stamps            *partition.Stamps // nil: the clock is compared at acquisitions alone
	Metrics           *partition.Metrics
}

// Partition is one owned partition of a fixed-delay topic. It implements transaction.Source
// and intake.Sink.
type Partition struct {
	life         *ownership.Life
	o            Options
	waiter       *targets.Waiter
	alertedAhead time.Time // when it was last said that a timestamp lies far ahead; Run's own

	mu       sync.Mutex // guards what follows; held over Reader.Pause and Resume
	queue    queue
	position int64 // just behind what is passed on
	end      int64 // of the log, as it was last seen
	acquired bool  // position is known
	paused   bool
	stepped  time.Time // when the last step was sealed
	blocked  *blocked  // what stands at the front, or behind what is under way, and may not go
}

// New returns a partition that Run will acquire.
func New(o Options) *Partition { return &Partition{life: ownership.New(o.Options, o.Metrics), o: o} }

// Run acquires the partition and serves it until ctx ends or its token dies.
func (p *Partition) Run(ctx context.Context) {
	defer p.o.Queue.Close()
	p.life.Run(ctx, p.serve)
}

// forget forgets everything: the next serve begins from what is committed.
func (p *Partition) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acquired, p.queue, p.blocked, p.paused = false, queue{}, nil, false
	p.o.Queue.Set(0)
}

// serve is one acquisition and the life after it.
func (p *Partition) serve(ctx context.Context) error {
	p.life.SetState(ownership.Acquiring)
	p.waiter = p.o.Health.Waiter(p.life.Kick)
	defer p.waiter.Close()
	defer p.forget()
	p.life.Steps.Join(p)
	defer p.life.Steps.Leave(p)
	from, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	topic := p.o.Topics.Request.Name
	p.o.Reader.Add(topic, p.o.Partition, from, p)
	defer p.o.Reader.Remove(topic, p.o.Partition, p)
	p.life.SetState(ownership.Live)
	p.life.Log.Info("partition live", "position", from, "delay", p.o.Topics.Delay)
	return p.loop(ctx)
}

// loop has the lane called when something is due, intake resumed when there is room, and
// looks at what is in doubt.
func (p *Partition) loop(ctx context.Context) error {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ownership.ErrStopped
		case <-p.life.Failed():
			return p.life.Failure()
		case <-p.life.Kicked:
		case <-t.C:
		}
		p.life.Look(ctx)
		p.admit()
		t.Reset(p.round())
	}
}

// round has the lane called if something is due and intake resumed if there is room. It
// returns when to look again.
func (p *Partition) round() time.Duration {
	now := p.o.Now()
	p.mu.Lock()
	due, ok := p.queue.front()
	p.resume(now)
	passes := p.passes(now)
	p.mu.Unlock()
	if passes {
		p.o.Lanes.Wake()
	}
	if ok && due != none && due < now.UnixMilli() {
		p.life.Input.WatchRetention(time.UnixMilli(due).Add(-p.o.Topics.Delay))
	}
	p.watchAhead(now, due, ok)
	p.life.Steps.AwaitLeader()
	wait := ownership.Tick
	if ok {
		wait = min(ownership.Tick, time.UnixMilli(due).Sub(now))
	}
	if ok && wait <= 0 {
		p.o.Lanes.Wake()
	}
	if wait <= 0 {
		return ownership.Tick // whatever keeps it from being sealed wakes the lane when it ends
	}
	return wait
}

// passes reports whether a step may be of nothing, to move the position behind markers and aborted records at the end of
// the log: nobody would pass them otherwise, and Kafka's tools would show a lag for ever. The lock is held.
func (p *Partition) passes(now time.Time) bool {
	return p.acquired && len(p.queue.items) == 0 && p.queue.end > p.position && now.Sub(p.stepped).Abs() >= ownership.PassPause
}

// Wake makes the partition look at the clock again: it was set.
func (p *Partition) Wake() { p.life.Kick() }

// Life is what the partition has in common with those of other kinds.
func (p *Partition) Life() *ownership.Life { return p.life }

// Serving is that of its Life.
func (p *Partition) Serving() (s ownership.State, leaving bool) { return p.life.Serving() }

// SetLogEnd notes a look at the end of the log that is read.
func (p *Partition) SetLogEnd(e ownership.LogEnd) { p.life.Input.SetEnd(e) }

// Drain stops sealing and waits, for a second at most, until the step under way has ended.
func (p *Partition) Drain() { p.life.Drain() }

// Status returns a snapshot.
func (p *Partition) Status() ownership.Status {
	s := p.life.Status()
	now := p.o.Now().UnixMilli()
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Queued, s.QueuedBytes = len(p.queue.items), p.queue.bytes
	if p.acquired {
		s.Pending = max(0, p.end-p.position)
		if e, known := p.life.Input.End(); known && e.Held() {
			s.Pending = max(s.Pending, e.End-p.position)
		}
	}
	if due, ok := p.queue.front(); ok && due != none && due < now {
		s.Overdue = time.Duration(now-due) * time.Millisecond
		s.Uncommitted = s.Overdue // the front leaves the queue when it is committed
	}
	if p.blocked != nil {
		s.Parked = int64(len(p.queue.items))
		s.ParkedBy = map[timer.TopicPartition]int64{p.blocked.by: s.Parked}
	}
	return s
}

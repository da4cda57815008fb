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
	*ownership.Life
	o            Options
	waiter       *targets.Waiter
	alertedAhead time.Time // when it was last said that a timestamp lies far ahead; Run's own

	// Guarded by Mu, which is held over Reader.Pause and Resume, as are the fields of Life
	// that say so.
	queue    queue
	position int64 // just behind what is passed on
	end      int64 // of the log, as it was last seen
	acquired bool  // position is known
	paused   bool
	stepped  time.Time // when the last step was sealed
	blocked  *blocked  // what stands at the front, or behind what is under way, and may not go
}

// New returns a partition that Run will acquire.
func New(o Options) *Partition { return &Partition{Life: ownership.New(o.Options, o.Metrics), o: o} }

// Run acquires the partition and serves it until ctx ends or its token dies.
func (p *Partition) Run(ctx context.Context) {
	defer p.o.Queue.Close()
	p.Life.Run(ctx, p.serve, p.reset)
}

// reset forgets everything: the next serve begins from what is committed. The lane
// holds nothing of the partition at that point, nor does the reader.
func (p *Partition) reset() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.Reset()
	p.acquired, p.queue, p.blocked, p.paused = false, queue{}, nil, false
	p.o.Queue.Set(0)
}

// serve is one acquisition and the life after it.
func (p *Partition) serve(ctx context.Context) error {
	p.SetState(ownership.Acquiring)
	p.waiter = p.o.Health.Waiter(p.Kick)
	defer p.waiter.Close()
	p.JoinLane(p)
	defer p.LeaveLane(p)
	from, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	p.Aside = others.Go
	p.Own()
	topic := p.o.Topics.Request.Name
	p.o.Reader.Add(topic, p.o.Partition, from, p)
	defer p.o.Reader.Remove(topic, p.o.Partition, p)
	p.SetState(ownership.Live)
	p.Log.Info("partition live", "position", from, "delay", p.o.Topics.Delay)
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
		case <-p.Failed():
			return p.Failure()
		case <-p.Kicked:
		case <-t.C:
		}
		p.Look(ctx)
		p.admit()
		t.Reset(p.round())
	}
}

// round has the lane called if something is due and intake resumed if there is room. It
// returns when to look again.
func (p *Partition) round() time.Duration {
	now := p.o.Now()
	p.Mu.Lock()
	due, ok := p.queue.front()
	p.resume(now)
	passes := p.passes(now)
	p.Mu.Unlock()
	if passes {
		p.o.Lanes.Wake()
	}
	if ok && due != none && due < now.UnixMilli() {
		p.WatchRetention(time.UnixMilli(due).Add(-p.o.Topics.Delay))
	}
	p.watchAhead(now, due, ok)
	p.AwaitLeader()
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
func (p *Partition) Wake() { p.Kick() }

// Status returns a snapshot.
func (p *Partition) Status() ownership.Status {
	s := p.Life.Status()
	now := p.o.Now().UnixMilli()
	p.Mu.Lock()
	defer p.Mu.Unlock()
	s.Queued, s.QueuedBytes = len(p.queue.items), p.queue.bytes
	if p.acquired {
		s.Pending = max(0, p.end-p.position)
		if e, known := p.LogEnd(); known && e.Held() {
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

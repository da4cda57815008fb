package partition

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition/questions"
	"github.com/waterclock/waterclock/internal/partition/upcoming"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// Partition is one owned request partition, and the state that outlives an acquisition. Each acquisition makes its own
// receiver, lane and keeper: see served. Each of them has state of its own, and holds those parts of the others that it
// uses.
type Partition struct {
	Questions *questions.Questions

	// The following fields do not change.
	o     Options
	life  *ownership.Life
	clock clock

	// The following fields are safe for concurrent use.
	strayed atomic.Bool // a request has come whose ID belongs on another partition
	lag     atomic.Pointer[lag]
	ledger  ledger
	parked  atomic.Pointer[parked]
	served  atomic.Pointer[served] // of the present acquisition; nil if there is none

	// Only Run's goroutine uses the following fields.
	local   ownership.Local
	standby *ownership.Follower // from Take, until the first acquisition; nil: none
}

// served has the structs of one acquisition. The first three have the state of one goroutine each: receiver hands
// delivered requests to the goroutines that plan, lane seals requests and due timers into steps, and keeper keeps the
// store. They share the others.
type served struct {
	requests    *receiver
	lane        *lane
	keeper      *keeper
	subs        *subPartitions
	backlog     *backlog
	checkpoints *checkpoints
	forecast    *forecast
}

// source names the record that a generation of this partition comes from: a request or, if the timer was moved here,
// a changelog record.
func (p *Partition) source(generation int64) waterclock.Source {
	generation = timer.Ref{Offset: generation}.Generation()
	if at, moved := timer.MovedAt(generation); moved {
		return waterclock.Source{Topic: p.o.Topics.Changelog.Name, Partition: p.o.Partition, Offset: at}
	}
	return waterclock.Source{Topic: p.o.Topics.Request.Name, Partition: p.o.Partition, Offset: generation}
}

// hasEvents reports whether events are written for the request topic.
func (p *Partition) hasEvents() bool { return p.o.Topics.Events.Name != "" }

// New returns a partition that Run will acquire.
func New(o Options) *Partition {
	p := &Partition{
		o: o, life: ownership.New(o.Options, o.Metrics), clock: clock{now: o.Now},
		local: ownership.Local{Slots: o.Replays, Room: o.Memory.Replay, AcceptLost: o.AcceptLost},
	}
	p.Questions = questions.New(questions.Options{
		Life: p.life, Source: p.source, Scans: o.Scans, Memory: o.Memory.Questions,
		Call: func() { o.Lanes.Call() },
	})
	return p
}

// Take makes the first acquisition continue from the position of a standby's follower. It is called before Run.
func (p *Partition) Take(f *ownership.Follower) { p.standby = f }

// Run acquires the partition and serves it until ctx ends or its token dies.
func (p *Partition) Run(ctx context.Context) {
	defer p.o.Memory.close()
	defer p.o.Metrics.dropSeries(p.o.Topics.Request.Name, p.o.Partition)
	p.life.Run(ctx, func(ctx context.Context) error {
		err := p.serve(ctx)
		if statestore.IsCorrupt(err) || errors.Is(err, statestore.ErrNewerFormat) {
			p.local.Damage = err
		}
		return err
	})
}

// Upcoming returns how many timers fall due soon, as far as they are counted.
func (p *Partition) Upcoming() (due upcoming.Due) {
	if s := p.served.Load(); s != nil {
		due, _ = s.forecast.within()
	}
	return due
}

// Life returns the part that partitions of all kinds have in common.
func (p *Partition) Life() *ownership.Life { return p.life }

// SetLogEnd records a look at the end of the request log.
func (p *Partition) SetLogEnd(e ownership.LogEnd) { p.life.Input.SetEnd(e) }

// Drain stops sealing and waits, at most for a second, until the step under way has ended.
func (p *Partition) Drain() { p.life.Drain() }

// Wake tells the lanes and the partition that the clock was set.
func (p *Partition) Wake() {
	p.o.Lanes.Wake()
	p.life.Wake.Send()
}

// Checkpoint writes all committed changes to the store. It returns when that is done, ctx has ended, or the partition
// is not live.
func (p *Partition) Checkpoint(ctx context.Context) {
	if s := p.served.Load(); s != nil {
		s.keeper.flush(ctx)
	}
}

// newServed makes everything that serves an acquisition, around its lane, which exists already because it sealed the
// claim.
func (p *Partition) newServed(l *lane, from, pending int64) *served {
	p.ledger.open(pending)
	l.rates = p.o.Limiter.Own(timer.TopicPartition{Topic: p.o.Topics.Request.Name, Partition: p.o.Partition}, p.o.Token,
		p.life.Wake.Send)
	l.backlog, l.arrivals = newBacklog(p.o.Memory.Requests, p.o.Memory.Firings), newArrivals(from)
	l.subs = newSubPartitions(l, from, pending)
	l.checkpoints = newCheckpoints(l)
	r, f := newReceiver(l, from), &forecast{part: p, store: l.store, subs: l.subs, checkpoints: l.checkpoints}
	return &served{requests: r, lane: l, keeper: newKeeper(l, r, f), subs: l.subs, backlog: l.backlog,
		checkpoints: l.checkpoints, forecast: f}
}

// serve acquires the partition and serves it until ctx ends or something fails. At the end it stops planning, then
// answering, then sealing, and then stores all committed changes.
func (p *Partition) serve(ctx context.Context) error {
	p.life.SetState(ownership.Acquiring)
	store := p.o.Store.Acquire()
	defer store.Release()
	l := p.newLane(store)
	source := p.life.Steps.Join(l)
	a, claimed, end, err := p.acquire(ctx, l)
	if err != nil {
		source.Leave()
		return err
	}
	defer p.served.Store(nil) // frees its memory, since the next acquisition may never come
	defer a.keeper.stop()
	defer source.Leave()
	p.Questions.Open(questions.Acquisition{Planners: a.subs, Store: store, Flush: a.keeper.flush})
	defer p.Questions.Close()
	p.life.SetState(ownership.Gated)
	p.life.Own(claimed)
	a.requests.start(ctx, end)
	defer a.requests.stop()
	return a.keeper.loop(ctx)
}

// Status returns a snapshot.
func (p *Partition) Status() ownership.Status {
	s := p.life.Status()
	s.Pending = p.ledger.pending.Load()
	acquired := p.served.Load()
	if acquired != nil {
		if names := acquired.keeper.missing.Load(); names != nil {
			s.MissingCalendars = *names
		}
		n, known := p.o.Store.Misplaced()
		if s.Misplaced = n; !known {
			s.Misplaced = -1
		}
	}
	switch s.State {
	case ownership.Gated, ownership.Live, ownership.Stalled:
		s.Ledger = p.ledger.balance()
	}
	if acquired != nil && p.Questions.IsOpen() {
		s.Overdue, s.Uncommitted = acquired.subs.overdue(p.clock.millis())
	}
	p.parked.Load().show(&s, p.clock.millis())
	s.Behind, s.Lag = p.lag.Load().now(p.o.Now(), false, unread{})
	if acquired != nil {
		queued := acquired.backlog.onTheirWay()
		s.Queued, s.QueuedBytes = queued.Entries, queued.Bytes
		s.Behind, s.Lag = acquired.requests.lagNow()
	}
	return s
}

// HasStrays reports whether timers may be pending here whose IDs belong on other partitions: the store has some or does
// not count them, or a request for one has come since the process owns the partition.
func (p *Partition) HasStrays() bool { return p.strayed.Load() || p.Status().Misplaced != 0 }

// acquire makes this process the partition's owner (DESIGN.md, "Acquiring a partition"), and makes the structs that
// serve it.
func (p *Partition) acquire(ctx context.Context, l *lane) (s *served, claimed ownership.Claimed, end int64, err error) {
	// When ctx ends, losing the handle ends a replay's wait for the disk, which may take half a minute.
	stop := context.AfterFunc(ctx, l.store.Release)
	defer stop()
	p.local.Handle = l.store
	got, err := p.life.Acquire(ctx, p.follower(), p.begin)
	if err != nil {
		return nil, claimed, 0, err
	}
	p.standby = nil
	from, end, err := p.requestPosition(ctx, &got.Last, got.Committed)
	if err != nil {
		return nil, claimed, 0, err
	}
	meta, err := l.store.Meta()
	if err != nil {
		return nil, claimed, 0, err
	}
	if err := l.store.Live(got.Now, p.o.Token.Confirmed); err != nil {
		return nil, claimed, 0, err
	}
	s = p.newServed(l, from, meta.Pending)
	if err = s.keeper.open(); err != nil {
		return nil, claimed, 0, err
	}
	p.served.Store(s)
	return s, got.Claimed, end, nil
}

// follower returns the follower that an acquisition begins with.
func (p *Partition) follower() *ownership.Follower {
	if p.standby == nil {
		return p.life.NewFollower(&p.local)
	}
	p.life.TakeOver(p.standby, &p.local)
	return p.standby
}

// begin returns the first request to read if the changelog holds no checkpoint.
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
		p.life.Log.Warn("changelog lost, which is accepted: reading requests from the log's start, so "+
			"timers that have fired and whose requests are still there fire again", "position", start,
			"committed", committed)
	} else {
		p.life.Log.Info("first acquisition: reading requests from the log's start", "position", start)
	}
	return start, nil
}

// requestPosition returns the first request to read, according to the last checkpoint before the claim.
func (p *Partition) requestPosition(ctx context.Context, last *wire.Checkpoint,
	committed int64) (from, end int64, err error) {
	if last.Request != p.o.Topics.Request.ID {
		return 0, 0, &ownership.Fatal{Err: fmt.Errorf("request topic %s was recreated since changelog %s was "+
			"written, which keeps its pending timers (its ID is %s, it was %s): %s",
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
		p.life.Log.Warn("group offset ignored, it differs from the changelog's checkpoint", "committed",
			committed, "checkpoint", last.Position)
	}
	return p.life.Input.ReadFrom(ctx, last)
}

package partition

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// inbox has the work that waits for the goroutine of a sub-partition, in this order.
type inbox struct {
	wake beats.Signal

	mu      sync.Mutex // guards the following fields
	batches []*planner.Batch
	opens   bool       // the catch-up barrier opens
	ahead   timer.Size // room for firings of the next step; zero: plan none
}

// update changes the guarded fields, and wakes the goroutine.
func (in *inbox) update(change func()) {
	in.mu.Lock()
	change()
	in.mu.Unlock()
	in.wake.Send()
}

func (in *inbox) put(b *planner.Batch) {
	b.Handed = time.Now()
	in.update(func() { in.batches = append(in.batches, b) })
}

func (in *inbox) takeAll() (batches []*planner.Batch, opens bool, ahead timer.Size) {
	in.mu.Lock()
	defer in.mu.Unlock()
	batches, opens, ahead = in.batches, in.opens, in.ahead
	in.batches, in.opens, in.ahead = nil, false, timer.Size{}
	return batches, opens, ahead
}

// planAll plans the batches that the sub-partition is handed, on a goroutine of its own, until ctx ends. It waits for
// the store if it has to look up IDs. Firings do not wait for it, nor do other sub-partitions. If a look-up fails, the
// partition is acquired again.
func (s *subPartition) planAll(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.planHanded(ctx); err != nil {
			if ctx.Err() == nil {
				s.part.life.GiveUp(err)
			}
			return
		}
		select {
		case <-ctx.Done():
		case <-s.inbox.wake:
		}
	}
}

func (s *subPartition) planHanded(ctx context.Context) error {
	batches, opens, ahead := s.inbox.takeAll()
	for _, b := range batches {
		s.part.o.Metrics.waited.Observe(time.Since(b.Handed).Seconds())
		if err := s.plan(ctx, b); err != nil {
			return err
		}
		s.part.Questions.Planned(s.subs.progress.Bound())
		s.part.o.Lanes.Wake()
	}
	if opens {
		now := s.part.clock.millis()
		s.arrivals.opened.Store(now)
		s.locked(func() { s.planner.Open(now) })
		s.part.o.Lanes.Wake()
	}
	if ahead != (timer.Size{}) { // after the requests, since there may be cancels among them
		s.fire(s.part.clock.millis(), ahead, s.backlog.behind(len(s.subs.all)))
		s.part.o.Lanes.Wake()
	}
	return nil
}

// requestPool has lists for the requests of a batch, which are needed only until it is planned.
var requestPool = sync.Pool{New: func() any { return new([maxBatch]timer.Request) }}

// plan validates a batch and plans it.
func (s *subPartition) plan(ctx context.Context, b *planner.Batch) error {
	s.locked(s.work.begin)
	defer s.locked(s.work.end)
	requests := requestPool.Get().(*[maxBatch]timer.Request)
	b.Use(requests[:])
	defer func(n int) {
		clear(requests[:n])
		requestPool.Put(requests)
	}(b.Size().Entries)
	for b != nil {
		rest, err := s.validate(ctx, b)
		if err == nil {
			err = s.planBatch(b)
		}
		if err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// fire plans firings of due timers, as many as there is room for. behind bounds the firings behind unsettled requests.
// Timers whose targets are unhealthy wait for the keeper, which parks them.
func (s *subPartition) fire(now int64, room, behind timer.Size) timer.Size {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work.begin()
	defer s.work.end()
	fired, held := s.planner.Fire(now, room, behind,
		func(t *timer.Timer, permit any, fires bool) (timer.TopicPartition, bool) {
			return s.hold(t, permit, fires, now)
		})
	s.backlog.fired(fired)
	if held != nil {
		s.toPark = append(s.toPark, held)
		for _, l := range held {
			s.toParkBytes += l.Bytes
		}
		s.part.life.Wake.Send()
	}
	return fired
}

// turn is the permit of a deferred timer that has its turn: a token is promised to it.
type turn struct{}

// hold is the planner's Hold at a time, Unix ms. A timer whose target is healthy may be deferred. One that a breaker
// has admitted does not wait for those that are deferred already, because these need the breaker to close. What is not
// emitted needs no token.
func (s *subPartition) hold(t *timer.Timer, permit any, fires bool, now int64) (by timer.TopicPartition, held bool) {
	by, held = s.part.hold(t, permit)
	a := s.rates.Of(t.Target.Topic)
	switch {
	case a == nil:
		return by, held
	case held, !fires:
		if permit == any(turn{}) {
			a.Drop(1)
		}
		return by, held
	case permit == any(turn{}), a.Admit(now, permit != nil):
		return by, false
	}
	return deferredFor(t.Target.Topic), true
}

// deferredFor stands for the target of timers that are deferred.
func deferredFor(topic string) timer.TopicPartition {
	return timer.TopicPartition{Topic: topic, Partition: timer.Deferred}
}

// takeToPark returns the timers that wait to be parked.
func (s *subPartition) takeToPark() (all []planner.Parkings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, s.toPark, s.toParkBytes = s.toPark, nil, 0
	return all
}

// planBatch plans a validated batch. Without the lock it looks up the IDs that the planner does not know in the store.
func (s *subPartition) planBatch(b *planner.Batch) (err error) {
	s.locked(func() { s.planner.Prepare(b) })
	refs, timers, parked := make([]timer.Ref, len(b.IDs)), []*timer.Timer(nil), []bool(nil)
	if len(b.IDs)+len(b.Whole) > 0 {
		if s.part.o.BeforeLookup != nil {
			s.part.o.BeforeLookup(b.IDs)
		}
		err = s.store.LookupAll(b.IDs, refs)
	}
	if err == nil && s.part.hasEvents() {
		b.Labels, err = s.labelsToEnd(b, refs)
	}
	if err == nil && len(b.Whole) > 0 {
		timers, parked, err = s.store.GetAll(b.Whole)
	}
	if err != nil {
		return err
	}
	position := b.Position
	s.mu.Lock()
	s.planner.Resolve(b, refs, timers, parked, s.part.clock.millis())
	s.backlog.delivered(timer.Size{Bytes: s.planner.Plan(b)})
	s.mu.Unlock()
	s.subs.progress.Planned(s.number, position)
	return nil
}

// labelsToEnd returns the labels of the timers that a batch cancels, which only their events need. A cancel reads the
// timer for that alone, and not from memory, so without events it costs nothing.
func (s *subPartition) labelsToEnd(b *planner.Batch, refs []timer.Ref) (map[string]timer.Labels, error) {
	var ids [][]byte
	for i, id := range b.IDs {
		if b.Cancels(i) && refs[i].IsPending() {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return s.store.LabelsOf(ids)
}

// validate makes requests or refusals of the records of a batch. If maxDepending of the requests depend on the pending
// timer, it returns the records behind them as a batch of its own.
func (s *subPartition) validate(ctx context.Context, b *planner.Batch) (rest *planner.Batch, err error) {
	now, rules := s.part.clock.millis(), s.part.o.Rules.Current()
	if rules.Quota.Pending > 0 {
		b.Full = rules.Full
	}
	if err := s.awaitCalendars(ctx, b); err != nil {
		return nil, err
	}
	bytes, depending, limit := int64(0), 0, maxDepending(rules)
	for i, record := range b.Records() {
		rec := record.(*kgo.Record)
		bytes += recordSize(rec)
		depends, err := s.validateRecord(b, i, rec, now)
		switch {
		case err != nil:
			return nil, err
		case depends:
			depending++
		}
		if depending == limit {
			return b.Split(i+1, bytes), nil
		}
	}
	return nil, nil
}

// maxDepending is how many requests of a batch may depend on the pending timer. Such a request is small, but from the
// look-up to the commit it holds its timer in memory, which may be as large as the topic allows. A step takes a batch
// whole.
func maxDepending(rules *intake.Rules) int {
	if rules.Limits.RecordBytes <= 0 {
		return 1
	}
	return max(1, maxBatchBytes/rules.Limits.RecordBytes)
}

// validateRecord makes a request or a refusal of a record. It reports whether the outcome depends on the pending timer.
func (s *subPartition) validateRecord(b *planner.Batch, i int, rec *kgo.Record, now int64) (depends bool, err error) {
	r, misplaced, refused := s.part.o.Rules.Validate(rec, now)
	switch {
	case misplaced && refused != nil && refused.Reason == string(waterclock.ReasonWrongPartition):
		s.part.o.Metrics.misplaced(rec.Topic) // the refusal reports it
	case misplaced:
		s.misplaced(rec)
	}
	if refused != nil {
		b.Refuse(i, refused)
		return false, nil
	}
	if r.Schedule != nil {
		if err := r.Own(); err != nil {
			return false, err
		}
		s.part.o.Targets.Prefetch(r.Schedule.Target.Topic)
	}
	b.Set(i, r)
	return r.Depends(), nil
}

// misplaced counts and logs a request that is not on the partition of its key.
func (s *subPartition) misplaced(rec *kgo.Record) {
	s.part.o.Metrics.misplaced(rec.Topic)
	s.part.strayed.Store(true)
	if log := s.part.o.Metrics.warnings.logger(s.part.life.Log, rec.Topic, misplacedWarning); log != nil {
		log.Warn("request on the wrong partition, cancels and replacements by others will miss its timers; set "+
			"its partitioner to murmur2 (librdkafka: partitioner=murmur2_random)",
			"timer", shortID(rec.Key), "offset", rec.Offset, "key_partition",
			intake.Murmur2Partition(rec.Key, s.part.o.Topics.Request.Partitions))
	}
}

// recordSize is about how many bytes a record holds in memory once it is planned, which is more than before.
func recordSize(r *kgo.Record) int64 {
	n := planner.TimerMemory + planner.EntryMemory + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 40 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// work measures how long the planner of a sub-partition is at work. Its own goroutine plans requests while a lane plans
// firings, and one of them may wait for the other. Time in which both are at work counts once. The lock of the planner
// guards it: a caller that waits for the lock waits for one that is at work.
type work struct {
	busy    prometheus.Counter
	share   float64 // of this planner in busy
	running int
	since   time.Time // when running rose from 0
}

func (w *work) begin() {
	if w.running++; w.running == 1 {
		w.since = time.Now()
	}
}

func (w *work) end() {
	if w.running--; w.running == 0 {
		w.busy.Add(time.Since(w.since).Seconds() * w.share)
	}
}

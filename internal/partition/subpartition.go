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

// inbox holds, in order, the deliveries that the goroutine of a sub-partition has yet to take.
type inbox struct {
	wake beats.Signal

	mu    sync.Mutex // guards the following fields
	list  []delivery
	ahead timer.Size // room for firings of the next step; zero: plan none
}

// delivery is a run of requests that are planned as one batch, or one batch of the log that is too large to be
// decompressed, or the message that opens the catch-up barrier.
type delivery struct {
	recs     []*kgo.Record
	position int64          // just behind the last one
	bytes    int64          // of memory that the records hold
	refusal  *timer.Refusal // set if the one record stands for a batch that is too large
	open     bool
	at       time.Time // when it was put here
}

func newInbox() *inbox { return &inbox{wake: beats.NewSignal()} }

func (in *inbox) put(d delivery) {
	d.at = time.Now()
	in.mu.Lock()
	in.list = append(in.list, d)
	in.mu.Unlock()
	in.wake.Send()
}

// putAhead makes the goroutine plan firings: see lane.fireAhead.
func (in *inbox) putAhead(room timer.Size) {
	in.mu.Lock()
	in.ahead = room
	in.mu.Unlock()
	in.wake.Send()
}

func (in *inbox) takeAll() (list []delivery, ahead timer.Size) {
	in.mu.Lock()
	defer in.mu.Unlock()
	list, ahead = in.list, in.ahead
	in.list, in.ahead = nil, timer.Size{}
	return list, ahead
}

// planAll plans what the sub-partition is handed, on a goroutine of its own, until ctx ends. It waits for the store if
// it has to look up IDs. Firings do not wait for it, nor do other sub-partitions. If a look-up fails, the partition is
// acquired again.
func (s *subPartition) planAll(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.planHanded(); err != nil {
			s.life.GiveUp(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-s.inbox.wake:
		}
	}
}

func (s *subPartition) planHanded() error {
	list, ahead := s.inbox.takeAll()
	for _, d := range list {
		if !d.open {
			s.o.Metrics.waited.Observe(time.Since(d.at).Seconds())
		}
		if err := s.plan(&d); err != nil {
			return err
		}
		s.o.Lanes.Wake()
	}
	if ahead != (timer.Size{}) { // after the requests, since there may be cancels among them
		s.fire(s.clock.millis(), ahead, s.backlog.behind(len(s.subs.all)))
		s.o.Lanes.Wake()
	}
	return nil
}

// plan plans a delivery, or opens the catch-up barrier: see delivery.
func (s *subPartition) plan(d *delivery) error {
	if d.open {
		now := s.clock.millis()
		s.arrivals.opened.Store(now)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.planner.Open(now)
		return nil
	}
	s.work.begin()
	defer s.work.end()
	for len(d.recs) > 0 {
		b, err := s.validateSome(d)
		if err == nil {
			err = s.planBatch(b)
		}
		if err != nil {
			return err
		}
		s.subs.progress.Planned(s.number, b.Position)
	}
	return nil
}

// fire plans firings of due timers, as many as there is room for. behind bounds the firings behind unsettled requests.
// Timers whose targets are unhealthy go to the keeper instead.
func (s *subPartition) fire(now int64, room, behind timer.Size) timer.Size {
	s.work.begin()
	defer s.work.end()
	s.mu.Lock()
	fired, held := s.planner.Fire(now, room, behind, s.hold)
	s.mu.Unlock()
	s.backlog.fired(fired)
	s.toPark.put(s, held)
	return fired
}

// planBatch plans a batch. It looks up in the store, without the lock, the IDs that the planner does not know.
func (s *subPartition) planBatch(b *planner.Batch) (err error) {
	s.mu.Lock()
	unknown := s.planner.Meet(b)
	s.mu.Unlock()
	refs, timers, parked := make([]timer.Ref, len(unknown.IDs)), []*timer.Timer(nil), []bool(nil)
	if !unknown.Empty() {
		if s.o.BeforeLookup != nil {
			s.o.BeforeLookup(unknown.IDs)
		}
		err = s.store.LookupAll(unknown.IDs, refs)
	}
	if err == nil && len(unknown.Whole) > 0 {
		timers, parked, err = s.store.GetAll(unknown.Whole)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unknown.Found(refs, timers, parked, s.clock.millis())
	s.backlog.delivered(timer.Size{Bytes: s.planner.Plan(b)})
	return nil
}

// validateSome takes records off the delivery and makes a batch of requests of them. It takes all of them, or as many
// as have maxDepending requests among them that depend on what is pending.
func (s *subPartition) validateSome(d *delivery) (*planner.Batch, error) {
	now, rules := s.clock.millis(), s.o.Rules.Current()
	b := planner.NewBatch(len(d.recs))
	if rules.Quota.Pending > 0 {
		b.Full = rules.Full
	}
	n, bytes, depending := 0, int64(0), 0
	for limit := maxDepending(rules); n < len(d.recs) && depending < limit; n++ {
		rec := d.recs[n]
		if bytes += recordSize(rec); d.refusal != nil {
			b.Refuse(rec, rec.Offset, d.refusal)
			continue
		}
		depends, err := s.validate(b, rec, now)
		if err != nil {
			return nil, err
		}
		if depends {
			depending++
		}
	}
	b.Position, b.Bytes = d.position, d.bytes
	if n < len(d.recs) {
		b.Position, b.Bytes = d.recs[n-1].Offset+1, bytes
	}
	d.recs, d.bytes = d.recs[n:], d.bytes-b.Bytes
	return b, nil
}

// maxDepending is how many requests of a batch may depend on what is pending. Such a request is small, but from the
// look-up to the commit it holds its timer in memory, which may be as large as the topic allows. A step takes a
// batch whole.
func maxDepending(rules *intake.Rules) int {
	if rules.Limits.RecordBytes <= 0 {
		return 1
	}
	return max(1, maxBatchBytes/rules.Limits.RecordBytes)
}

// validate adds a record to a batch, as a request or as a refusal. It reports whether the outcome depends on what is
// pending.
func (s *subPartition) validate(b *planner.Batch, rec *kgo.Record, now int64) (depends bool, err error) {
	r, misplaced, refused := s.o.Rules.Validate(rec, now)
	switch {
	case misplaced && refused != nil && refused.Reason == string(waterclock.ReasonWrongPartition):
		s.o.Metrics.misplaced(rec.Topic) // the refusal reports it
	case misplaced:
		s.misplaced(rec)
	}
	if refused != nil {
		b.Refuse(rec, rec.Offset, refused)
		return false, nil
	}
	var value []byte
	if r.Schedule != nil {
		// A timer that waits in memory must not keep a whole fetched batch alive. The copy is the timer's bytes,
		// which the changelog and the store need anyway.
		if value, err = r.Schedule.Own(); err != nil {
			return false, err
		}
		r.ID = r.Schedule.ID
		s.o.Targets.Prefetch(r.Schedule.Target.Topic)
	}
	b.Add(rec, r, value)
	return r.Depends(), nil
}

// misplaced counts and logs a request that is not on the partition of its key.
func (o *owned) misplaced(rec *kgo.Record) {
	o.o.Metrics.misplaced(rec.Topic)
	o.strayed.Store(true)
	if log := o.o.Metrics.warnings.logger(o.life.Log, rec.Topic, misplacedWarning); log != nil {
		log.Warn("a producer uses another partitioner: cancels and replacements by others will miss its timers; set "+
			"its partitioner to murmur2 (librdkafka: partitioner=murmur2_random)",
			"timer", shortID(rec.Key), "offset", rec.Offset, "key_belongs_on",
			intake.Murmur2Partition(rec.Key, o.o.Topics.Request.Partitions))
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
// firings, and one of them may wait for the other. What overlaps counts once.
type work struct {
	busy  prometheus.Counter
	share float64 // of this planner in busy

	mu      sync.Mutex // guards what follows
	running int
	since   time.Time // when running rose from 0
}

func (w *work) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running++; w.running == 1 {
		w.since = time.Now()
	}
}

func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running--; w.running == 0 {
		w.busy.Add(time.Since(w.since).Seconds() * w.share)
	}
}

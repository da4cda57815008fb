package delaytopics

import (
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer"
)

// relay passes on the records of a partition, for one acquisition. It implements partlog.Sink, which fills the queue,
// and emitter.Source, which empties it.
type relay struct {
	o            *Options
	life         *ownership.Life
	waiter       *targets.Waiter
	alertedAhead time.Time // last log entry about a timestamp far ahead; belongs to Run's goroutine

	mu       sync.Mutex // guards the following fields; held over Reader.Pause and Resume
	queue    queue
	position int64 // every record below was passed on
	end      int64 // of the log, when last read
	paused   bool
	stepped  time.Time // when the last step was sealed
	blocked  *blocked  // nil: the record at the front may go
}

var (
	_ partlog.Sink   = (*relay)(nil)
	_ emitter.Source = (*relay)(nil)
)

func newRelay(o *Options, life *ownership.Life) *relay {
	return &relay{o: o, life: life, waiter: o.Health.Waiter(life.Wake.Send)}
}

// begin sets the offset to read from and the end of the log. It comes before all other calls except Seal, which finds
// that the partition is not owned.
func (r *relay) begin(from, end int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.position, r.end = from, end
}

// close releases the relay's memory. It comes after all other calls.
func (r *relay) close() {
	r.waiter.Close()
	r.o.Queue.Set(0)
}

// round wakes the lanes if a record is due, and resumes intake if there is room. It returns the time of the next
// check.
func (r *relay) round() time.Duration {
	now := r.o.Now()
	r.mu.Lock()
	due, ok := r.queue.front()
	r.resume(now)
	passes := r.passesMarkers(now)
	r.mu.Unlock()
	if passes {
		r.o.Lanes.Wake()
	}
	if ok && due != none && due < now.UnixMilli() {
		r.life.Input.WatchRetention(time.UnixMilli(due).Add(-r.o.Topics.Delay))
	}
	r.watchAhead(now, due, ok)
	r.life.Steps.AwaitLeader()
	if !ok {
		return ownership.Tick
	}
	wait := min(ownership.Tick, time.UnixMilli(due).Sub(now))
	if wait <= 0 {
		r.o.Lanes.Wake()
		return ownership.Tick // if something prevents the seal, the end of that wakes the lanes
	}
	return wait
}

// passesMarkers reports whether a step without records may move the position behind markers and aborted records at
// the end of the log. Otherwise no step would pass them, and Kafka's tools would show a lag forever. The lock is held.
func (r *relay) passesMarkers(now time.Time) bool {
	return len(r.queue.items) == 0 && r.queue.end > r.position && now.Sub(r.stepped).Abs() >= ownership.PassPause
}

// show adds the relay's part to a status.
func (r *relay) show(s *ownership.Status) {
	now := r.o.Now().UnixMilli()
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Queued, s.QueuedBytes = len(r.queue.items), r.queue.bytes
	s.Pending = max(0, r.end-r.position)
	if e, known := r.life.Input.End(); known && e.Held() {
		s.Pending = max(s.Pending, e.End-r.position)
	}
	if due, ok := r.queue.front(); ok && due != none && due < now {
		s.Overdue = time.Duration(now-due) * time.Millisecond
		s.Uncommitted = s.Overdue // the front leaves the queue when it is committed
	}
	if r.blocked != nil {
		s.Parked = int64(len(r.queue.items))
		s.ParkedBy = map[timer.TopicPartition]int64{r.blocked.by: s.Parked}
	}
}

// blocked means that an item may not go now, because its target is unhealthy or unknown, and neither may the items
// behind it. It ends when an item from there on is committed. The waiter admits items: those that go carry the
// permit.
type blocked struct {
	by       timer.TopicPartition
	next     int64 // the position after the item
	permit   *targets.Permit
	admitted int // how many items may go; 0: none, and the waiter reports when that changes
	used     int // how many of them are in the share that is being made or in flight
}

// route chooses the partition of an item as a Java client would. Without a key that is the partition of the same
// number, so the order is kept. It asks no broker.
func (r *relay) route(it *item) (to timer.TopicPartition, refusal *timer.Refusal) {
	to = timer.TopicPartition{Topic: it.says.Target, Partition: timer.Unplaced}
	target, known := r.o.Targets.Cached(it.says.Target)
	if !known {
		return r.o.Targets.ExamineAnyway(to.Topic), nil // at most one topic for each partition: that of its front
	}
	n := int32(len(target.Leader))
	switch {
	case target.Err != nil:
		return to, partition.RefusalOf(target.Err, &kgo.Record{Topic: to.Topic})
	case target.Compacted && it.rec.Key == nil:
		return to, partition.NoKey(to.Topic, "record")
	case it.rec.Key == nil:
		to.Partition = r.o.Partition % n
	default:
		to.Partition = intake.Murmur2Partition(it.rec.Key, n)
	}
	return to, nil
}

// mayGo reports whether an item may go now, and with which permit. If it may not, everything behind it waits too, and
// the waiter waits for its target. The lock is held.
func (r *relay) mayGo(to timer.TopicPartition, next int64) (*targets.Permit, bool) {
	if r.o.Health.Allow(to, nil) {
		return nil, true
	}
	b := r.blocked
	if b != nil && b.by == to && b.used < b.admitted && r.o.Health.Allow(to, b.permit) {
		b.used++
		return b.permit, true
	}
	if b != nil && b.by != to {
		r.waiter.Leave(b.by)
		b = nil
	}
	if b == nil {
		b = &blocked{by: to}
		r.blocked = b
	}
	b.next = next
	if to.Partition < 0 {
		r.o.Health.Suspect(to) // an unknown partition trips no breaker
	}
	if b.used == 0 { // otherwise the admitted items are committed first
		b.admitted, b.permit = 0, nil
		r.waiter.Wait(to)
	}
	return nil, false
}

// unblock is called when a step is committed. If the step passed the blocked item, nothing is blocked any more. The
// lock is held.
func (r *relay) unblock() {
	b := r.blocked
	if b == nil {
		return
	}
	b.admitted, b.used = b.admitted-b.used, 0
	if r.position >= b.next {
		r.waiter.Leave(b.by)
		r.blocked = nil
	}
}

// admit asks the waiter how many items may go now.
func (r *relay) admit() {
	for _, to := range r.waiter.Ready() {
		r.mu.Lock()
		b := r.blocked
		waits := b != nil && b.by == to && b.used == 0
		r.mu.Unlock()
		if !waits {
			continue
		}
		n, permit := r.waiter.Admit(to, math.MaxInt32)
		if n == 0 {
			continue // the waiter reports again
		}
		r.mu.Lock()
		if r.blocked == b {
			b.admitted, b.permit = n, permit
		}
		r.mu.Unlock()
		r.o.Lanes.Wake()
	}
}

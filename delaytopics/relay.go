package delaytopics

import (
	"sync"
	"time"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

// relay passes on the records of a partition, for one acquisition. It implements partlog.Sink, which fills the queue,
// and transaction.Source, which empties it.
type relay struct {
	o            *Options
	life         *ownership.Life
	waiter       *targets.Waiter
	alertedAhead time.Time // when the log last said that a timestamp lies far ahead; belongs to Run's goroutine

	mu       sync.Mutex // guards the following fields; held over Reader.Pause and Resume
	queue    queue
	position int64 // every record below was passed on
	end      int64 // of the log, as it was last seen
	paused   bool
	stepped  time.Time // when the last step was sealed
	blocked  *blocked  // nil: the record at the front may go
}

func newRelay(o *Options, life *ownership.Life) *relay {
	return &relay{o: o, life: life, waiter: o.Health.Waiter(life.Wake.Send)}
}

// begin notes where records are read from, and where their log ends. It comes before all other calls except Seal,
// which finds that the partition is not owned.
func (r *relay) begin(from, end int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.position, r.end = from, end
}

// close gives back what the relay held. It comes after all other calls.
func (r *relay) close() {
	r.waiter.Close()
	r.o.Queue.Set(0)
}

// round wakes the lanes if a record is due, and resumes intake if there is room. It returns when to look again.
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
		return ownership.Tick // if something keeps it from being sealed, the end of that wakes the lanes
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

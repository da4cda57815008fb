package emitter

import (
	"context"
	"sync"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// Lane is one loop of steps. It is one of the Lanes, or belongs to their quarantine.
type Lane struct {
	of         *roster
	background *background
	o          *Options // a quarantine's has its own
	name       string   // of its steps and transactional IDs within the process
	pool       *pool
	aborts     aborts
	counter    int64 // of steps
	pace       pace
	more       bool    // the step under way may have left behind something that was ready
	timings    timings // of the step under way
	filled     float64 // which part of its room the step under way uses
	size       size    // of the next step

	called  chan struct{} // tells a spare lane to join
	reached beats.Signal  // tells the step under way that a broker came or went

	mu    sync.Mutex // guards under
	under underWay
}

// underWay is what the step under way needs and what gives it up; the zero value if there is none.
type underWay struct {
	current *txnClient         // the coordinator of this client is needed now
	joining map[string][]int32 // the partitions the step will write to, until joined
	cancel  context.CancelCauseFunc
}

func newLane(of *roster, a *background, o *Options, name string) *Lane {
	return &Lane{
		of: of, background: a, o: o, name: name, pool: newPool(a, o, name), aborts: aborts{background: a, o: o},
		called: make(chan struct{}, 1), reached: beats.NewSignal(),
		pace: pace{interval: o.Interval}, size: size{limit: MaxStepEntries},
	}
}

// anyAway reports whether the leader of one of these partitions cannot be reached.
func (l *Lane) anyAway(parts map[string][]int32) bool {
	if l.o.Leaders.AllReachable() {
		return false
	}
	for topic, ps := range parts {
		for _, p := range ps {
			if l.o.Leaders.Away(timer.TopicPartition{Topic: topic, Partition: p}) {
				return true
			}
		}
	}
	return false
}

// during returns a context for a step that is to write to parts. It ends, with errAway, when one of these cannot be
// reached any more:
//   - the coordinator that the step needs, see needs;
//   - until joined, the leader of one of parts. Since nothing has been written, it is cheaper to abandon this step
//     and leave the partition out of the next. Waiting could take long: the coordinators may be waiting for the same
//     broker.
//
// The caller must call end.
func (l *Lane) during(ctx context.Context, parts map[string][]int32) (during context.Context, end func()) {
	during, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	l.under = underWay{joining: parts, cancel: cancel}
	l.mu.Unlock()
	return during, func() {
		l.mu.Lock()
		l.under = underWay{}
		l.mu.Unlock()
		cancel(nil)
	}
}

// needs notes the client whose coordinator the step under way needs.
func (l *Lane) needs(c *txnClient) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under.current = c
	l.leave()
}

// joined notes that the step under way begins to write. From here on produce decides about leaders that cannot be
// reached.
func (l *Lane) joined() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under.joining = nil
}

// leave gives up the step under way if a broker that it needs cannot be reached. The lock is held.
func (l *Lane) leave() {
	if l.under.cancel != nil && (l.under.current != nil && l.pool.away(l.under.current) || l.anyAway(l.under.joining)) {
		l.under.cancel(errAway)
	}
}

// reachedNow makes the lane give up what can no longer be reached.
func (l *Lane) reachedNow() {
	l.mu.Lock()
	l.leave()
	l.mu.Unlock()
	l.pool.leave()
	l.reached.Send()
}

package delaytopics

import (
	"math"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer"
)

// blocked says that an item may not go now, because its target is unhealthy or not known, and neither may the items
// behind it. It ends when an item from there on is committed. The waiter admits items: those that go carry the permit.
type blocked struct {
	by       timer.TopicPartition
	next     int64 // the position behind the item
	permit   *targets.Permit
	admitted int // how many items may go; 0: none, and the waiter tells when that changes
	used     int // how many of them are in the share that is being made or is out
}

// route chooses the partition of an item as a Java client would. Without a key that is the partition of the same
// number, so the order is kept. It asks no broker.
func (r *relay) route(it *item) (to timer.TopicPartition, refusal *intake.Refusal) {
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
	if b.used == 0 { // otherwise the items that go are committed first
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
			continue // the waiter tells again
		}
		r.mu.Lock()
		if r.blocked == b {
			b.admitted, b.permit = n, permit
		}
		r.mu.Unlock()
		r.o.Lanes.Wake()
	}
}

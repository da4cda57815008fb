package delaytopics

import (
	"math"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

// blocked is an item that may not go now, since its target is unhealthy or not known, and
// everything behind it. It ends when an item from there on is committed. What may pass is
// told by the waiter: permit, for granted items, goes with those that pass.
type blocked struct {
	by       timer.TopicPartition
	next     int64 // the position behind the item
	permit   *targets.Permit
	admitted int // items that may pass; 0: none, and the waiter tells when
	used     int // of those, in the share that is being made or is out
}

// route chooses where an item goes: as a Java client would, and without a key to the
// partition of the same number, so that its order is kept. It asks nobody.
func (p *Partition) route(it *item) (to timer.TopicPartition, refusal *intake.Refusal) {
	to = timer.TopicPartition{Topic: it.says.Target, Partition: timer.Unplaced}
	target, known := p.o.Targets.Cached(it.says.Target)
	if !known {
		return p.o.Targets.ExamineAnyway(to.Topic), nil // one of each partition: what is at its front
	}
	n := int32(len(target.Leader))
	switch {
	case target.Err != nil:
		return to, refused(partition.TargetRefusal(target.Err, &kgo.Record{Topic: to.Topic}))
	case target.Compacted && it.rec.Key == nil:
		return to, refused(partition.NoKey(to.Topic))
	case it.rec.Key == nil:
		to.Partition = p.o.Partition % n
	default:
		to.Partition = intake.Murmur2Partition(it.rec.Key, n)
	}
	return to, nil
}

func refused(reason, detail string) *intake.Refusal {
	return &intake.Refusal{Reason: waterclock.Reason(reason), Detail: detail}
}

// pass reports whether an item may go now, and with which permit. If it may not, all
// behind it waits, and this partition for its target. The lock is held.
func (p *Partition) pass(to timer.TopicPartition, next int64) (*targets.Permit, bool) {
	if p.o.Health.Allow(to, nil) {
		return nil, true
	}
	b := p.blocked
	if b != nil && b.by == to && b.used < b.admitted && p.o.Health.Allow(to, b.permit) {
		b.used++
		return b.permit, true
	}
	if b != nil && b.by != to {
		p.waiter.Leave(b.by)
		b = nil
	}
	if b == nil {
		b = &blocked{by: to}
		p.blocked = b
	}
	b.next = next
	if to.Partition < 0 {
		p.o.Health.Suspect(to) // what is not known trips no breaker
	}
	if b.used == 0 { // else what passes comes first, and is waited for
		b.admitted, b.permit = 0, nil
		p.waiter.Wait(to)
	}
	return nil, false
}

// unblock is called when a step is committed: if what was blocked is passed on, nothing
// is. The lock is held.
func (p *Partition) unblock() {
	b := p.blocked
	if b == nil {
		return
	}
	b.admitted, b.used = b.admitted-b.used, 0
	if p.position >= b.next {
		p.waiter.Leave(b.by)
		p.blocked = nil
	}
}

// admit takes what may pass now.
func (p *Partition) admit() {
	for _, to := range p.waiter.Ready() {
		p.mu.Lock()
		b := p.blocked
		waits := b != nil && b.by == to && b.used == 0
		p.mu.Unlock()
		if !waits {
			continue
		}
		n, permit := p.waiter.Admit(to, math.MaxInt32)
		if n == 0 {
			continue // told again
		}
		p.mu.Lock()
		if p.blocked == b {
			b.admitted, b.permit = n, permit
		}
		p.mu.Unlock()
		p.o.Lanes.Wake()
	}
}

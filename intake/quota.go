package intake

import (
	"cmp"
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// Quota limits one partition of a request topic: it is the topic's limit divided by its partitions.
type Quota struct {
	// Rate is the number of requests a second, 0 for no limit. One second's worth, and at least one request, may come
	// in a burst.
	Rate float64
	// Delay makes reading wait if there are too many requests; otherwise they are rejected.
	Delay bool
	// Pending is the number of timers that may be pending, 0 for no limit. The planner enforces it,
	// by Full: Reader does not know the number.
	Pending int64
}

// burst is the part of a rate that may be used without waiting.
const burst = time.Second

// meter limits the requests of one partition to a rate, by the generic cell rate algorithm (ITU-T I.371). The arrival
// is the time at which the requests so far would meet the rate exactly. Each admitted request advances it by the time
// between two requests. A request that comes more than a burst before it comes too soon.
//
// The time of a request is when it was written, not when it is read: requests that piled up while no instance ran are
// within the rate if they were written within it. A record's timestamp may be wrong if producers set it. So the time
// that counts never goes back, does not pass the clock, and is at least the time at which the partition was last read
// to its end. A producer that lies on such a partition gains at most the quota that an idle producer has not used.
//
// A record is measured once, when it is delivered. A partition that is read again from an earlier offset gets a new
// meter. Not safe for concurrent use.
type meter struct {
	between time.Duration // two requests at the rate
	ahead   time.Duration // how far the arrival may be ahead of the time that counts

	time    time.Time // the time that counts
	arrival time.Time // the arrival at which the rate would be met exactly
}

// newMeter returns a meter for a rate above zero.
func newMeter(rate float64) *meter {
	between := time.Duration(max(1, float64(time.Second)/rate))
	return &meter{between: between, ahead: max(burst, between) - between}
}

// admit reports whether a request with the timestamp stamp, read at now, is within the rate. A request that is not
// within it uses up nothing.
func (m *meter) admit(stamp, now time.Time) bool {
	m.see(stamp, now)
	if m.arrival.Sub(m.time) > m.ahead {
		return false
	}
	m.take()
	return true
}

// delay counts a request, within the rate or not, and returns how long the next one must wait.
func (m *meter) delay(stamp, now time.Time) time.Duration {
	m.see(stamp, now)
	m.take()
	return max(0, m.arrival.Sub(now)-m.ahead)
}

func (m *meter) take() {
	if m.arrival.Before(m.time) {
		m.arrival = m.time
	}
	m.arrival = m.arrival.Add(m.between)
}

// see advances the time that counts. If the clock was set back by more than a burst, the meter begins anew: otherwise
// it would admit nothing until the clock is back where it was.
func (m *meter) see(stamp, now time.Time) {
	if now.Add(burst).Before(m.time) {
		m.time, m.arrival = now, now
	}
	if stamp.After(now) || stamp.UnixMilli() < 0 {
		stamp = now
	}
	if stamp.After(m.time) {
		m.time = stamp
	}
}

// caughtUp records that everything written before now has been read.
func (m *meter) caughtUp(now time.Time) {
	if now.After(m.time) {
		m.time = now
	}
}

// Full returns the reason for rejecting a request that adds a pending timer to a partition with this many, committed
// or not; nil if it is admitted. A request that replaces a timer is always admitted.
func (r *Rules) Full(pending int64) *timer.Refusal {
	if r.Quota.Pending == 0 || pending < r.Quota.Pending {
		return nil
	}
	return Refuse(waterclock.ReasonOverQuota,
		"%d timers of %s are pending on the partition, its share of limit-pending is %d: cancel some, let some "+
			"fire, or raise it.", pending, r.Topic, r.Quota.Pending)
}

// overQuota is the key of the mark on a record that a meter did not admit; see Validate.
type overQuota struct{}

func markOver(rec *kgo.Record) {
	rec.Context = context.WithValue(cmp.Or(rec.Context, context.Background()), overQuota{}, true)
}

func isOver(rec *kgo.Record) bool {
	return rec.Context != nil && rec.Context.Value(overQuota{}) != nil
}

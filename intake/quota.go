package intake

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// Quota is what one partition of a request topic may have: the topic's limits
// divided by its partitions.
type Quota struct {
	// Rate is how many requests a second, 0 for no limit. One second's worth, at
	// least one request, may come at once.
	Rate float64
	// Delay says that reading waits where requests are too many; otherwise they
	// are refused.
	Delay bool
	// Pending is how many timers may be pending, 0 for no limit. Reader does not know
	// how many are: whoever plans asks Full.
	Pending int64
}

// burst is how much of a rate may be used up at once.
const burst = time.Second

// meter holds the requests of one partition to a rate, by the generic cell rate
// algorithm (ITU-T I.371): each admitted request moves the arrival at which the
// rate would be met exactly by the time that is between two; whoever comes a burst
// before it comes too soon.
//
// Requests are measured by when they were written and not by when they are read:
// what has piled up while nobody read, at a rate that was fine, is fine. A record
// says itself when it was written, and may lie where producers set timestamps. So
// the time that counts never goes back, does not pass the clock, and is at least
// that at which everything was read: on a partition that is read to its end, lies
// gain at most what an idle producer has not used.
//
// Its decisions are made once, when a record is handed over. A partition that is
// read again from an earlier place gets a new meter. Not safe for concurrent use.
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

// admit reports whether a request that says that it was written at stamp, and is
// read at now, is within the rate. One that is not uses nothing up.
func (m *meter) admit(stamp, now time.Time) bool {
	m.see(stamp, now)
	if m.arrival.Sub(m.time) > m.ahead {
		return false
	}
	m.take()
	return true
}

// delay takes a request in, whether within the rate or not, and returns for how
// long the next one must wait.
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

// see moves the time that counts. A clock that was set back by more than a burst
// begins again: else nothing would be admitted until it is where it was.
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

// caughtUp tells that all that was written before now has been read.
func (m *meter) caughtUp(now time.Time) {
	if now.After(m.time) {
		m.time = now
	}
}

// Full says why a request that makes one more pending timer is refused on a
// partition that has so many, committed or not; nil if it may. One that takes the
// place of a pending timer is never too many.
func (r *Rules) Full(pending int64) *Refusal {
	if r.Quota.Pending == 0 || pending < r.Quota.Pending {
		return nil
	}
	return refuse(waterclock.ReasonOverQuota,
		"%d timers of %s are pending on the partition, its share of limit-pending is %d: cancel some, let some fire, or raise it.", pending, r.Topic, r.Quota.Pending)
}

// overQuota marks a record that a meter did not admit, for Validate.
type overQuota struct{}

func markOver(rec *kgo.Record) {
	rec.Context = context.WithValue(context.Background(), overQuota{}, true)
}

func isOver(rec *kgo.Record) bool {
	return rec.Context != nil && rec.Context.Value(overQuota{}) != nil
}

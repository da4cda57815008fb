package rates

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// leastBurst is how much of its own rate a bucket holds at least, besides one token: for how long nothing need be
	// taken without a token being lost.
	leastBurst = 200 * time.Millisecond
	// headSlack is by how much the first waiting timers of two partitions may be apart at least, in ms, so that the
	// partitions get tokens side by side. While tokens remain although timers wait, because these are due far apart, it
	// is doubled up to mostSlack.
	headSlack = 1000
	mostSlack = 1 << 40
	// plenty is how much of its own rate a bucket holds if tokens remain.
	plenty = 3 * roundPause
	// promiseAge is for how long a promise counts after the last sign of life of its account.
	promiseAge = time.Second
	// grantAge is how long a partition may leave a grant untouched. After that others no longer wait for its turn.
	grantAge = 250 * time.Millisecond
	// debt is how many tokens a bucket may owe: see Account.Take.
	debt = 1
	// tiny is the error of a level that was summed up in many parts.
	tiny = 1e-6
)

// key names a bucket: a target topic, for one request topic or for all of them.
type key struct{ scope, target string }

// bucket has this instance's tokens for one target. Limiter.mu guards it.
type bucket struct {
	key
	rate  Rate
	share float64   // of this instance, as of the last refill
	level float64   // tokens
	at    time.Time // of the last refill
	// accounts are those that have something promised or waiting. Invariant: promised is the sum of theirs.
	accounts map[*Account]struct{}
	promised int
	slack    int64 // see headSlack
	gone     bool  // the limiter has forgotten it
}

// room is how many tokens a bucket holds at most. With the token that it may owe they make the burst, unless that is
// smaller than what leastBurst needs.
func (b *bucket) room(share float64) float64 {
	if share <= 0 {
		return 0
	}
	return max(b.rate.Burst*share-debt, 1+b.rate.PerSecond*share*leastBurst.Seconds())
}

// refill adds what has come since the last refill. If the share has changed in between, the lesser one counts.
func (b *bucket) refill(now time.Time, share float64) {
	if took := now.Sub(b.at); took > 0 {
		b.level += b.rate.PerSecond * min(share, b.share) * took.Seconds()
		b.at = now
	}
	b.share = share
	b.level = min(b.level, b.room(share))
}

// free is how many tokens are neither taken nor promised.
func (b *bucket) free() int { return int(math.Floor(b.level+tiny)) - b.promised }

// hand divides the free tokens among the partitions that wait, and wakes these. Partitions whose first timers are due
// at about the same time have even parts. The others wait, unless one of the first does not touch its grant.
func (b *bucket) hand(now time.Time) {
	if b.slack = max(headSlack, b.slack/2); float64(b.free()) > 1+b.rate.PerSecond*b.share*plenty.Seconds() {
		b.slack = min(4*b.slack, mostSlack)
	}
	var waiting []*Account
	first := int64(math.MaxInt64)
	for a := range b.accounts {
		a.age(now)
		if a.waiting > 0 && a.granted == 0 {
			waiting = append(waiting, a)
		}
		if a.waiting > 0 && !a.stuck && (a.granted == 0 || now.Sub(a.grantedAt) <= grantAge) {
			first = min(first, a.head)
		}
	}
	slices.SortFunc(waiting, func(x, y *Account) int {
		return cmp.Or(cmp.Compare(x.head, y.head), cmp.Compare(x.number, y.number))
	})
	until := int64(math.MaxInt64) // from then on it is the turn of others
	turn := slices.DeleteFunc(waiting, func(a *Account) bool {
		later := !a.stuck && a.head > b.withSlack(first)
		if later {
			until = min(until, b.withSlack(a.head))
		}
		return later
	})
	for i, a := range turn {
		n := (b.free() + len(turn) - i - 1) / (len(turn) - i)
		if a.stuck {
			n = min(n, 1)
		}
		if n > 0 {
			a.grant(now, int(min(int64(n), a.waiting)), until)
		}
	}
}

// withSlack returns a due time and the slack. A triggered timer's place is near the lowest number, and a due time that
// is not known is the highest.
func (b *bucket) withSlack(due int64) int64 {
	if due > math.MaxInt64-b.slack {
		return math.MaxInt64
	}
	return due + b.slack
}

package rates

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// roundPause is how often free tokens are handed to partitions that wait.
	roundPause = 50 * time.Millisecond
	// settle is how long after its acquisition a partition begins to count. So the emissions of its former owner bear
	// earlier timestamps even if the clocks of the two differ by that much.
	settle = 1500 * time.Millisecond
	// A bucket that nothing has used for bucketIdle is forgotten once it is full, because a new one would be full too.
	// With more than maxBuckets, as when requests name new targets all the time, busyIdle is enough.
	bucketIdle, busyIdle = 10 * time.Minute, time.Second
	maxBuckets           = 10_000
	// maxKnown is how many targets a holding remembers. Then it forgets those without a rate.
	maxKnown = 1024
)

// Lease ends when the partition may have another owner. [membership.Token] is one.
type Lease interface{ Err() error }

// Options of a Limiter.
type Options struct {
	// Partitions has the number of partitions of each request topic.
	Partitions map[string]int32
	Rules      Rules
	// Now is a clock that is never set; nil is time.Now.
	Now func() time.Time
}

// Limiter has the rates of an instance. It is safe for concurrent use.
type Limiter struct {
	o     Options
	paced atomic.Bool // there is a rate

	mu       sync.Mutex // guards the following fields, and those of buckets, holdings and accounts
	rules    Rules
	holdings map[*Holding]struct{}
	buckets  map[key]*bucket
	begun    time.Time        // when the instance began
	number   int              // of the last account
	shares   map[string]share // by scope
}

// Holding is one owned partition, from its acquisition until End. The nil Holding has no rates.
type Holding struct {
	limiter *Limiter
	at      timer.TopicPartition
	lease   Lease
	wake    func()
	since   time.Time                           // of the acquisition
	known   atomic.Pointer[map[string]*Account] // by target; nil: it has no rate. Replaced, not changed

	accounts map[string]*Account
	fresh    map[string]*Account // targets to be added to known
	ended    bool
}

// New returns a limiter without partitions.
func New(o Options) *Limiter {
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Limiter{o: o, holdings: make(map[*Holding]struct{}), buckets: make(map[key]*bucket),
		shares: make(map[string]share), begun: o.Now()}
	l.Replace(o.Rules)
	return l
}

// Replace puts other rates into effect. A bucket keeps its tokens, as far as the new rate has room for them.
func (l *Limiter) Replace(rules Rules) {
	if l == nil { // a test's
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = rules
	paced := false
	for _, list := range rules {
		paced = paced || len(list) > 0
	}
	l.paced.Store(paced)
	for h := range l.holdings {
		h.clearKnown()
		for target, a := range h.accounts {
			a.move(l.bucketOf(h.at.Topic, target))
		}
	}
	for _, b := range l.buckets {
		if rate, ok := l.rateOf(b.key); ok {
			l.refill(b)
			b.rate = rate
			l.refill(b)
		}
	}
}

// rateOf returns the rate of a bucket by the present rules; false if it has none.
func (l *Limiter) rateOf(k key) (Rate, bool) {
	for topic := range l.rules {
		if rate, ok := l.rules.of(topic, k.target); ok && rate.Scope == k.scope {
			return rate, true
		}
	}
	return Rate{}, false
}

// Rate returns the rate for firings of a request topic to a target, and which share of it this instance has; zero if
// there is none.
func (l *Limiter) Rate(requests, target string) (rate Rate, share float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rate, ok := l.rules.of(requests, target)
	if !ok {
		return Rate{}, 0
	}
	share, _ = l.shareOf(rate.Scope, l.o.Now())
	return rate, share
}

// bucketOf returns the bucket for firings of a request topic to a target; nil if it has no rate. A new bucket has the
// tokens that it would have if it had been there from the start, as far as the share is as old. mu is held.
func (l *Limiter) bucketOf(requests, target string) *bucket {
	rate, ok := l.rules.of(requests, target)
	if !ok {
		return nil
	}
	k := key{rate.Scope, target}
	b := l.buckets[k]
	if b == nil {
		now := l.o.Now()
		b = &bucket{key: k, rate: rate, accounts: make(map[*Account]struct{}), at: now}
		share, since := l.shareOf(k.scope, now)
		b.share = share
		b.level = min(rate.PerSecond*share*now.Sub(since).Seconds(), b.room(share))
		l.buckets[k] = b
	}
	return b
}

// sharesAge is for how long a share is not counted again.
const sharesAge = 5 * time.Millisecond

// share is the part of the partitions that the instance owns, as counted at a time, and since when it has been at least
// that.
type share struct {
	part      float64
	since, at time.Time
}

// shareOf returns which part of the partitions this instance owns, of one request topic or of all, and since when it
// has been at least that. mu is held.
func (l *Limiter) shareOf(scope string, now time.Time) (part float64, since time.Time) {
	s, ok := l.shares[scope]
	if !ok || now.Sub(s.at) >= sharesAge {
		s.part, s.since = l.count(scope, now)
		s.at = now
		l.shares[scope] = s
	}
	return s.part, s.since
}

func (l *Limiter) count(scope string, now time.Time) (part float64, since time.Time) {
	owned, all := 0, int32(0)
	for topic, n := range l.o.Partitions {
		if scope == "" || topic == scope {
			all += n
		}
	}
	since = l.begun
	for h := range l.holdings {
		from := h.since.Add(settle)
		if (scope == "" || h.at.Topic == scope) && !now.Before(from) && h.lease.Err() == nil {
			owned++
			if from.After(since) {
				since = from
			}
		}
	}
	return float64(owned) / float64(max(1, all)), since
}

// refill brings a bucket up to date, and returns the time. mu is held.
func (l *Limiter) refill(b *bucket) time.Time {
	now := l.o.Now()
	share, _ := l.shareOf(b.scope, now)
	b.refill(now, share)
	return now
}

// Own says that a partition was acquired: its former owner has committed its last step. wake is called, under a lock,
// when an account of the partition has something to Fetch. It must not block.
func (l *Limiter) Own(at timer.TopicPartition, lease Lease, wake func()) *Holding {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &Holding{limiter: l, at: at, lease: lease, wake: wake, since: l.o.Now(), accounts: make(map[string]*Account)}
	l.holdings[h] = struct{}{}
	return h
}

// End says that the partition seals nothing any more.
func (h *Holding) End() {
	if h == nil {
		return
	}
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	h.ended = true
	for _, a := range h.accounts {
		a.waiting, a.held = 0, false
		a.move(nil)
	}
	delete(h.limiter.holdings, h)
	clear(h.limiter.shares)
}

// Of returns the account for a target; nil if it has no rate, and none of its timers is known to be deferred.
func (h *Holding) Of(target string) *Account {
	if h == nil {
		return nil
	}
	known := h.known.Load()
	if known == nil && !h.limiter.paced.Load() {
		return nil
	}
	if known != nil {
		if a, ok := (*known)[target]; ok {
			return a
		}
	}
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	return h.account(target, false)
}

// Deferred returns the account for a target of which timers are deferred. It has a rate, or had one.
func (h *Holding) Deferred(target string) *Account {
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	return h.account(target, true)
}

// account finds or makes an account, and remembers what it has found. mu is held.
func (h *Holding) account(target string, always bool) *Account {
	a := h.accounts[target]
	b := h.limiter.bucketOf(h.at.Topic, target)
	if a == nil && (b != nil || always) && !h.ended {
		h.limiter.number++
		a = &Account{Target: target, holding: h, number: h.limiter.number, bucket: b}
		h.accounts[target] = a
	}
	h.know(target, a)
	return a
}

// know remembers the account of a target, nil if it has no rate. Targets are added to known, which is copied for that,
// several at a time. mu is held.
func (h *Holding) know(target string, a *Account) {
	if h.fresh == nil {
		h.fresh = make(map[string]*Account)
	}
	h.fresh[target] = a
	known := h.known.Load()
	if known != nil && len(h.fresh) < len(*known)/4 {
		return
	}
	if known != nil && len(*known) < maxKnown {
		maps.Copy(h.fresh, *known)
	}
	next := h.fresh
	h.fresh = nil
	h.known.Store(&next)
}

// clearKnown forgets which targets have which accounts. mu is held.
func (h *Holding) clearKnown() {
	h.fresh = nil
	h.known.Store(nil)
}

// Run hands tokens to partitions that wait, until ctx ends.
func (l *Limiter) Run(ctx context.Context) error {
	t := beats.NewTicker(roundPause)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			l.Round()
		}
	}
}

// Round does once what Run does each roundPause.
func (l *Limiter) Round() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, idle := l.o.Now(), bucketIdle
	if len(l.buckets) > maxBuckets {
		idle = busyIdle
	}
	gone := false
	for k, b := range l.buckets {
		unused := len(b.accounts) == 0
		if unused && now.Sub(b.at) < idle {
			continue
		}
		l.refill(b)
		if unused && b.level+tiny >= b.room(b.share) {
			delete(l.buckets, k)
			b.gone, gone = true, true
			continue
		}
		b.hand(now)
	}
	if gone {
		l.forget()
	}
}

// forget drops the accounts of buckets that are gone. mu is held.
func (l *Limiter) forget() {
	for h := range l.holdings {
		for target, a := range h.accounts {
			if a.bucket != nil && a.bucket.gone {
				a.bucket = nil
				delete(h.accounts, target)
			}
		}
		h.clearKnown()
	}
}

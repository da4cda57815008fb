package rates

import (
	"math"
	"time"
)

// Account is one request partition's dealings with the bucket of one target. It is safe for concurrent use:
// Limiter.mu guards its fields.
type Account struct {
	Target string

	holding *Holding
	number  int     // orders accounts that are alike
	bucket  *bucket // nil: the target has no rate any more

	// promised is how many tokens are promised, and lived when that last changed. A promise without a sign of life for
	// promiseAge ends. Then the account is stuck until the next sign, and gets one token at a time.
	promised int
	lived    time.Time
	stuck    bool

	held    bool  // a firing was refused: all later ones wait behind it, until Waits says that none does
	waiting int64 // timers that are deferred
	head    int64 // due time of the first of them, Unix ms
	// granted is how many promised tokens the partition has not fetched yet, for timers that are due before until.
	granted   int
	grantedAt time.Time
	until     int64
	lastHeld  int64 // when a firing was last refused, Unix ms
}

// HasRate reports whether the target has a rate now.
func (a *Account) HasRate() bool {
	l := a.holding.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	return a.bucket != nil
}

// Admit reports whether a due timer may be planned that is not deferred yet. It may not if others are, which come
// first. With ahead set it may in any case: see Take. now is the owner's clock, Unix ms.
func (a *Account) Admit(now int64, ahead bool) bool {
	l := a.holding.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.bucket == nil {
		return a.waiting == 0 || ahead
	}
	at := l.refill(a.bucket)
	if !ahead && (a.waiting > 0 || a.held || a.bucket.free() < 1) {
		a.held, a.lastHeld = true, max(a.lastHeld, now)
		a.join()
		return false
	}
	a.promise(at, 1)
	return true
}

// LastHeld returns when a firing to the target last had to wait, Unix ms; 0: none had to.
func (a *Account) LastHeld() int64 {
	l := a.holding.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	return a.lastHeld
}

// Take takes a token for a firing that is being sealed. Without one the firing must not be sent. With ahead set, Take
// may leave the bucket one token in debt. Otherwise a firing that a breaker waits for, to learn that a partition is
// healthy, would never have its turn beside timers that are deferred. now is as for Admit.
func (a *Account) Take(now int64, ahead bool) bool {
	l := a.holding.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.bucket == nil {
		return true
	}
	at := l.refill(a.bucket)
	a.settle(at, 1)
	if a.bucket.level < 1-tiny && (!ahead || a.bucket.level < 1-debt) {
		a.held, a.lastHeld = true, max(a.lastHeld, now)
		a.join()
		return false
	}
	a.bucket.level--
	return true
}

// Drop says that n planned firings, or granted timers, need no tokens.
func (a *Account) Drop(n int) {
	l := a.holding.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	a.settle(l.o.Now(), n)
}

// Return gives back the tokens of n firings of a step that is certainly aborted. They will be sealed again.
func (a *Account) Return(n int) {
	l := a.holding.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.bucket == nil || a.holding.ended {
		return
	}
	at := l.refill(a.bucket)
	a.bucket.level = min(a.bucket.level+float64(n), a.bucket.room(a.bucket.share))
	a.promise(at, n)
}

// Waits says how many timers are deferred, and when the first of them is due, Unix ms.
func (a *Account) Waits(n, head int64) {
	l := a.holding.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	a.waiting, a.head = n, head
	if n == 0 {
		a.held = false
	}
	a.join()
}

// Fetch returns how many deferred timers may be planned now: the first ones, if they are due before until. From then
// on it is the turn of other partitions.
func (a *Account) Fetch() (n int, until int64) {
	l := a.holding.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.bucket == nil {
		return math.MaxInt, math.MaxInt64
	}
	n, a.granted = a.granted, 0
	return n, a.until
}

// Waiting returns the accounts that have timers deferred, or have refused one since nothing was.
func (h *Holding) Waiting() (all []*Account) {
	if h == nil {
		return nil
	}
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	for _, a := range h.accounts {
		if a.waiting > 0 || a.held {
			all = append(all, a)
		}
	}
	return all
}

// The following methods are called with Limiter.mu held.

func (a *Account) promise(now time.Time, n int) {
	a.promised, a.lived, a.stuck = a.promised+n, now, false
	a.bucket.promised += n
	a.join()
}

func (a *Account) settle(now time.Time, n int) {
	n = min(n, a.promised)
	a.promised, a.lived, a.stuck = a.promised-n, now, false
	if a.granted = min(a.granted, a.promised); a.bucket != nil {
		a.bucket.promised -= n
	}
	a.join()
}

// age ends promises that show no sign of life.
func (a *Account) age(now time.Time) {
	if a.promised > 0 && now.Sub(a.lived) > promiseAge {
		a.settle(now, a.promised)
		a.stuck = true
	}
}

func (a *Account) grant(now time.Time, n int, until int64) {
	stuck := a.stuck
	a.promise(now, n)
	a.granted, a.grantedAt, a.until, a.stuck = n, now, until, stuck
	a.holding.wake()
}

// join keeps the bucket's list of accounts with something promised or waiting.
func (a *Account) join() {
	switch {
	case a.bucket == nil:
	case a.promised > 0 || a.waiting > 0 || a.held:
		a.bucket.accounts[a] = struct{}{}
	default:
		delete(a.bucket.accounts, a)
	}
}

// move makes the account use another bucket; nil for none.
func (a *Account) move(b *bucket) {
	if a.bucket == b {
		return
	}
	if a.bucket != nil {
		a.bucket.promised -= a.promised
		delete(a.bucket.accounts, a)
	}
	a.bucket, a.promised, a.granted, a.stuck = b, 0, 0, false
	a.join()
	if a.waiting > 0 || a.held {
		a.holding.wake()
	}
}

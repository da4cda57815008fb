package access

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// limiter limits the calls of one caller. Each account of the file has its own. A caller that is still in the file
// after a change keeps its limiter.
type limiter struct {
	rate  *rate.Limiter // nil: no limit
	limit int64         // calls at a time
	now   atomic.Int64  // calls in flight
}

func newLimiter(perSecond, atOnce int) *limiter {
	g := &limiter{limit: int64(atOnce)}
	if perSecond > 0 {
		g.rate = rate.NewLimiter(rate.Limit(perSecond), perSecond) // a second's worth may come in a burst
	}
	return g
}

// enter admits a call, or returns the reason why not. An admitted call must leave.
func (l *limiter) enter() *Problem {
	if l.now.Add(1) > l.limit {
		l.now.Add(-1)
		return NewProblem(http.StatusTooManyRequests, ReasonTooManyCalls,
			fmt.Sprintf("the caller has %d calls in flight, the limit (api-concurrent)", l.limit)).after(time.Second)
	}
	if l.rate == nil {
		return nil
	}
	r := l.rate.Reserve()
	if wait := r.Delay(); wait > 0 {
		r.Cancel()
		l.leave()
		return NewProblem(http.StatusTooManyRequests, ReasonRateLimited,
			fmt.Sprintf("the caller has made %v calls within a second, the limit (api-rate)", l.rate.Limit())).after(
			wait)
	}
	return nil
}

func (l *limiter) leave() { l.now.Add(-1) }

// Limits of logins with wrong passwords.
const (
	failuresAtOnce    = 10
	failuresPerSecond = 1
	maxAddresses      = 4096 // that are remembered
)

// failures limits wrong passwords by remote address, so that guessing does not take processor time from others. A try
// is used up before the password is checked, because a check takes long and many more could arrive during it. A right
// password gives the try back, because all callers behind a proxy share one address. mu guards byNet.
//
// If there are too many addresses, it forgets those that have all their tries, and if that is not enough, all of
// them. The limit per address is meant for a few careless or rude callers. An attacker with thousands of addresses is
// limited by the slots in which passwords are compared.
type failures struct {
	mu    sync.Mutex
	byNet map[netip.Prefix]*tries
}

// tries is the number of tries left for an address.
type tries struct {
	left float64
	at   time.Time // the time to which left refers
}

// refill adds the tries that have become available with time.
func (t *tries) refill(now time.Time) {
	t.left = min(failuresAtOnce, t.left+failuresPerSecond*max(0, now.Sub(t.at).Seconds()))
	t.at = now
}

// take uses up a try, or returns how long the address must wait for one.
func (f *failures) take(from netip.Prefix, now time.Time) (wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.byNet[from]
	if t == nil {
		f.makeRoom(now)
		t = &tries{left: failuresAtOnce, at: now}
		f.byNet[from] = t
	}
	if t.refill(now); t.left < 1 {
		return time.Duration((1 - t.left) / failuresPerSecond * float64(time.Second))
	}
	t.left--
	return 0
}

// giveBack returns the try of a password that was right or was not checked.
func (f *failures) giveBack(from netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.byNet[from]; t != nil {
		t.left = min(failuresAtOnce, t.left+1)
	}
}

func (f *failures) makeRoom(now time.Time) {
	if f.byNet == nil {
		f.byNet = make(map[netip.Prefix]*tries)
	}
	if len(f.byNet) < maxAddresses {
		return
	}
	for from, t := range f.byNet {
		if t.refill(now); t.left >= failuresAtOnce {
			delete(f.byNet, from)
		}
	}
	if len(f.byNet) >= maxAddresses {
		clear(f.byNet)
	}
}

// netOf returns the network that stands for an address: the address itself, or for IPv6 its /64, because one host can
// have all its addresses.
func netOf(remote string) netip.Prefix {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // shared by all callers without an address
	}
	addr := ap.Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // always a valid length
	return p
}

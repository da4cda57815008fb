package access

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Pool is a limit that callers share: bytes of memory, streams of events, jobs, reads of logs.
//
//	r := pool.Acquire(ctx, 4096) // nil: there is no room
//	defer r.Release()
//
// No caller can take another's share, however many callers there are and however long they hold their reservations.
// Fixed shares would not work: a share for each possible caller would be too small for a single caller, and fewer
// shares would run out. So one caller may take everything that is free, and is cut when another needs room:
//
//   - If a caller asks for more than is free, and would then hold less than the largest holder does, reservations of
//     the largest holder are cut until there is room: the largest first, then the newest.
//   - Waiters are served in the order of their callers' holdings after the request, least first, so that a large
//     request does not delay small ones.
//   - A caller that would hold no more than [Pool.least] gets it even beyond the whole: small calls neither wait nor
//     cut.
//
// So with n callers, a caller that holds no more than whole/n is never cut, because a request for more than that
// cannot cut a smaller holder. And a request up to that share is granted as soon as the cut reservations are
// released. The premise: a reservation that cannot be cut ends by itself, because its work has a time limit (a
// decision, a page, reading a log), and a pool whose reservations can never be cut has a limit for each caller
// ([Pool.each]).
//
// Callers are told apart by [Caller.share]. An open API has a single caller, so all its users share one part.
type Pool struct {
	whole int64 // limit of all callers together
	each  int64 // limit of one caller
	least int64
	wait  time.Duration // how long a request waits for room

	mu      sync.Mutex // guards the fields below, and all fields of reservations
	used    int64      // by all callers
	ending  int64      // the part of used that is cut and not given back yet
	turn    int64      // counts reservations and waiters
	callers map[string]*holder
	waiting []*waiter
}

// holder tracks the reservations of one caller.
type holder struct {
	used, ending int64
	reservations map[*Reservation]struct{} // those that are not empty
}

// Reservation is a part of a pool. It grows and shrinks, and is released once.
type Reservation struct {
	pool *Pool
	name string
	n    int64
	turn int64
	cut  func() // ends the reservation's work; nil: it cannot be cut now
	gone bool   // it was cut or released: it no longer grows
	was  bool   // it was cut

	cutting sync.Mutex // held while it is being cut, and guards back; locked before the pool's mu
	back    bool       // it was released
}

type waiter struct {
	h       *Reservation
	n, turn int64
	granted chan struct{}
}

// NewPool returns a pool in which one caller may hold at most each. A request waits for room up to wait.
func NewPool(whole, each int64, wait time.Duration) *Pool {
	return &Pool{whole: whole, each: each, wait: wait, callers: make(map[string]*holder)}
}

// Reservation returns an empty reservation for the caller of ctx. It cannot be cut: see [Reservation.Cuttable].
func (p *Pool) Reservation(ctx context.Context) *Reservation {
	c, _ := CallerOf(ctx)
	return &Reservation{pool: p, name: c.share()}
}

// Acquire returns a reservation of n; nil if there is no room.
func (p *Pool) Acquire(ctx context.Context, n int64) *Reservation {
	h := p.Reservation(ctx)
	if !h.Grow(ctx, n) {
		return nil
	}
	return h
}

// Grow takes n more. It waits for room until ctx ends, or for as long as the pool waits, and reports whether
// there was room.
func (r *Reservation) Grow(ctx context.Context, n int64) bool {
	p := r.pool
	p.mu.Lock()
	p.turn++
	w := &waiter{h: r, n: n, turn: p.turn, granted: make(chan struct{})}
	if r.gone || n > p.each {
		p.mu.Unlock()
		return false
	}
	if len(p.waiting) == 0 && p.fits(w) { // nearly always the case
		p.grant(w)
		p.mu.Unlock()
		return true
	}
	p.waiting = append(p.waiting, w)
	p.serve()
	ends := p.victims(w)
	p.mu.Unlock()
	cutAll(ends)
	patience := time.NewTimer(p.wait)
	defer patience.Stop()
	select {
	case <-w.granted:
	case <-ctx.Done():
	case <-patience.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.serve() // there may be room for the waiters behind it
	}
	return i < 0 && !r.gone
}

// Shrink gives n back.
func (r *Reservation) Shrink(n int64) {
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(r, min(n, r.n))
}

// Cuttable sets the function that cuts the reservation, by ending its work. It is called at most once: when another
// caller needs the room, immediately if one is waiting for it. It must not block, and must not release the
// reservation by itself. It is not called after Release, and Release waits for its end: afterwards the connection
// that it ends may be another call's. With nil the reservation cannot be cut for now.
func (r *Reservation) Cuttable(cut func()) {
	p := r.pool
	p.mu.Lock()
	var ends []func()
	if !r.gone {
		r.cut = cut
	}
	if r.cut != nil {
		for _, w := range slices.Clone(p.waiting) {
			ends = append(ends, p.victims(w)...)
		}
	}
	p.mu.Unlock()
	cutAll(ends)
}

func cutAll(ends []func()) {
	for _, end := range ends {
		end()
	}
}

// end calls cut, unless the reservation was released.
func (r *Reservation) end(cut func()) {
	r.cutting.Lock()
	defer r.cutting.Unlock()
	if !r.back {
		cut()
	}
}

// Cut reports whether the reservation was cut.
func (r *Reservation) Cut() bool {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	return r.was
}

// Release gives everything back. Releasing twice, or nil, is legal.
func (r *Reservation) Release() {
	if r == nil {
		return
	}
	r.cutting.Lock()
	r.back = true
	r.cutting.Unlock()
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	r.gone = true
	p.give(r, r.n)
}

// give takes n off a reservation.
func (p *Pool) give(h *Reservation, n int64) {
	if n == 0 {
		return
	}
	o := p.callers[h.name]
	p.used, o.used, h.n = p.used-n, o.used-n, h.n-n
	if h.was {
		p.ending, o.ending = p.ending-n, o.ending-n
	}
	if h.n == 0 {
		delete(o.reservations, h)
	}
	if len(o.reservations) == 0 {
		delete(p.callers, h.name)
	}
	p.serve()
}

// held returns the amount that a caller holds and is not about to lose.
func (p *Pool) held(name string) int64 {
	if o := p.callers[name]; o != nil {
		return o.used - o.ending
	}
	return 0
}

// serve grants requests while there is room. The waiter whose caller would hold least comes first, and among equals the
// one that has waited longest. A caller at its own limit does not hold up others.
func (p *Pool) serve() {
	for len(p.waiting) > 0 {
		if len(p.waiting) > 1 {
			slices.SortFunc(p.waiting, func(a, b *waiter) int {
				return cmp.Or(cmp.Compare(p.held(a.h.name)+a.n, p.held(b.h.name)+b.n), cmp.Compare(a.turn, b.turn))
			})
		}
		i := slices.IndexFunc(p.waiting, func(w *waiter) bool { return p.held(w.h.name)+w.n <= p.each })
		if i < 0 {
			return
		}
		w := p.waiting[i]
		if !p.fits(w) {
			return
		}
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.grant(w)
	}
}

// fits reports whether there is room for a waiter now.
func (p *Pool) fits(w *waiter) bool {
	would := p.held(w.h.name) + w.n
	return would <= p.each && (p.used+w.n <= p.whole || would <= p.least)
}

func (p *Pool) grant(w *waiter) {
	defer close(w.granted)
	h := w.h
	if h.gone || w.n == 0 { // cut or released while it waited
		return
	}
	o := p.callers[h.name]
	if o == nil {
		o = &holder{reservations: make(map[*Reservation]struct{})}
		p.callers[h.name] = o
	}
	p.used, o.used, h.n = p.used+w.n, o.used+w.n, h.n+w.n
	o.reservations[h] = struct{}{}
	if h.turn == 0 {
		h.turn = w.turn
	}
}

// victims marks reservations of other callers as cut until there is room for a waiter, and returns the functions that
// cut them. There are none if the waiter was served, or its caller would hold as much as the others do.
func (p *Pool) victims(w *waiter) (ends []func()) {
	if !slices.Contains(p.waiting, w) {
		return nil
	}
	want := p.held(w.h.name) + w.n
	for p.used-p.ending+w.n > p.whole {
		var most *Reservation
		for name, o := range p.callers {
			if name == w.h.name || o.used-o.ending <= want || most != nil && o.used-o.ending < p.held(most.name) {
				continue
			}
			for h := range o.reservations {
				if h.cut != nil && (most == nil || most.name != name ||
					cmp.Or(cmp.Compare(h.n, most.n), cmp.Compare(h.turn, most.turn)) > 0) {
					most = h
				}
			}
		}
		if most == nil {
			return ends
		}
		cut := most.cut
		ends = append(ends, func() { most.end(cut) })
		o := p.callers[most.name]
		p.ending, o.ending = p.ending+most.n, o.ending+most.n
		most.cut, most.gone, most.was = nil, true, true
		p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool { // it waits for nothing else
			if w.h == most {
				close(w.granted)
			}
			return w.h == most
		})
	}
	return ends
}

// Reserve takes n more bytes of memory for the call of ctx, for example for a response before it is made. They are
// held until the call ends, or [GiveBack]. If the call has not passed a guard, there is no limit.
func Reserve(ctx context.Context, n int64) error {
	c := callOf(ctx)
	if c == nil || c.memory == nil || c.memory.Grow(ctx, n) {
		return nil
	}
	return noRoom()
}

// Outlive returns a context for work that outlives the call of ctx, such as a job. It has the same caller and request
// ID. Its memory is separate from that of the call, and held until release.
func Outlive(ctx context.Context) (life context.Context, release func()) {
	life = context.WithoutCancel(ctx)
	c := callOf(ctx)
	if c == nil || c.memory == nil {
		return life, func() {}
	}
	own := &call{caller: c.caller, request: c.request, current: c.current, memory: c.memory.pool.Reservation(ctx)}
	return withCall(life, own), own.memory.Release
}

// GiveBack gives back a part of a reservation.
func GiveBack(ctx context.Context, n int64) {
	if c := callOf(ctx); c != nil && c.memory != nil {
		c.memory.Shrink(max(0, n))
	}
}

func noRoom() *Problem {
	return NewProblem(http.StatusServiceUnavailable, ReasonOverloaded,
		"bodies and responses of calls in progress take all the memory reserved for them").after(bodyWait)
}

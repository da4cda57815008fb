package statestore

import (
	"sync/atomic"
	"time"
)

// Live says that the owner has read the changelog to its end. From now on the store holds everything, and
// the in-sync time moves with the clock, even if nothing is applied. A Replay ends that.
//
// In-sync times are by the brokers' clock, which decides how long a tombstone is kept. By a local clock that is
// ahead, a store would look fresher than it is. now is the brokers' time, or earlier; the time that passes here is
// added to it.
//
// The in-sync time must not be later than the last moment at which the process knew that it owned the partition.
// Suppose that a process stands still for a day and wakes without a network. It flushes for half a minute, and only
// then gives up partitions that others took over long ago. If it recorded "now", the missing tombstones of that day
// would go unnoticed, and cancelled timers would fire. So the owner's lease is asked: confirmed returns how long ago
// ownership was last confirmed, or an error if it is lost. It is called under the partition's lock and must not block.
func (h *Handle) Live(now time.Time, confirmed func() (ago time.Duration, err error)) error {
	if err := h.enter(); err != nil {
		return err
	}
	defer h.leave()
	h.live = &lease{brokers: now, local: h.p.s.o.Now(), confirmed: confirmed}
	h.p.state.InSync = now
	return nil
}

// Unsaved tells the store the time, by the local clock, of the owner's oldest change that the store lacks; the zero
// time if there is none. The in-sync time does not pass it.
func (h *Handle) Unsaved(since time.Time) {
	if since.IsZero() {
		h.unsaved.Store(nil)
	} else {
		h.unsaved.Store(&since)
	}
}

// Keeps tells the store how long the changelog keeps deletions. It is stored with the next change, or with
// the next flush of a live partition.
func (h *Handle) Keeps(d time.Duration) error {
	if err := h.enter(); err != nil {
		return err
	}
	defer h.leave()
	h.p.state.Keeps = d.Truncate(time.Millisecond)
	return nil
}

// Behind tells the store that the owner has written that many more changes to the changelog. If too many changes are
// not on disk yet, the store flushes early.
func (h *Handle) Behind(changes int) { h.p.s.upkeep.changed(changes) }

// refresh writes the meta row of a live partition, with a later in-sync time if the partition is still the owner's. It
// does nothing while the partition is locked.
func (p *Partition) refresh() error {
	if !p.write.TryLock() {
		return nil
	}
	defer p.write.Unlock()
	k := p.owner.Load()
	if k == nil || k.live == nil || p.damaged.Load() || !p.loaded.Load() || p.state.Position == noPosition {
		return nil
	}
	if at, owned := k.live.inSync(p.s.o.Now(), &k.unsaved); owned {
		p.state.InSync = at
	}
	b := p.newBatchLocked()
	defer b.close()
	return b.commit(p.state)
}

// lease has the inputs of the in-sync time of a live handle: see Live. The lease itself is the caller's; confirmed asks
// it.
type lease struct {
	brokers, local time.Time // one moment, by the brokers' clock and by ours
	confirmed      func() (ago time.Duration, err error)
}

// inSync returns the in-sync time at the moment local by our clock, and false if confirmed fails. unsaved is the last
// argument of [Handle.Unsaved]; nil for nothing.
//
// The caller reads the clock before the call: if the process stands still between that and the return, the result is
// too early, never too late. It is also too early after the machine was suspended, because time.Now measures elapsed
// time by the monotonic clock, which stands still then. Setting the clock changes nothing.
func (l *lease) inSync(local time.Time, unsaved *atomic.Pointer[time.Time]) (at time.Time, owned bool) {
	now := l.brokers.Add(local.Sub(l.local))
	ago, err := l.confirmed()
	if err != nil {
		return at, false
	}
	at = now.Add(-ago)
	if at.Before(l.brokers) {
		at = l.brokers // ownership was confirmed when the partition was acquired
	}
	if since := unsaved.Load(); since != nil { // read last: there may be a new one
		if saved := now.Add(-time.Since(*since)); saved.Before(at) {
			at = saved
		}
	}
	return at, true
}

package statestore

import (
	"sync/atomic"
	"time"
)

// lease has what the in-sync time of a live handle is computed from: see Live. The lease itself is the caller's, which
// confirmed asks.
type lease struct {
	brokers, local time.Time // one moment, by the brokers' clock and by ours
	confirmed      func() (ago time.Duration, err error)
}

// inSync returns the in-sync time at the moment local by our clock, and false if confirmed fails. unsaved is what
// [Handle.Unsaved] was told last; nil for nothing.
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

package statestore

import "time"

// lease is what the in-sync time of a live handle follows from: see Live.
type lease struct {
	brokers, local time.Time // one moment, by the brokers' clock and by ours
	confirmed      func() (ago time.Duration, err error)
}

// inSync returns the in-sync time at a moment by our clock, and false if the partition is no longer the owner's.
// unsaved is the time since when the owner has changes that the store lacks; nil if it has none.
//
// The caller reads the clock first: if the process stands still between two of these lines, the result is too
// early, never too late. So it is after the machine was suspended, because time.Now measures elapsed time by the
// monotonic clock. Setting the clock changes nothing.
func (l *lease) inSync(local time.Time, unsaved *time.Time) (at time.Time, owned bool) {
	now := l.brokers.Add(local.Sub(l.local))
	ago, err := l.confirmed()
	if err != nil {
		return at, false
	}
	at = now.Add(-ago)
	if at.Before(l.brokers) {
		at = l.brokers // the claim had confirmed the membership
	}
	if unsaved != nil {
		if saved := now.Add(-time.Since(*unsaved)); saved.Before(at) {
			at = saved
		}
	}
	return at, true
}

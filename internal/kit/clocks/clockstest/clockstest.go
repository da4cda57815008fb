// Package clockstest makes moments that a test cannot wait for: clockstest.Suspended(wall, mono). Only tests import it.
package clockstest

import (
	"fmt"
	"time"
	"unsafe"
)

// Suspended returns a moment that was wall ago by the wall clock, and only mono ago by the monotonic clock: since
// then the machine was suspended for the difference, in whole seconds. This is ugly because it writes into a
// [time.Time]: there is no other way to make one whose clocks disagree. It panics if the layout of Go's type has
// changed.
func Suspended(wall, mono time.Duration) time.Time {
	now := time.Now()
	at := now.Add(-mono)
	seconds := (*uint64)(unsafe.Pointer(&at)) // since 1885 in the bits from 30 on, if there is a monotonic reading
	*seconds -= uint64((wall-mono)/time.Second) << 30
	if now.Sub(at) != mono || now.Round(0).Sub(at.Round(0)) != wall {
		panic(fmt.Sprintf("time.Time layout changed: %s and %s ago", now.Round(0).Sub(at.Round(0)), now.Sub(at)))
	}
	return at
}

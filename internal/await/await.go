// Package await waits, in tests, for states that give no signal. Only tests may import it.
package await

import (
	"testing"
	"time"
)

// A test that waits for long looks less often: a look may cost a millisecond of processor time,
// and many tests wait at once. So a look is late by a tenth of what a test has waited, at least
// soonest and at most latest.
const (
	soonest = time.Millisecond
	latest  = 100 * time.Millisecond
	lateBy  = 10
)

// Until polls ok and returns how long it took to be true. It ends the test when
// that is longer than limit; what says then what did not come.
func Until(t testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	took, came := Within(limit, ok)
	if !came {
		t.Fatalf("%s: not within %s", what, limit)
	}
	return took
}

// Within polls ok until it is true, and reports whether it was within limit, and how long that took.
func Within(limit time.Duration, ok func() bool) (took time.Duration, came bool) {
	start := time.Now()
	for !ok() {
		waited := time.Since(start)
		if waited > limit {
			return limit, false
		}
		time.Sleep(min(max(soonest, waited/lateBy), latest))
	}
	return time.Since(start), true
}

// For waits for d, or for the end of the test.
func For(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

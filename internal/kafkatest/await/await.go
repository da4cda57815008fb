// Package await waits, in tests, for states that give no signal: await.Until(t, limit, what, ok). Only tests may import
// it.
package await

import (
	"testing"
	"time"
)

// A test that waits for long polls less often: a poll may cost a millisecond of processor time, and many tests wait
// together. So a poll is late by a tenth of the time that a test has waited, at least soonest and at most latest.
const (
	soonest = time.Millisecond
	latest  = 100 * time.Millisecond
	lateBy  = 10
)

// Until polls ok until it is true and returns how long that took. If it takes longer than limit, it fails the test with
// a message that contains what.
func Until(t testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	took, came := Within(limit, ok)
	if !came {
		t.Fatalf("%s: not within %s", what, limit)
	}
	return took
}

// Within polls ok until it is true. It reports whether that was within limit, and how long it took.
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

// For waits for d, or until the end of the test.
func For(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

package rig

import (
	"testing"
	"time"
)

// poll is how often a state is looked at that sends no notice of its changes. A look at
// metrics takes a millisecond of processor time or more, and many tests wait at once. So a
// test that has waited for long looks less often, at least each pollAtMost, and is at most 2 %
// late.
const (
	poll       = 20 * time.Millisecond
	pollAtMost = 100 * time.Millisecond
	pollShare  = 50
)

// untilNextLook is how long to wait for the next look, of one that waits since start.
func untilNextLook(start time.Time) time.Duration {
	return min(max(poll, time.Since(start)/pollShare), pollAtMost)
}

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
		if time.Since(start) > limit {
			return limit, false
		}
		time.Sleep(untilNextLook(start))
	}
	return time.Since(start), true
}

// Wait waits for d, or for the end of the test.
func Wait(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

package rig

import (
	"testing"
	"time"
)

// poll is how often something is looked at that tells no one of its changes.
const poll = 20 * time.Millisecond

// Until polls ok and returns how long it took to be true. It ends the test when
// that is longer than limit; what says then what did not come.
func Until(t testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > limit {
			t.Fatalf("%s: not within %s", what, limit)
		}
		time.Sleep(poll)
	}
	return time.Since(start)
}

// Wait waits for d, or for the end of the test.
func Wait(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

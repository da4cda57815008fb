package rig

import (
	"os"
	"testing"
)

// envSlow is the variable that has the tests run that are slow by nature.
const envSlow = "WATERCLOCK_SLOW_TESTS"

// Slow reports whether tests may take minutes: CI says so, by
// WATERCLOCK_SLOW_TESTS=1. Without it a test whose size is what makes it slow
// runs with a smaller one.
func Slow() bool { return os.Getenv(envSlow) == "1" }

// NeedSlow skips a test that is slow by nature where none is wanted.
func NeedSlow(t testing.TB) {
	t.Helper()
	if !Slow() {
		t.Skipf("takes minutes: set %s=1 to run it", envSlow)
	}
}

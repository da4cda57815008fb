package kafkatest

import (
	"os"
	"testing"
)

// envSlow names the environment variable that turns on slow tests.
const envSlow = "WATERCLOCK_SLOW_TESTS"

// Slow reports whether tests may take minutes, as CI allows with
// WATERCLOCK_SLOW_TESTS=1. Otherwise tests run at a smaller size if they can.
func Slow() bool { return os.Getenv(envSlow) == "1" }

// NeedSlow skips a test that takes minutes, or much processor time, unless slow tests
// are on.
func NeedSlow(t testing.TB) {
	t.Helper()
	if !Slow() {
		t.Skipf("takes long: set %s=1 to run it, as CI does", envSlow)
	}
}

// Package runs says how often a random test runs. Only tests may import it.
package runs

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// more is how many times as many runs there are with WATERCLOCK_SLOW_TESTS=1, as in CI.
const more = 10

// Slow reports whether tests may take minutes, as in CI.
func Slow() bool { return os.Getenv("WATERCLOCK_SLOW_TESTS") == "1" }

// Checks has rapid.Check run at least n times, until the test is over, unless -rapid.checks says otherwise.
func Checks(t testing.TB, n int) {
	if Slow() {
		n *= more
	}
	set(t, "rapid.checks", n)
}

// Steps has T.Repeat take so many steps on average, likewise.
func Steps(t testing.TB, n int) { set(t, "rapid.steps", n) }

func set(t testing.TB, name string, n int) {
	t.Helper()
	f := flag.Lookup(name)
	if f.Value.String() != f.DefValue {
		return
	}
	if err := f.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
}

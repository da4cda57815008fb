// Package runs says how much a test may do: runs.NeedSlow(t) skips a slow one. Only tests may import it.
//
// WATERCLOCK_SLOW_TESTS chooses the size of the tests. Unset: the size for CI. 1, or any other value: also tests that
// take minutes; CI sets it for simulation and chaos. all: each test at its full size, an hour (make slow).
package runs

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

const envSlow = "WATERCLOCK_SLOW_TESTS"

// Factors for the runs of a random test, in CI and at full size.
const inCI, atFullSize = 3, 10

// Slow reports whether tests may take minutes.
func Slow() bool { return os.Getenv(envSlow) != "" }

// Full reports whether tests have their full size.
func Full() bool { return os.Getenv(envSlow) == "all" }

// NeedSlow skips a test that takes minutes, or much processor time, unless Slow.
func NeedSlow(t testing.TB) { need(t, Slow(), "1", "as CI does for simulation and chaos") }

// NeedFull skips a test that takes minutes of the whole machine, unless Full.
func NeedFull(t testing.TB) { need(t, Full(), "all", "as make slow does") }

// NotRaced skips a test under the race detector, where it would take long for nothing: it has one goroutine, measures
// memory, or starts the goroutines of another test, which runs there.
func NotRaced(t testing.TB) {
	t.Helper()
	if raced {
		t.Skip("takes long under the race detector, which finds nothing in it")
	}
}

func need(t testing.TB, have bool, value, who string) {
	t.Helper()
	if !have {
		t.Skipf("takes long: set %s=%s to run it, %s", envSlow, value, who)
	}
}

// Checks has rapid.Check run at least n times, until the test is over, unless -rapid.checks says otherwise.
func Checks(t testing.TB, n int) {
	switch {
	case Full():
		n *= atFullSize
	case Slow():
		n *= inCI
	}
	set(t, "rapid.checks", n)
}

// Steps sets how many steps T.Repeat takes on average, unless -rapid.steps says otherwise.
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

package client_test

import (
	"os"
	"testing"

	"github.com/waterclock/waterclock/waterclocktest"
)

// TestMain gives the examples an instance, in WATERCLOCK_URL. If that is set, they run against that one.
func TestMain(m *testing.M) {
	if os.Getenv("WATERCLOCK_URL") != "" {
		os.Exit(m.Run())
	}
	s := waterclocktest.Start(waterclocktest.Options{})
	_ = os.Setenv("WATERCLOCK_URL", s.URL) // fails for other names only
	code := m.Run()
	s.Close()
	os.Exit(code)
}

package rig

import "testing"

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("rig: %v", err)
	}
}

package calendar

import (
	"strings"
	"testing"
)

func TestNearestZone(t *testing.T) {
	for found, want := range map[string]string{
		"africa/lagos": "Africa/Lagos", "Lagos": "Africa/Lagos", "America/New York": "America/New_York", "Europe/Berln": "Europe/Berlin",
		"Mars/Olympus": "", "": "", strings.Repeat("x", 1000): "", "new york": "America/New_York",
	} {
		if got := NearestZone(found); got != want {
			t.Errorf("%q: %q, want %q", found, got, want)
		}
	}
}

// Every name that is suggested is known.
func TestZoneNames(t *testing.T) {
	n := 0
	for name := range strings.Lines(zoneNames) {
		n++
		if _, err := LoadZone(strings.TrimSuffix(name, "\n")); err != nil {
			t.Error(err)
		}
	}
	if n < 400 {
		t.Errorf("%d names", n)
	}
}

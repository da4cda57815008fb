package calendar

import (
	"strings"
	"testing"
)

func TestDidYouMean(t *testing.T) {
	for found, want := range map[string]string{
		"africa/lagos": "did you mean Africa/Lagos?", "Lagos": "did you mean Africa/Lagos?",
		"America/New York": "did you mean America/New_York?",
		"Europe/Berln":     "did you mean Europe/Berlin?", "new york": "did you mean America/New_York?",
		"utc":     "did you mean UTC?",
		"Eastern": "did you mean Canada/Eastern or US/Eastern?",
		"PST":     "PST is an abbreviation and no name: name a place", "IST": "IST is an abbreviation",
		"CEST":  "CEST is an abbreviation",
		"UTC+2": "or Etc/GMT-2, which has that offset all year", "GMT-05:00": "or Etc/GMT+5, which",
		"GMT+2": "or Etc/GMT-2, which", "+09": "or Etc/GMT-9, which",
		"UTC+05:30": "UTC+05:30 is an offset and no name: name a place)", "UTC+20": "name a place)",
		"Mars/Olympus": "", "": "", strings.Repeat("x", 1000): "", "XYZ": "", "(PST": "", " ": "",
	} {
		if got := DidYouMean(found); !strings.Contains(got, want) || (want == "") != (got == "") {
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

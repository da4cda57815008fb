package rig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A metric that a test saw with a value other than 0 is recorded once: by name, and by each value of a label that has
// few.
func TestSeenMetricsAreNoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	t.Setenv(envSeen, path)
	seen.mu.Lock()
	clear(seen.names) // of an earlier run
	seen.mu.Unlock()
	for range 2 {
		_, err := parseMetrics(`# TYPE waterclock_of_this_test gauge
waterclock_of_this_test{topic="a",state="live"} 2
waterclock_of_this_test{topic="b",state="live"} 1
waterclock_of_this_test{topic="a",state="failed"} 0
# TYPE waterclock_never_in_this_test gauge
waterclock_never_in_this_test{state="live"} 0
# TYPE foreign_of_this_test gauge
foreign_of_this_test{state="live"} 1
`)
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(text))
	if want := []string{"waterclock_of_this_test", `waterclock_of_this_test{state="live"}`}; !slices.Equal(got, want) {
		t.Errorf("noted %q, want %q", got, want)
	}
}

// A look at one metric reads only its family, with the same result as a look at all.
func TestFamilyOf(t *testing.T) {
	const body = `# HELP waterclock_looks_total Looks.
# TYPE waterclock_looks_total counter
waterclock_looks_total{state="a"} 2
waterclock_looks_total{state="b"} 3
# HELP waterclock_lag Lag.
# TYPE waterclock_lag histogram
waterclock_lag_bucket{le="+Inf"} 4
waterclock_lag_sum 1
waterclock_lag_count 4
# HELP waterclock_lag_bytes More.
# TYPE waterclock_lag_bytes gauge
waterclock_lag_bytes 7
`
	t.Setenv(envSeen, "")
	for name, want := range map[string]float64{"waterclock_looks_total": 5, "waterclock_lag": 4,
		"waterclock_lag_bytes": 7, "waterclock_none": 0} {
		part := familyOf(body, name)
		families, err := parseMetrics(part)
		if err != nil {
			t.Fatal(err)
		}
		if got := sum(families[name]); got != want || len(part) == len(body) {
			t.Errorf("%s is %v, want %v, read from %q", name, got, want, part)
		}
	}
}

// If seen metrics are recorded, all are read, but not at each look.
func TestParseAll(t *testing.T) {
	w := &Web{}
	t.Setenv(envSeen, "")
	if w.parseAll() {
		t.Error("all are read for nobody")
	}
	t.Setenv(envSeen, "somewhere")
	if !w.parseAll() {
		t.Error("the first look reads one")
	}
	w.parsed.Store(time.Now().Add(time.Hour).UnixNano())
	if w.parseAll() {
		t.Error("the next look reads all")
	}
}

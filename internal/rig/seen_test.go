package rig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a test saw with another value than 0 is noted once: by name, and by each
// value of a label that has few.
func TestSeenMetricsAreNoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen")
	t.Setenv(envSeen, path)
	seen.mu.Lock()
	clear(seen.names) // of a run before
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

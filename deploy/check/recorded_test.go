package check

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// recorded are incidents that really happened to an instance, the only one of its group, and the alerts that they
// raise, and no others. test/docs leaves what was scraped of them in testdata.
var recorded = map[string][]string{
	"broker-lost":          {"WaterclockPartitionNotLive"}, // as if no other broker could lead
	"certificates-expired": {"WaterclockAccessDenied"},
	"changelog-deleted":    {"WaterclockTopicStopped", "WaterclockPartitionNotLive"},
	"clock-jump":           {"WaterclockClockJumped", "WaterclockClockRefused", "WaterclockClockOff"},
	"disk-full":            {"WaterclockInstanceDown", "WaterclockAbsent"},
	"disk-nearly-full":     {"WaterclockDiskNearlyFull"},
	"group-foreign":        {"WaterclockGroupForeign", "WaterclockPartitionsUnowned"},
	"hot-partition":        {},
	"instance-lost":        {"WaterclockInstanceDown", "WaterclockAbsent"},
	"intake-held":          {"WaterclockIntakeHeld", "WaterclockIntakeLag"},
	"offsets-reset":        {},
	"poison-flood":         {"WaterclockDeadLetters"},
	// The target's leader went for good, and took an abort with it.
	"target-gone":   {"WaterclockTargetParked", "WaterclockMissingMarkers"},
	"wrong-version": {"WaterclockNotReady", "WaterclockPartitionsUnowned"},
}

// ages are gauges that grow for as long as what they are the age of lasts. Below a second it is over already.
var ages = []string{"waterclock_intake_held_seconds", "waterclock_intake_lag_seconds",
	"waterclock_oldest_uncommitted_seconds"}

// series reads a recording: what was scraped before the incident is scraped until then, and what was
// scraped during it from then on.
func series(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{key("process_start_time_seconds", "wc-0", ""): always("-3600")}
	for line := range strings.Lines(string(text)) {
		rest, is, _ := cutLast(strings.TrimSpace(line), " ")
		what, was, ok := cutLast(rest, " ")
		name, labels, _ := strings.Cut(strings.TrimSuffix(what, "}"), "{")
		if !ok {
			t.Fatalf("%s: %q is no series with two values", path, line)
		}
		values := from(was, is)
		switch {
		case was == "_":
			values = fmt.Sprintf("_x%d %sx%d", before, is, during)
		case is == "_":
			values = gone(was)
		}
		if age, err := strconv.ParseFloat(is, 64); err == nil && age > 1 && slices.Contains(ages, name) {
			begun := fmt.Sprintf("%sx%d", was, before-1)
			if was == "_" {
				begun = fmt.Sprintf("_x%d", before)
			}
			values = fmt.Sprintf("%s %s+%gx%d", begun, is, interval.Seconds(), during)
		}
		all[key(name, "wc-0", labels)] = values
	}
	return all
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func TestRecordedIncidents(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) != len(recorded) {
		t.Errorf("%d recordings, want %d: %v", len(files), len(recorded), err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, ok := recorded[name]
			if !ok {
				t.Fatal("nobody says which alerts it raises")
			}
			first, _ := firing(t, series(t, path))
			if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("%q fire, want %q", got, want)
			}
			for alert, at := range first {
				if at < onset {
					t.Errorf("%s fires at %s, before the incident", alert, at)
				}
			}
		})
	}
}

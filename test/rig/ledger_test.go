package rig

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each condition that Balanced waits for is detected if it does not hold.
func TestUnbalanced(t *testing.T) {
	t.Setenv(envSeen, "") // these are not metrics of the product
	metrics := func(ledgers map[string]int, queued, pending int) string {
		var b strings.Builder
		b.WriteString("# TYPE waterclock_ledger gauge\n")
		for topic, v := range ledgers {
			fmt.Fprintf(&b, "waterclock_ledger{topic=%q} %d\n", topic, v)
		}
		fmt.Fprintf(&b, "# TYPE waterclock_queue_entries gauge\nwaterclock_queue_entries{topic=\"a\"} %d\n", queued)
		fmt.Fprintf(&b, "# TYPE waterclock_pending_timers gauge\nwaterclock_pending_timers{topic=\"a\"} %d\n", pending)
		return b.String()
	}
	zero := map[string]int{"a": 0, "b": 0}
	for _, c := range []struct {
		name    string
		body    string
		pending float64
		want    string
	}{
		{"at rest", metrics(zero, 0, 3), 3, ""},
		{"at rest, with any pending", metrics(zero, 0, 3), anyPending, ""},
		{"one ledger off", metrics(map[string]int{"a": 0, "b": 2}, 0, 3), anyPending, "for b is 2 at rest"},
		{"two that cancel out", metrics(map[string]int{"a": 1, "b": -1}, 0, 3), anyPending, "for b is -1 at rest"},
		{"entries on their way", metrics(zero, 1, 3), 3, "1 entries are in flight"},
		{"off, and entries on their way", metrics(map[string]int{"a": 1}, 1, 3), 3, "1 entries are in flight"},
		{"one pending too many", metrics(zero, 0, 4), 3, "4 timers are pending, want 3"},
		{"no ledger at all", metrics(nil, 0, 0), anyPending, "there is no waterclock_ledger"},
		{"not ready, on their way", metrics(zero, 1, 4), notReady, ""},
		{"not ready, ledger off", metrics(map[string]int{"a": 1}, 1, 4), notReady, "for a is 1 at rest"},
		{"not ready yet, no ledger", "", notReady, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "violations")
			t.Setenv("WATERCLOCK_VIOLATIONS", path)
			s := httptest.NewServer(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.body)) }))
			defer s.Close()
			said := ""
			w := &Web{t: erring{t, &said}, url: s.URL}
			if ok := w.settles(c.pending, 30*time.Millisecond); ok != (c.want == "") ||
				!strings.Contains(said, c.want) || ok && said != "" {
				t.Errorf("%v, the test says %q, want %q", ok, said, c.want)
			}
			// Only a ledger that is off at rest is a verdict for CI.
			if _, err := os.Stat(path); (err == nil) != strings.Contains(c.want, "at rest") {
				t.Errorf("a verdict was noted: %v", err == nil)
			}
		})
	}
}

// A ledger that is off only while a step is applied is waited for.
func TestUnbalancedWaitsForSteps(t *testing.T) {
	looks := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		looks++
		fmt.Fprintf(w, "# TYPE waterclock_ledger gauge\nwaterclock_ledger %d\n", max(0, 3-looks))
	}))
	defer s.Close()
	w := &Web{t: t, url: s.URL}
	if !w.settles(anyPending, time.Minute) || looks != 3 {
		t.Errorf("after %d looks", looks)
	}
}

// erring is a test that records its failures.
type erring struct {
	testing.TB
	said *string
}

func (e erring) Helper()                           {}
func (e erring) Errorf(format string, args ...any) { *e.said += fmt.Sprintf(format, args...) + "\n" }

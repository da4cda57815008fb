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

// What Balanced waits for: each part of it wrong is found.
func TestUnbalanced(t *testing.T) {
	t.Setenv(envSeen, "") // no product shows these
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
		{"one ledger off", metrics(map[string]int{"a": 0, "b": 2}, 0, 3), anyPending, "is 2"},
		{"two that cancel out", metrics(map[string]int{"a": 1, "b": -1}, 0, 3), anyPending, "is -1"},
		{"entries on their way", metrics(zero, 1, 3), 3, "1 entries are on their way"},
		{"one pending too many", metrics(zero, 0, 4), 3, "4 timers are pending, want 3"},
		{"no ledger at all", metrics(nil, 0, 0), anyPending, "there is no waterclock_ledger"},
		{"not ready, on their way", metrics(zero, 1, 4), notReady, ""},
		{"not ready, ledger off", metrics(map[string]int{"a": 1}, 1, 4), notReady, "is 1"},
		{"not ready yet, no ledger", "", notReady, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.body)) }))
			defer s.Close()
			w := &Web{t: t, url: s.URL}
			if got := w.unbalanced(c.pending, 30*time.Millisecond); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
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
	if wrong := w.unbalanced(anyPending, time.Minute); wrong != "" || looks != 3 {
		t.Errorf("after %d looks %q", looks, wrong)
	}
}

// Only a ledger that is off with nothing on its way is a verdict for CI.
func TestUnsettled(t *testing.T) {
	for _, c := range []struct {
		name, wrong string
		verdict     bool
	}{
		{"off at rest", fmt.Sprintf("%s a is 2", ledgerOff), true},
		{"off and busy", fmt.Sprintf("%s a is 2, 3 %s", ledgerOff, onTheirWay), false},
		{"still pending", "4 timers are pending, want 3", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "violations")
			t.Setenv("WATERCLOCK_VIOLATIONS", path)
			said := ""
			(&Web{t: erring{t, &said}}).unsettled("in the end", c.wrong)
			if !strings.Contains(said, c.wrong) {
				t.Errorf("the test says %q", said)
			}
			if _, err := os.Stat(path); (err == nil) != c.verdict {
				t.Errorf("a verdict was noted: %v, want %v", err == nil, c.verdict)
			}
		})
	}
}

// erring is a test that notes what it fails with.
type erring struct {
	testing.TB
	said *string
}

func (e erring) Helper()                           {}
func (e erring) Errorf(format string, args ...any) { *e.said = fmt.Sprintf(format, args...) }

package load

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// What docs/LIMITS.md says: requests have the queue's memory, an entry for each KiB of it, and firings have as much
	// again. Each partition may have one fetch more than that, and each worker one hand of firings.
	entryBytes = 1 << 10
	firings    = 512
	workers    = 4
	// What comes at once is 1 MiB when decompressed, and the batch that reaches it: here another one, of small
	// requests, which have 90 bytes or more each there and some 700 in memory.
	fetchEntries = 24_576
	fetchBytes   = 18 << 20

	// Limits of what a test waits for; a quiet machine needs a tenth.
	sendLimit   = 2 * time.Minute
	settleLimit = 3 * time.Minute
)

// fill is what an instance's queues hold.
type fill struct{ entries, bytes float64 }

func (f fill) String() string {
	return fmt.Sprintf("%.0f entries and %.1f MiB", f.entries, f.bytes/mib)
}

// watch reads an instance's queues while a test waits for something.
type watch struct {
	t           testing.TB
	in          *rig.Web
	limit, peak fill
	looks       int
}

// watchOf watches an instance that has so much memory for its queues.
func watchOf(t testing.TB, in *rig.Web, queue int64) *watch {
	return &watch{t: t, in: in, limit: fill{
		entries: float64(2*queue/entryBytes) + partitions*(fetchEntries+workers*firings),
		bytes:   float64(2*queue) + partitions*fetchBytes,
	}}
}

func (w *watch) String() string {
	return fmt.Sprintf("queues up to %s in %d looks, limit %s", w.peak, w.looks, w.limit)
}

// check holds the peaks against the limits.
func (w *watch) check() {
	w.t.Helper()
	if w.looks == 0 || w.peak.entries == 0 || w.peak.bytes == 0 {
		w.t.Errorf("nothing was seen in the queues: %s", w)
	}
	if w.peak.entries > w.limit.entries || w.peak.bytes > w.limit.bytes {
		w.t.Errorf("beyond the limits: %s", w)
	}
}

func (w *watch) look() {
	w.t.Helper()
	w.looks++
	w.peak.entries = max(w.peak.entries, w.in.Metric("waterclock_queue_entries"))
	w.peak.bytes = max(w.peak.bytes, w.in.Metric("waterclock_queue_bytes"))
}

// until waits for ok and ends the test if it stays false for the limit.
func (w *watch) until(limit time.Duration, what string, ok func() bool) time.Duration {
	w.t.Helper()
	return await.Until(w.t, limit, what, func() bool {
		w.look()
		return ok()
	})
}

// during looks on while do runs, and ends the test if that fails.
func (w *watch) during(limit time.Duration, what string, do func() error) time.Duration {
	w.t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	return w.until(limit, what, func() bool {
		select {
		case err := <-done:
			if err != nil {
				w.t.Fatalf("%s: %v", what, err)
			}
			return true
		default:
			return false
		}
	})
}

// atRest waits until that many timers are pending and nothing is on its way, with a ledger of 0.
func (w *watch) atRest(limit time.Duration, pending int) time.Duration {
	w.t.Helper()
	return w.until(limit, fmt.Sprintf("%d pending at rest, ledger 0", pending), func() bool {
		return w.in.Metric("waterclock_pending_timers") == float64(pending) &&
			w.in.Metric("waterclock_queue_entries") == 0 && w.in.Metric("waterclock_ledger") == 0
	})
}

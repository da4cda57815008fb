package statestore

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

// The in-sync time does not pass the oldest change that the owner says the store lacks, even if it says so while the
// lease is asked.
func TestTheInSyncTimeWaitsForUnsavedChanges(t *testing.T) {
	now := time.Now()
	o := testOptions(vfs.NewMem())
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	defer s.Close()
	k := s.Partition(partition0).Acquire()
	must(t, k.Apply(batchAt(1, put(newTimer("a", 1, 1), timer.Absent))))
	var late time.Time
	must(t, k.Live(testNow, func() (time.Duration, error) {
		if !late.IsZero() {
			k.Unsaved(late)
		}
		return 0, nil
	}))
	now = now.Add(2 * time.Hour)
	is := func(what string, want time.Duration) {
		t.Helper()
		must(t, s.Flush())
		if got := getMeta(t, k).InSync.Sub(testNow); got > want || got < want-time.Minute {
			t.Errorf("%s: in sync %s after the begin, want %s", what, got, want)
		}
	}
	is("all is saved", 2*time.Hour)
	k.Unsaved(time.Now().Add(-time.Hour))
	is("an hour is not saved", time.Hour)
	k.Unsaved(time.Time{})
	is("all is saved again", 2*time.Hour)
	late = time.Now().Add(-time.Hour)
	is("a change is told while the lease is asked", time.Hour)
}

package statestore

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

// TestScansOfLargeRowsTakeTurns: with large rows in the store, a scan waits until another one has ended; with small
// rows none waits.
func TestScansOfLargeRowsTakeTurns(t *testing.T) {
	s := mustOpen(t, testOptions(vfs.NewMem()))
	k := s.Partition(partition0).Acquire()
	write := func(n int64, bytes int) {
		t.Helper()
		x := newTimer(fmt.Sprint(n), n, n)
		x.Value = make([]byte, bytes)
		must(t, k.Apply(batchAt(n, put(x, timer.Absent))))
	}
	inTurn := func() bool {
		end := s.scanInTurn()
		defer end()
		return !s.scans.TryAcquire(int64(s.inputs.size / scansPart))
	}
	write(1, 1<<10)
	if inTurn() {
		t.Error("a scan of small rows takes a turn")
	}
	s.scans.Release(int64(s.inputs.size / scansPart))
	write(2, 1<<20)
	if !inTurn() {
		t.Error("a scan of large rows takes no turn")
	}
	for range 3 { // each turn ends
		if found, _, _, err := k.Scan(timer.Ref{}, timer.Ref{Due: 100}, 10, 10<<20); err != nil || len(found) != 2 {
			t.Fatalf("%d timers, %v", len(found), err)
		}
	}
}

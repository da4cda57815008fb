package statestore

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

// A store that does not count misplaced timers does not show a number that was counted before. There may be new timers
// since then, even if none of them is stored yet.
func TestNumberThatIsNotCountedAnyMore(t *testing.T) {
	fs := vfs.NewMem()
	counting := testOptions(fs)
	counting.Home = func([]byte, int32) int32 { return partition0.Partition }
	s := mustOpen(t, counting)
	k := s.Partition(partition0).Acquire()
	if counted, err := k.CountFor(2); err != nil || !counted {
		t.Fatal(counted, err)
	}
	must(t, k.Apply(batchAt(5, put(newTimer("a", 1, 1), timer.Absent))))
	if n, known := s.Partition(partition0).Misplaced(); n != 0 || !known {
		t.Errorf("%d are misplaced, known: %v", n, known)
	}
	must(t, s.Close())

	s = mustOpen(t, testOptions(fs))
	k = s.Partition(partition0).Acquire()
	if m, err := k.Meta(); err != nil || m.Pending != 1 {
		t.Fatal(m, err)
	}
	if counted, err := k.CountFor(2); err != nil || !counted {
		t.Fatal(counted, err)
	}
	if n, known := s.Partition(partition0).Misplaced(); known {
		t.Errorf("%d are misplaced, but nobody counts", n)
	}
}

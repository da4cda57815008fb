package statestore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

// Blocks that were read stay in the cache, and fill its room.
func TestCacheStaysInItsRoom(t *testing.T) {
	runs.NotRaced(t)
	const values, valueBytes, batch = 10_000, 4 << 10, 1000
	o := testOptions(vfs.NewMem())
	o.Memory = 16 << 20
	s := mustOpen(t, o)
	k := s.Partition(partition0).Acquire()
	random := rand.NewChaCha8([32]byte{1, 2})
	for first := 0; first < values; first += batch {
		var changes []Change
		for i := first; i < first+batch; i++ {
			x := newTimer(fmt.Sprint(i), int64(i), int64(i))
			x.Value = make([]byte, valueBytes)
			_, _ = random.Read(x.Value) // never fails
			changes = append(changes, put(x, timer.Absent))
		}
		must(t, k.Apply(batchAt(int64(first+batch), changes...)))
	}
	must(t, s.Flush())
	read := func() int64 {
		t.Helper()
		for range 2 {
			if n := len(all(t, k)); n != values {
				t.Fatalf("%d timers read, want %d", n, values)
			}
		}
		return s.db.Metrics().BlockCache.Size
	}
	if got, room := read(), int64(o.Memory); got > room || got < room/4 {
		t.Errorf("%d bytes of blocks in a room of %d", got, room)
	}
}

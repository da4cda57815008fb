package statestore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

// The room of memtables and blocks is what is said, and 2 bytes a timer, in steps,
// for 100 million timers at most.
func TestCacheGrowsWithWhatIsPending(t *testing.T) {
	const mib = 1 << 20
	c := newCache(16 * mib)
	defer c.Unref()
	most := int64(16*mib + 200_000_000)
	for _, row := range []struct{ pending, room int64 }{
		{0, 16 * mib}, {1, 17 * mib}, {mib / 2, 17 * mib}, {mib/2 + 1, 18 * mib}, {10 * mib, 36 * mib},
		{cacheTimers - mib, 16*mib + 189*mib}, {cacheTimers, most}, {1 << 40, most}, {0, 16 * mib},
	} {
		if c.fit(row.pending); c.room.Load() != row.room {
			t.Errorf("%d pending: room of %d, want %d", row.pending, c.room.Load(), row.room)
		}
	}
}

// What the store counts as pending is what it holds: after changes, a wipe and a
// start.
func TestCacheKnowsWhatIsPending(t *testing.T) {
	o := testOptions(vfs.NewMem())
	s := mustOpen(t, o)
	want := func(n int64) {
		t.Helper()
		if got := s.pending.Load(); got != n {
			t.Errorf("%d pending, want %d", got, n)
		}
	}
	k0, k1 := s.Partition(partition0).Acquire(), s.Partition(partition1).Acquire()
	a, b := newTimer("a", 1, 1), newTimer("b", 2, 2)
	must(t, k0.Apply(batchAt(1, put(a, timer.Absent), put(b, timer.Absent))))
	must(t, k1.Apply(batchAt(1, put(a, timer.Absent))))
	want(3)
	must(t, k0.Apply(batchAt(2, remove(a))))
	want(2)
	must(t, s.Close())

	s = mustOpen(t, o)
	want(0)
	k0, k1 = s.Partition(partition0).Acquire(), s.Partition(partition1).Acquire()
	getMeta(t, k0)
	getMeta(t, k1)
	want(2)
	must(t, k1.Wipe())
	want(1)
}

// Blocks that were read stay in the room there is, and use it.
func TestCacheStaysInItsRoom(t *testing.T) {
	const values, valueBytes, batch = 10_000, 4 << 10, 1000
	o := testOptions(vfs.NewMem())
	o.Memory = 0
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
		return s.Metrics().CacheBytes
	}
	room := s.cache.room.Load()
	if got := read(); got > room || got < room/4 {
		t.Errorf("%d bytes of blocks in a room of %d", got, room)
	}
	s.cache.fit(20_000_000)
	if got := read(); got <= room {
		t.Errorf("%d bytes of blocks though there is room for more than %d", got, room)
	}
	s.cache.fit(0)
	if got := s.Metrics().CacheBytes; got > room {
		t.Errorf("%d bytes of blocks in a room of %d again", got, room)
	}
}

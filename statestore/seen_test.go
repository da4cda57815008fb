package statestore

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

func TestSeen(t *testing.T) {
	s := newSeen()
	const n = 1_000_000
	for i := range int64(n) {
		s.add(benchID(i))
	}
	wrong := 0
	for i := range int64(n) {
		if !s.maybe(benchID(i)) {
			t.Fatalf("%d was added", i)
		}
		if s.maybe(benchID(n + i)) {
			wrong++
		}
	}
	if wrong > n/200 {
		t.Fatalf("%d of %d that were not added", wrong, n)
	}
}

// A replay of an empty partition in many flushes, by tables, batches and both,
// whose IDs come again and go, also by an Apply, a Park or an Unpark between two
// flushes.
func TestReplayRemembersWhatItStored(t *testing.T) {
	remembered := 0
	rapid.Check(t, func(t *rapid.T) {
		s, err := Open(testOptions(vfs.NewMem()))
		check(t, err)
		defer s.Close()
		s.tableIDs = rapid.IntRange(1, 30).Draw(t, "tableIDs")
		k := s.Partition(partition0).Acquire()
		model := log{seed: rapid.Uint64().Draw(t, "seed"), names: 60}.empty()
		r, err := k.Replay(changelog, testNow)
		check(t, err)
		for range rapid.IntRange(2, 10).Draw(t, "steps") {
			step := max(model.position, 0) + rapid.Int64Range(1, 60).Draw(t, "records")
			switch rapid.IntRange(0, 8).Draw(t, "what") {
			case 0:
				check(t, model.apply(k, step))
			case 1:
				check(t, model.park(k, unhealthy, 0, 30))
			case 2:
				check(t, model.unpark(k, unhealthy, 10, 1<<20))
			default:
				check(t, model.put(r, step))
				check(t, r.Flush(step))
			}
			if r.seen != nil {
				remembered++
			}
			check(t, model.compare(k))
		}
	})
	if remembered == 0 {
		t.Fatal("no replay remembered anything")
	}
}

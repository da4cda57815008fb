package statestore

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// TestCompactionsOfLargeRowsTakeFromTheCache: the memory for large rows comes from the cache, half of it at most, and
// is given back. Small rows take nothing.
func TestCompactionsOfLargeRowsTakeFromTheCache(t *testing.T) {
	const size = 28 << 20
	cache := pebble.NewCache(size)
	defer cache.Unref()
	in := newInputs(cache, size)
	pebbles := new(events).listener(in)
	layers := func(n int) []pebble.LevelInfo {
		return []pebble.LevelInfo{{Level: 0, Tables: make([]pebble.TableInfo, n)},
			{Level: 6, Tables: make([]pebble.TableInfo, 100)}}
	}
	first, second := pebble.CompactionInfo{JobID: 1, Input: layers(9)},
		pebble.CompactionInfo{JobID: 2, Input: layers(9)}
	reserved := func(want int) {
		t.Helper()
		if in.reserved != want || (want == 0) != (len(in.taken) == 0) {
			t.Errorf("%d bytes are taken by %d compactions, want %d", in.reserved, len(in.taken), want)
		}
	}
	in.wrote(blockSize)
	pebbles.CompactionBegin(first)
	reserved(0)
	pebbles.CompactionEnd(first)
	in.wrote(1 << 20)
	in.wrote(100)
	pebbles.CompactionBegin(first)
	reserved(10 << 20)
	pebbles.CompactionBegin(second)
	reserved(size / inputsPart)
	pebbles.CompactionEnd(first)
	pebbles.CompactionEnd(first)
	reserved(4 << 20)
	pebbles.CompactionEnd(second)
	reserved(0)
}

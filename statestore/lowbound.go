package statestore

import (
	"sync"

	"github.com/waterclock/waterclock/internal/timer"
)

// lowBound is where scans of a partition start: at or before its first row by due time. A scan from the
// partition's first key would step over the tombstones of all timers that ever fired, which takes seconds.
//
// A put lowers the bound *before* its batch is committed, so the bound is never too high. A sweep raises it to
// the first row of a snapshot. The snapshot does not have puts that are committed later. Their lowest is kept
// in since, beginning at a moment when no batch is under way, and bounds what the sweep has found. mu guards both.
type lowBound struct {
	mu    sync.Mutex
	low   timer.Ref
	since timer.Ref // lowest put since the last sweep began
}

func newLowBound() *lowBound { return &lowBound{low: last, since: last} }

// with calls f, which opens a view of the store, and returns the bound of that moment. No sweep ends in
// between. Otherwise the bound could lie behind a row that f still sees but that was deleted since. f does no
// I/O.
func (b *lowBound) with(f func()) timer.Ref {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	return b.low
}

// reset sets the bound of a partition that was just loaded or wiped. A sweep under way can only lower it.
func (b *lowBound) reset(r timer.Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.low, b.since = r, r
}

// put lowers the bound for a batch whose lowest put is r, and returns it.
func (b *lowBound) put(r timer.Ref) timer.Ref {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Compare(b.low) < 0 {
		b.low = r
	}
	if r.Compare(b.since) < 0 {
		b.since = r
	}
	return b.low
}

// begin starts a sweep and returns the bound to search from. No batch may be under way until the snapshot is
// taken.
func (b *lowBound) begin() timer.Ref {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since = last
	return b.low
}

// end ends a sweep whose snapshot has its first row at found.
func (b *lowBound) end(found timer.Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since.Compare(found) < 0 {
		found = b.since
	}
	b.low = found
}

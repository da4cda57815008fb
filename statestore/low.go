package statestore

import (
	"errors"
	"sync"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// sweepAfter deletions of rows by due time the low bound is raised: this
	// bounds how many tombstones a scan may have to step over.
	sweepAfter = 50_000

	maxSweepsWaiting = 64 // partitions; more wait for the next flush
)

// lowBound is the place where scans of a partition start: at or before its first
// row by due time. Without it a scan from the partition's first key would step
// over the tombstone of everything that ever fired, which takes seconds.
//
// A put lowers the bound *before* its batch is committed, so it is never too
// high. A sweep raises it to the first row of a snapshot, which says nothing of
// puts that are committed after the snapshot: these are remembered in since,
// from a moment when no batch is under way, and lower what the sweep found.
type lowBound struct {
	mu    sync.Mutex
	low   timer.Ref
	since timer.Ref // lowest put since the last sweep began
}

func newLowBound() *lowBound { return &lowBound{low: last, since: last} }

// with calls f, which opens a view of the store, and returns the bound as of then: no sweep ends
// in between. If one did, the bound could lie behind a row that f still sees but that has moved since. f
// does no I/O.
func (b *lowBound) with(f func()) timer.Ref {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	return b.low
}

// reset sets the bound of a partition that was just loaded or wiped. A sweep
// that is under way can only lower it.
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

// begin starts a sweep and returns the bound to search from. No batch may be
// under way between begin and the taking of the snapshot.
func (b *lowBound) begin() timer.Ref {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since = last
	return b.low
}

// end ends the sweep whose snapshot has its first row at found.
func (b *lowBound) end(found timer.Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since.Compare(found) < 0 {
		found = b.since
	}
	b.low = found
}

// sweep raises the low bound to the first row by due time. It holds the
// partition's lock only to take the snapshot. The store's maintain lock must be
// held: one sweep at a time.
func (p *Partition) sweep() error {
	p.write.Lock()
	if err := errors.Join(p.intact(), p.loadLocked()); err != nil {
		p.write.Unlock()
		return nil // not readable, hence nothing to sweep; whoever takes it hears of it
	}
	p.deletions.Store(0)
	wipes := p.wipes
	from := p.low.begin()
	it, err := p.dueIter(p.prefix.key(kindDue + 1))
	p.write.Unlock()
	if err != nil {
		return err
	}
	found := last
	if it.SeekGE(appendDueKey(nil, p.prefix, from)) {
		found, err = decodeRef(it.Key()[idAt:])
	}
	if closeErr := it.Close(); closeErr != nil {
		return closeErr
	}
	if err != nil {
		return err
	}
	p.write.Lock()
	defer p.write.Unlock()
	if p.wipes == wipes {
		p.low.end(found)
	}
	return nil
}

// deleted counts deletions and asks for a sweep when there were many.
func (p *Partition) deleted(n int) {
	if p.deletions.Add(int64(n)) < sweepAfter || p.sweepQueued.Swap(true) {
		return
	}
	select {
	case p.s.upkeep.sweeps <- p:
	default:
		p.sweepQueued.Store(false)
	}
}

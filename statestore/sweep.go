package statestore

import (
	"errors"
	"sync"

	"github.com/waterclock/waterclock/internal/timer"
)

// A sweep is asked for after sweepAfter deletions of rows by due time. So a scan never has to step over many more
// tombstones than that. Store.Flush also sweeps each partition that has deletions.
const sweepAfter = 50_000

// sweep raises the low bound to the first row by due time. It holds the partition's lock only to take the
// snapshot. The caller holds upkeep.busy, so there is one sweep at a time.
func (p *Partition) sweep() error {
	p.write.Lock()
	if err := errors.Join(p.intact(), p.loadLocked()); err != nil {
		p.write.Unlock()
		return nil // it cannot be read; its owner gets the error
	}
	p.deletions.Store(0)
	wipes := p.wipes
	it, err := dueIter(p.s.db, p.prefix, p.low.begin(), last)
	p.write.Unlock()
	if err != nil {
		return err
	}
	found := last
	if err := walk(it, func(key, _ []byte) (_ bool, err error) {
		found, err = decodeRef(key[idAt:])
		return false, err
	}); err != nil {
		return err
	}
	p.write.Lock()
	defer p.write.Unlock()
	if p.wipes == wipes {
		p.low.end(found)
	}
	return nil
}

// deleted counts deletions, and asks for a sweep after many.
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

// lowBound is where scans of a partition start: at or before its first row by due time. A scan from the
// partition's first key would step over the tombstones of all timers that ever fired, which takes seconds.
//
// A put lowers the bound *before* its batch is committed, so the bound is never too high. A sweep raises it to the
// first row of a snapshot. The snapshot does not have puts that are committed later. Their lowest is kept in since,
// beginning at a moment when no batch is running, and bounds the result of the sweep. mu guards both.
type lowBound struct {
	mu    sync.Mutex
	low   timer.Ref
	since timer.Ref // lowest put since the last sweep began
}

func newLowBound() *lowBound { return &lowBound{low: last, since: last} }

// with calls f with the present bound, and returns the bound. f opens a view of the store, and does no I/O. No sweep
// ends during the call. Otherwise the bound could lie behind a row that f still sees but that was deleted since.
func (l *lowBound) with(f func(low timer.Ref)) timer.Ref {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.low)
	return l.low
}

// reset sets the bound of a partition that was just loaded or wiped. A sweep under way can only lower it.
func (l *lowBound) reset(r timer.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.low, l.since = r, r
}

// put lowers the bound for a batch whose lowest put is r, and returns it.
func (l *lowBound) put(r timer.Ref) timer.Ref {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Compare(l.low) < 0 {
		l.low = r
	}
	if r.Compare(l.since) < 0 {
		l.since = r
	}
	return l.low
}

// begin starts a sweep and returns the bound to search from. No batch may be under way until the snapshot is
// taken.
func (l *lowBound) begin() timer.Ref {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = last
	return l.low
}

// end ends a sweep whose snapshot has its first row at found.
func (l *lowBound) end(found timer.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.Compare(found) < 0 {
		found = l.since
	}
	l.low = found
}

package statestore

import "errors"

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

package partition

import (
	"maps"
	"time"
)

// Refuse makes the partition fail for good: an operator must act. It may be
// called before Run, again, and at any time.
func (p *Partition) Refuse(why error) {
	err := error(&Fatal{why})
	if p.refusal.CompareAndSwap(nil, &err) {
		p.fail(err)
	}
}

// refused is what Refuse was called with, nil if it was not.
func (p *Partition) refused() error {
	if err := p.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// Wake makes every worker look at the clock again: it was set.
func (p *Partition) Wake() {
	p.mu.Lock()
	workers := p.workers
	p.mu.Unlock()
	for _, w := range workers {
		w.poke()
	}
	p.kick()
}

// overdue is for how long the oldest timer that a worker has in its wheel has
// been due. A gate that is shut, a full queue, and a wheel that is behind show
// here.
func (p *Partition) overdue() time.Duration {
	oldest := int64(never)
	p.mu.Lock()
	for _, w := range p.workers {
		oldest = min(oldest, w.next.Load())
	}
	p.mu.Unlock()
	now := p.clock.millis()
	if oldest >= now {
		return 0 // never is too far away to be subtracted
	}
	return time.Duration(now-oldest) * time.Millisecond
}

// publishParked shows others the counts, which are Run's own, if they moved.
func (p *Partition) publishParked() {
	if !p.parkedMoved {
		return
	}
	p.parkedMoved = false
	if len(p.parkedTargets) == 0 {
		p.parkedBy.Store(nil)
		return
	}
	by := maps.Clone(p.parkedTargets)
	p.parkedBy.Store(&by)
}

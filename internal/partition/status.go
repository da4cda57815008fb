package partition

import (
	"maps"
	"time"

	"github.com/waterclock/waterclock/internal/ownership"
)

// Status returns a snapshot.
func (p *Partition) Status() ownership.Status {
	s := p.life.Status()
	s.Pending, s.Parked = p.pending.Load(), p.parked.Load()
	s.Overdue, s.Uncommitted = p.overdue()
	if oldest := p.oldest.Load(); oldest != 0 {
		s.OldestParked = max(0, time.Duration(p.clock.millis()-oldest)*time.Millisecond)
	}
	if p.taken.Load() {
		n, known := p.o.Store.Misplaced()
		if s.Misplaced = n; !known {
			s.Misplaced = -1
		}
	}
	switch s.State {
	case ownership.Gated, ownership.Live, ownership.Stalled:
		s.Ledger = p.ledger.balance(s.Pending)
	}
	if by := p.parkedBy.Load(); by != nil {
		s.ParkedBy = *by
	}
	queued := p.backlog.onTheirWay()
	s.Queued, s.QueuedBytes = queued.entries, queued.bytes
	s.Behind, s.Lag = p.lagNow()
	return s
}

// HasStrays reports whether timers may be pending here whose IDs belong on other partitions: the store
// has some or does not count them, or such a request has come that the store does not know yet.
func (p *Partition) HasStrays() bool { return p.strayed.Load() || p.Status().Misplaced != 0 }

// overdue returns for how long the oldest timer in memory has been due that is not planned yet, which
// shows a shut gate, a full queue and steps that are behind; and the same for the oldest timer whose
// firing is not committed, so that no consumer has seen it.
func (p *Partition) overdue() (unplanned, uncommitted time.Duration) {
	a := p.answers.Load()
	if a == nil {
		return 0, 0
	}
	return a.plans.overdue(p.clock.millis())
}

// publishParked shows others the counts, which are Run's own, if they moved.
func (p *Partition) publishParked() {
	if !p.parking.moved {
		return
	}
	p.parking.moved = false
	if len(p.parking.counts) == 0 {
		p.parkedBy.Store(nil)
		return
	}
	by := maps.Clone(p.parking.counts)
	p.parkedBy.Store(&by)
}

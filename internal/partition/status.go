package partition

import (
	"github.com/waterclock/waterclock/internal/ownership"
)

// Status returns a snapshot.
func (p *Partition) Status() ownership.Status {
	s := p.life.Status()
	s.Pending = p.ledger.pending.Load()
	acquired := p.served.Load()
	if acquired != nil {
		n, known := p.o.Store.Misplaced()
		if s.Misplaced = n; !known {
			s.Misplaced = -1
		}
	}
	switch s.State {
	case ownership.Gated, ownership.Live, ownership.Stalled:
		s.Ledger = p.ledger.balance()
	}
	if acquired != nil && p.Questions.IsOpen() {
		s.Overdue, s.Uncommitted = acquired.subs.overdue(p.clock.millis())
	}
	p.parked.show(&s, p.clock.millis())
	s.Behind, s.Lag = p.lag.now(p.o.Now(), false, unread{})
	if acquired != nil {
		queued := acquired.backlog.onTheirWay()
		s.Queued, s.QueuedBytes = queued.Entries, queued.Bytes
		s.Behind, s.Lag = acquired.requests.lagNow()
	}
	return s
}

// HasStrays reports whether timers may be pending here whose IDs belong on other partitions: the store has some or does
// not count them, or a request for one has come since the process owns the partition.
func (p *Partition) HasStrays() bool { return p.strayed.Load() || p.Status().Misplaced != 0 }

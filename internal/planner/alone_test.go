package planner

import "github.com/waterclock/waterclock/internal/timer"

// One planner alone.

func (p *Planner) Take(entries int, bytes int64) *Segment {
	if s := Take([]*Planner{p}, timer.Size{Entries: entries, Bytes: bytes}, false, NoBound); s != nil {
		return s.Segments[0]
	}
	return nil
}

func (p *Planner) Commit() { Commit([]*Planner{p}) }

func (p *Planner) Return() { Return([]*Planner{p}) }

// pending is how many timers are pending once all that is planned is committed.
func (p *Planner) pending() int64 { return p.tally.count.n.Load() - p.tally.leaving }

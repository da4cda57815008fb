package planner

import (
	"slices"

	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// A single planner.

func (p *Planner) Take(entries int, bytes int64) *Segment {
	if s := Take([]*Planner{p}, timer.Size{Entries: entries, Bytes: bytes}, false, NoBound); s != nil {
		return s.Segments[0]
	}
	return nil
}

func (p *Planner) Return() { Return([]*Planner{p}) }

func (p *Planner) Begin(pending int64) { p.tally.count = NewCount(pending) }

func (p *Planner) Size() (ids int, bytes int64)        { return p.Stats().IDs, p.Stats().Bytes }
func (p *Planner) LoadFrom() (from timer.Ref, ok bool) { return p.Stats().Horizon, !p.Stats().Full }
func (p *Planner) Uncommitted() (due int64, ok bool) {
	due = p.Stats().Uncommitted
	return due, due != Never
}
func (p *Planner) Position() int64   { return p.Stats().Position }
func (p *Planner) DirtyBytes() int64 { return p.Stats().DirtyBytes }
func (p *Planner) Changed() int      { return p.Stats().Changed }
func (p *Planner) Flushes() int64    { return p.Stats().Flushes }
func (p *Planner) Wanted() bool      { return p.Stats().Wanted }
func (p *Planner) Crowded() bool     { return p.Stats().Crowded }
func (p *Planner) Pending() int64    { return p.tally.count.Committed() }

// Add adds a request; value is the bytes of the timer that it schedules.
func (b *Batch) Add(record any, r timer.Request, value []byte) {
	b.Append(record, r.Offset)
	r.Bytes = value
	b.requests = append(b.requests, r)
}

// Reject adds a request that becomes a dead letter.
func (b *Batch) Reject(record any, offset int64, why *timer.Refusal) {
	b.Append(record, offset)
	b.requests = append(b.requests, timer.Request{})
	b.Refuse(len(b.entries)-1, why)
}

// request plans one request. found is the timer that the store has under its ID, if it is asked, and parked whether
// that waits for its target.
func (p *Planner) request(r timer.Request, found *timer.Timer, parked bool, now int64) {
	b, value := NewBatch(1), []byte(nil)
	if r.Schedule != nil {
		value = r.Schedule.AppendTo(nil)
	}
	b.Add(nil, r, value)
	p.Prepare(b)
	p.Resolve(b, slices.Repeat([]timer.Ref{found.Ref()}, len(b.IDs)),
		slices.Repeat([]*timer.Timer{found}, len(b.Whole)), slices.Repeat([]bool{parked}, len(b.Whole)), now)
	p.Plan(b)
}

// pending returns how many timers are pending once everything planned is committed.
func (p *Planner) pending() int64 { return p.tally.count.n.Load() - p.tally.leaving }

// eachUnflushed calls fn with each record and tombstone that the store may lack.
func (p *Planner) eachUnflushed(fn func(k memtable.Kind, r memtable.Record)) {
	for _, c := range p.known.table.Unflushed(nil) {
		c.Each(func(r memtable.Record) { fn(c.Kind, r) })
	}
}

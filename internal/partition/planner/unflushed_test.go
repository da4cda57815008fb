package planner

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// schedules plans and commits timers with IDs and payloads of some size, all due from one time on.
func schedules(p *Planner, n, size int, name string, due int64) {
	b := NewBatch(n)
	at := p.sequence.position
	for i := range n {
		t := &timer.Timer{ID: fmt.Append(nil, name, i), Offset: at + int64(i), Due: due + int64(i), Occurrence: 1,
			Value: make([]byte, size)}
		b.Add(nil, timer.Request{ID: t.ID, Offset: t.Offset, Schedule: t}, nil)
	}
	b.Position = at + int64(n)
	p.planNew(b)
}

// Collecting costs the planner time for chunks of records, not for records. The remaining work has pauses.
func TestCollectLooksAtNoRecord(t *testing.T) {
	const n = 10 * pauseEvery
	p := New(0, 0, 1<<40)
	schedules(p, n, 100, "id", 1<<40)
	p.commitAll()
	u := NewUnflushed(p.Changed())
	u.Collect([]*Planner{p})
	if len(u.items) > 0 || len(u.all) > 0 || len(u.chunks) > n/50 {
		t.Errorf("%d items, %d timers and %d chunks are collected of %d records", len(u.items), len(u.all),
			len(u.chunks), n)
	}
	pauses := 0
	if err := u.Index(func() error { pauses++; return nil }); err != nil || len(u.All()) != n ||
		pauses < n/pauseEvery/2 {
		t.Errorf("%d timers, %d pauses: %v", len(u.All()), pauses, err)
	}
	stop := errors.New("stop")
	u = NewUnflushed(p.Changed())
	u.Collect([]*Planner{p})
	if err := u.Index(func() error { return stop }); !errors.Is(err, stop) || len(u.All()) > n/2 {
		t.Errorf("behind %v there are %d timers", err, len(u.All()))
	}
}

// A question counts all memory that it keeps alive: chunks with one record that it needs, but no timers that a later
// step has replaced.
func TestAQuestionCountsTheMemoryItKeeps(t *testing.T) {
	const far = 1 << 40
	for name, fill := range map[string]func(p *Planner){
		"all records of chunks": func(p *Planner) {
			schedules(p, 10_000, 100, "id", far)
			p.commitAll()
		},
		"one record of many": func(p *Planner) {
			for i := range int64(100) {
				var rows []*timer.Timer
				for k := range int64(100) {
					rows = append(rows, &timer.Timer{ID: fmt.Append(nil, "stored", i, "-", k), Offset: -2 - i*100 - k,
						Due: far + i*100 + k, Occurrence: 1, Value: make([]byte, 300)})
				}
				p.Load(timer.Ref{Due: far + i*100}, timer.Ref{Due: far + i*100 + 100}, rows)
				schedules(p, 1, 100, fmt.Sprint("id", i), far+i*100)
				p.commitAll()
			}
		},
		"timers that are replaced": func(p *Planner) {
			for range 4 {
				schedules(p, 500, 4000, "id", far)
				p.Take(1<<30, 1<<30)
				p.Commit()
			}
		},
		"timers that fire": func(p *Planner) {
			schedules(p, 5000, 100, "id", far)
			p.commitAll()
			p.Open(far + 10_000)
			p.Fire(far+10_000, timer.Size{Entries: 1 << 20, Bytes: 1 << 40}, timer.Unlimited, free)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(0, 0, 1<<40)
			p.Load(Lowest, timer.Ref{Due: far}, nil)
			fill(p)
			u := NewUnflushed(p.Changed())
			u.Collect([]*Planner{p})
			if err := u.Index(func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			counted := u.Bytes()
			p = nil
			with := int64(heap())
			runtime.KeepAlive(u)
			u = nil
			if kept := with - int64(heap()); kept > counted*5/4+32<<10 {
				t.Errorf("%d bytes are kept, and %d counted", kept, counted)
			}
		})
	}
}

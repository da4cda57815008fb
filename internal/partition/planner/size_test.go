package planner

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// A planner with at most one timer takes no more than Memory says.
func TestAnEmptyPlannerTakes(t *testing.T) {
	const n = 500
	all, before := make([]*Planner, n), heap()
	for i := range all {
		p := New(0, 0, 1<<20)
		p.Load(Lowest, timer.Ref{Due: 1 << 40}, []*timer.Timer{{ID: []byte("a"), Due: 1000, Offset: 1, Occurrence: 1}})
		all[i] = p
	}
	if each := (heap() - before) / n; each > Memory {
		t.Errorf("a planner with one timer takes %d bytes, more than %d", each, Memory)
	}
	runtime.KeepAlive(all)
}

// An idle planner takes no more than that either if it was busy before, with everything in one step.
func TestAPlannerThatHasFiredTakes(t *testing.T) {
	const n, timers = 50, 5000
	all, before := make([]*Planner, n), heap()
	for i := range all {
		p := New(0, 1000, 1<<40)
		p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
		b := NewBatch(timers)
		b.Position = timers
		for i := range timers {
			s := &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: 900, Occurrence: 1}
			b.Add(nil, timer.Request{ID: s.ID, Offset: s.Offset, Schedule: s}, nil)
		}
		p.planNew(b)
		p.commitAll()
		p.Open(1000)
		p.Fire(1000, timer.Size{Entries: timers, Bytes: 1 << 40}, timer.Unlimited, free)
		p.commitAll()
		p.BeginFlush()
		p.EndFlush()
		if ids, bytes := p.Size(); ids != 0 || bytes != 0 || p.DirtyBytes() != 0 {
			t.Fatalf("%d IDs and %d bytes are left, and %d dirty ones", ids, bytes, p.DirtyBytes())
		}
		all[i] = p
	}
	if each := (heap() - before) / n; each > Memory {
		t.Errorf("a planner that has fired %d timers takes %d bytes, more than %d", timers, each, Memory)
	}
	runtime.KeepAlive(all)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

package planner

import (
	"runtime"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// A planner with a timer or none takes no more than Memory says.
func TestAnEmptyPlannerTakes(t *testing.T) {
	const n = 500
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
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

package planner

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/waterclock/waterclock/internal/timer"
)

// Who remembers the topic of a timer that was packed keeps its name, and not the bytes of
// all timers around it; and the planner remembers some topics, not all that there ever were.
func TestTopicsHaveMemoryOfTheirOwn(t *testing.T) {
	p := New(0, 0, 1<<40)
	p.Open(0)
	var rows []*timer.Timer
	for i := range 3 * maxTopics {
		topic := "orders"
		if i >= 2 {
			topic = fmt.Sprint("orders", i)
		}
		rows = append(rows, &timer.Timer{ID: fmt.Append(nil, i), Offset: int64(i), Due: 1000 + int64(i), Occurrence: 1, Target: timer.Target{Topic: topic}})
	}
	p.Load(Lowest, Highest, rows)
	if n := p.records(); n != len(rows) {
		t.Fatalf("%d of %d are packed", n, len(rows))
	}
	p.Fire(1<<20, 1<<20, 1<<40, free)
	var names []*byte
	for e := range p.Take(1<<20, 1<<40).Entries() {
		if e.Emit.Target.Topic != rows[len(names)].Target.Topic {
			t.Fatalf("timer %d is for %q", len(names), e.Emit.Target.Topic)
		}
		names = append(names, unsafe.StringData(e.Emit.Target.Topic))
	}
	if names[0] != names[1] {
		t.Error("two timers of a topic have its name twice")
	}
	if n := len(p.known.topics); n > maxTopics {
		t.Errorf("%d topics are remembered", n)
	}
}

package planner

import (
	"fmt"
	"slices"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// loaded returns a planner in which timers fire, with n timers due at one instant whose values
// have the given size.
func loaded(n int, due int64, value int) *Planner {
	p := New(0, 0, 1<<40)
	p.Open(0)
	timers := make([]*timer.Timer, n)
	for i := range timers {
		timers[i] = &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: due, Occurrence: 1,
			Value: make([]byte, value)}
	}
	p.Load(Lowest, timer.Ref{Due: due + 1}, timers)
	return p
}

func free(*timer.Timer, any, bool) (by timer.TopicPartition, held bool) { return by, false }

// A step takes firings in chunks that are bounded in number and bytes.
func TestFiringsAreTakenInChunks(t *testing.T) {
	const small, large = 0, maxFiringBytes / 4
	each := Held(&timer.Timer{ID: []byte("id0"), Value: make([]byte, large)}) + EntryMemory
	for _, c := range []struct {
		name          string
		timers, value int
		first         int // entries of the first chunk
	}{
		{"as many as a chunk has", maxFirings, small, maxFirings},
		{"one more", maxFirings + 1, small, maxFirings},
		{"as many bytes as a chunk has, and what reaches them", 5, large, int((maxFiringBytes + each - 1) / each)},
		{"one that is larger", 2, maxFiringBytes, 1},
	} {
		p := loaded(c.timers, 10, c.value)
		fired, _ := p.Fire(10, timer.Size{Entries: c.timers, Bytes: 1 << 40}, timer.Unlimited, free)
		if fired.Entries != c.timers {
			t.Fatalf("%s: %d fire, want %d", c.name, fired.Entries, c.timers)
		}
		if s := p.Take(1, 1); s.Firings.Entries != c.first || s.Requests.Entries != 0 {
			t.Errorf("%s: a step takes %d whole, want %d", c.name, s.Firings.Entries, c.first)
		}
	}
}

// Uncommitted is the earliest due time of the firings that are planned and not committed, also while a step with it is
// out, and after it has come back. An occurrence that is only rescheduled is not a firing.
func TestUncommitted(t *testing.T) {
	p := New(0, 0, 1<<40)
	p.Open(0)
	var timers []*timer.Timer
	for i, due := range []int64{30, 10, 20, 500} {
		timers = append(timers, &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: due, Occurrence: 1})
	}
	slices.SortFunc(timers, func(a, b *timer.Timer) int { return a.Ref().Compare(b.Ref()) })
	p.Load(Lowest, timer.Ref{Due: 600}, timers)
	check := func(when string, want int64) {
		t.Helper()
		if due, ok := p.Uncommitted(); ok != (want != Never) || due != want {
			t.Errorf("%s: %d, %v, want %d", when, due, ok, want)
		}
	}
	check("nothing is planned", Never)
	later := p.known.find([]byte("id3"))
	p.reschedule(later, later.timer)
	check("a timer is put off", Never)
	p.Fire(30, timer.Size{Entries: 10, Bytes: 1 << 40}, timer.Unlimited, free)
	check("three are planned", 10)
	p.Take(10, 1<<40)
	check("they are sealed", 10)
	p.Return()
	check("they are back", 10)
	p.Take(10, 1<<40)
	p.Commit()
	check("they are committed", Never)
}

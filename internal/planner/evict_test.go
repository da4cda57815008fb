package planner

import (
	"fmt"
	"testing"

	"github.com/waterclock/waterclock/internal/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// What is evicted is the farthest, of what is packed and what is not, and never so much that
// nothing is left to fire: the same load would find that again.
func TestWhatIsNearestIsNotEvicted(t *testing.T) {
	const limit = 100 << 10
	for _, c := range []struct {
		name               string
		small, large       int // timers; only the small ones are packed
		smallDue, largeDue int64
	}{
		{"what is packed comes first", 10, 200, 1000, 2000},
		{"what is packed comes last", 10, 200, 2000, 1000},
		{"half is packed, and comes first", 300, 100, 1000, 2000},
		{"half is packed, and comes last", 300, 100, 2000, 1000},
	} {
		p := New(0, 0, limit)
		p.Open(0)
		var timers []*timer.Timer
		add := func(n int, due int64, size int) {
			for range n {
				i := len(timers)
				timers = append(timers, &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: due + int64(i), Occurrence: 1, Value: make([]byte, size)})
			}
		}
		add(c.small, c.smallDue, 100)
		add(c.large, c.largeDue, memtable.MaxBytes)
		inOrder(timers)
		p.Load(Lowest, timer.Ref{Due: 10_000}, timers)
		if p.known.held() > limit+limit/4 || p.known.held() < limit/4 {
			t.Errorf("%s: %d bytes are left, the limit is %d", c.name, p.known.held(), limit)
		}
		if fired, _ := p.Fire(10_000, 1, 1<<40, free); fired.Entries != 1 {
			t.Errorf("%s: %d fire, want 1", c.name, fired.Entries)
		}
	}
}

// Memory that is full asks for no load, from the load on that filled it until half of it is free.
func TestMemoryThatIsFullAsksForNoLoad(t *testing.T) {
	const n = 100
	var timers []*timer.Timer
	size := int64(0)
	for i := range n {
		timers = append(timers, &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: 1000 * int64(1+i), Occurrence: 1})
		r := memtable.Record{Bytes: timers[i].AppendTo(nil)}
		size += r.Size()
	}
	p := New(0, 0, size-1)
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: 1_000_000}, timers)
	for i := range n {
		free := i >= n/2+1 // of the limit
		if relieved := p.Relieved(); relieved != (i == n/2+1) {
			t.Errorf("after %d of %d: relieved %v", i, n, relieved)
		}
		if _, ok := p.LoadFrom(); ok != free {
			t.Errorf("after %d of %d: load %v", i, n, ok)
		}
		if got := fired(p, 1000*int64(1+i), n); len(got) != 1 {
			t.Fatalf("%v fire", got)
		}
	}
}

// What recurs holds more while it fires than while it waits: the limit holds then too.
func TestFiringKeepsTheLimit(t *testing.T) {
	const n, limit = 100, 25_000
	p := New(0, 0, limit)
	p.Open(0)
	timers := make([]*timer.Timer, n)
	for i := range timers {
		timers[i] = &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: 1000, Occurrence: 1, Value: make([]byte, 100),
			Recurrence: &timer.Recurrence{Every: 1000, Until: timer.NoUntil, CatchUp: timer.CatchUpAll}}
	}
	p.Load(Lowest, timer.Ref{Due: 10_000}, timers)
	if p.records() != n {
		t.Fatalf("%d are packed, want %d", p.records(), n)
	}
	if fired, _ := p.Fire(1000, n, 1<<40, free); fired.Entries != n {
		t.Fatalf("%d fire, want %d", fired.Entries, n)
	}
	if p.known.held() > limit+limit/4 {
		t.Errorf("%d bytes are held, the limit is %d", p.known.held(), limit)
	}
}

// A clock that was ahead for a while, and is right again, has timers packed as before.
func TestPackingGoesOnBehindAClockThatWasAhead(t *testing.T) {
	const day = 86_400_000
	p := New(0, 0, 1<<40)
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: 10 * day}, nil)
	schedule := func(id string, due int64) {
		s := &timer.Timer{ID: []byte(id), Offset: p.Position(), Due: due, Occurrence: 1}
		plan(p, timer.Request{ID: s.ID, Offset: s.Offset, Schedule: s}, nil)
		out := p.Take(1, 1<<40)
		p.Commit()
		p.Apply(out, 1<<20)
	}
	schedule("a", 9*day)
	p.Fire(day, 1, 1<<40, free)
	p.Fire(1000, 1, 1<<40, free)
	schedule("b", day/2)
	if p.records() != 2 {
		t.Errorf("%d of 2 are packed", p.records())
	}
	for _, now := range []int64{day / 2, 9 * day} {
		if fired, _ := p.Fire(now-1, 1, 1<<40, free); fired.Entries != 0 {
			t.Errorf("before %d something fires", now)
		}
		if fired, _ := p.Fire(now, 1, 1<<40, free); fired.Entries != 1 {
			t.Errorf("at %d nothing fires", now)
		}
	}
}

// What many timers at a time have needed is let go when they are gone.
func TestItemsToBeUsedAgainAreLetGo(t *testing.T) {
	const n = maxSpare
	p := New(0, 0, 1<<40)
	for i := range n {
		s := &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: 1 << 40, Occurrence: 1}
		plan(p, timer.Request{ID: s.ID, Offset: s.Offset, Schedule: s}, nil)
	}
	out := p.Take(n, 1<<40)
	p.Commit()
	p.Apply(out, 1<<20)
	if p.known.table.Objects() != 0 || len(p.known.items) > 1 {
		t.Errorf("%d items, %d to be used again", p.known.table.Objects(), len(p.known.items))
	}
}

// A timer that is replaced while a checkpoint is written, which has the former one, is a record again when that ends.
func TestWhatIsReplacedBesideACheckpointIsARecordBehindIt(t *testing.T) {
	p := New(0, 0, 1<<40)
	p.Load(Lowest, timer.Ref{Due: 10_000}, nil)
	committed(p, 1000)
	p.BeginFlush()
	committed(p, 2000) // the same ID
	if p.records() != 0 {
		t.Fatal("it is a record, and the checkpoint's")
	}
	if p.EndFlush(); p.records() != 1 {
		t.Errorf("it is an item behind the checkpoint")
	}
	if all := p.BeginFlush(); len(all) != 1 || all[0].Before.Due != 1000 || all[0].After.Due != 2000 {
		t.Errorf("the next checkpoint has %v", all)
	}
}

// records is how many timers are encoded.
func (p *Planner) records() int {
	return p.known.table.Len() - p.known.table.Objects() - p.known.table.Buried()
}

// Items are used again also behind many at a time, while one of those stays.
func TestItemsAreUsedAgainBehindManyAtATime(t *testing.T) {
	p := New(0, 0, 1<<40)
	request := func(id string, s *timer.Timer) {
		if s != nil {
			s.ID, s.Offset, s.Occurrence = []byte(id), p.Position(), 1
		}
		plan(p, timer.Request{ID: []byte(id), Offset: p.Position(), Schedule: s}, nil)
	}
	request("stays", &timer.Timer{Due: 1 << 40, Value: make([]byte, memtable.MaxBytes)})
	for i := range 3 * maxSpare {
		request(fmt.Sprint("id", i), nil)
	}
	p.fold()
	if n := p.known.table.Objects(); n != 1 {
		t.Fatalf("%d items are left, want 1", n)
	}
	if n := len(p.known.spare); n > maxSpare {
		t.Errorf("%d items are kept to be used again, want %d at most", n, maxSpare)
	}
	used := map[*Item]int{}
	for i := range 10 {
		id := fmt.Sprint("more", i)
		request(id, nil)
		it, _, _ := p.lookup([]byte(id))
		used[it]++
		p.fold()
	}
	if len(used) != 1 {
		t.Errorf("%d items are made for 10 IDs, one after the other", len(used))
	}
}

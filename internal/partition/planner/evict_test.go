package planner

import (
	"fmt"
	"slices"
	"testing"

	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// The farthest timers are evicted, whether they are records or items, but never so many that nothing is left to fire:
// the same load would find them again.
func TestNearestTimersAreNotEvicted(t *testing.T) {
	const limit = 100 << 10
	for _, c := range []struct {
		name               string
		small, large       int // timers; only the small ones are records
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
				timers = append(
					timers, &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: due + int64(i),
						Occurrence: 1, Value: make([]byte, size)})
			}
		}
		add(c.small, c.smallDue, 100)
		add(c.large, c.largeDue, memtable.MaxBytes)
		inOrder(timers)
		p.Load(Lowest, timer.Ref{Due: 10_000}, timers)
		if p.known.held() > limit+limit/4 || p.known.held() < limit/4 {
			t.Errorf("%s: %d bytes are left, the limit is %d", c.name, p.known.held(), limit)
		}
		if fired, _ := p.Fire(10_000, timer.Size{Entries: 1, Bytes: 1 << 40}, timer.Unlimited,
			free); fired.Entries != 1 {
			t.Errorf("%s: %d fire, want 1", c.name, fired.Entries)
		}
	}
}

// While memory is full no load is wanted, from the load that filled it until half of it is free.
func TestMemoryThatIsFullAsksForNoLoad(t *testing.T) {
	const n = 100
	var timers []*timer.Timer
	size := int64(0)
	for i := range n {
		timers = append(timers,
			&timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: 1000 * int64(1+i), Occurrence: 1})
		r := memtable.Record{Bytes: timers[i].AppendTo(nil)}
		size += r.Size()
	}
	p := New(0, 0, size-1)
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: 1_000_000}, timers)
	for i := range n {
		free := i >= n/2+1 // free means that half of the limit is free
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

// A timer larger than the limit is evicted. It is loaded again after half of those that are due before it have fired,
// not immediately and not after each of them.
func TestATimerBeyondTheLimitIsNotLoadedAtOnceAgain(t *testing.T) {
	const small = 40
	p := New(0, 0, 10<<10)
	p.Open(0)
	var timers []*timer.Timer
	for i := range small + 1 {
		timers = append(timers,
			&timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: 1000 * int64(1+i), Occurrence: 1})
	}
	timers[small].Value = make([]byte, 20<<10)
	load := func() (loads int) {
		for p.Relieved(); loads < 10; loads++ {
			from, ok := p.LoadFrom()
			if !ok {
				break
			}
			if from.Due >= 1_000_000 {
				break
			}
			p.Load(from, timer.Ref{Due: 1_000_000},
				slices.DeleteFunc(slices.Clone(timers), func(t *timer.Timer) bool { return t.Ref().Compare(from) < 0 }))
			p.Relieved()
		}
		return loads
	}
	if loads := load(); loads != 1 {
		t.Fatalf("%d loads, want 1", loads)
	}
	loads := 0
	for i := range timers {
		if got := fired(p, timers[i].Due, 10); len(got) != 1 {
			t.Fatalf("after %d: %v fire", i, got)
		}
		n := load()
		if loads += n; n > 1 {
			t.Errorf("after %d: %d loads, want 1 at most", i, n)
		}
	}
	if loads == 0 || loads > 6 { // 40 are halved five times
		t.Errorf("%d loads while all fired, want at least one and at most 6", loads)
	}
}

// Most of the timers that an eviction left are gone, and the one that it evicted is due right behind many small timers:
// it is loaded before they fire, although most of them are left.
func TestWhatWasEvictedIsLoadedBeforeItIsDue(t *testing.T) {
	p := New(0, 0, 100<<10)
	p.Open(0)
	var timers []*timer.Timer
	add := func(n int, due int64, size int) {
		for range n {
			i := len(timers)
			timers = append(timers, &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: due,
				Occurrence: 1, Value: make([]byte, size)})
		}
	}
	add(40, 1000, 1500)
	add(60, 3_600_000, 10)
	add(33, 3_600_001, 4000)
	load := func() {
		for p.Relieved(); ; p.Relieved() {
			from, ok := p.LoadFrom()
			if !ok || from.Due >= 10_000_000 {
				return
			}
			p.Load(from, timer.Ref{Due: 10_000_000},
				slices.DeleteFunc(slices.Clone(timers), func(t *timer.Timer) bool { return t.Ref().Compare(from) < 0 }))
		}
	}
	load()
	if got := fired(p, 1000, 1000); len(got) != 40 {
		t.Fatalf("%d fire, want 40", len(got))
	}
	load()
	if got := fired(p, 3_600_001, 1000); len(got) <= 60 {
		t.Errorf("%d fire, want the 60 and some of those right behind them", len(got))
	}
}

// Memory that was full after an eviction asks for a load as soon as there is room for the evicted timers, and not only
// when the next timer falls due: the limit has grown, because other partitions hold less, or most timers were
// cancelled. Otherwise the timers that are due soon after the next one are late by a load.
func TestRoomForWhatWasEvictedAsksForALoad(t *testing.T) {
	const n, limit = 100, 25_000
	for name, makeRoom := range map[string]func(*Planner){
		"the limit has grown": func(p *Planner) { p.Resize(10 * limit) },
		"most are cancelled": func(p *Planner) {
			b := NewBatch(n)
			for i := 1; i < n; i++ {
				b.Add(nil, timer.Request{ID: fmt.Append(nil, "id", i), Offset: int64(n + i)}, nil)
			}
			b.Position = 2 * n
			p.Prepare(b)
			p.Resolve(b, make([]timer.Ref, len(b.IDs)), nil, nil, 0)
			p.Plan(b)
		},
	} {
		p := New(0, 0, limit)
		p.Open(0)
		var timers []*timer.Timer
		for i := range n {
			timers = append(
				timers, &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: 100_000 + int64(i),
					Occurrence: 1, Value: make([]byte, 1000)})
		}
		p.Load(Lowest, timer.Ref{Due: 1_000_000}, timers)
		if stats := p.Stats(); !stats.Full || p.Relieved() {
			t.Fatalf("%s: before that: %+v", name, stats)
		}
		makeRoom(p)
		p.Relieved()
		if stats := p.Stats(); stats.Full {
			t.Errorf("%s, and memory is full with %d of %d bytes", name, stats.Bytes, p.known.limit)
		}
	}
}

// If a timer is loaded because the limit has grown, and evicted because it shrinks again, that does not go on until the
// timer is due: the partitions that share memory would all load and evict in turns.
func TestALimitThatGrowsAndShrinksLoadsNothingInTurns(t *testing.T) {
	p := New(0, 0, 100<<10)
	p.Open(0)
	var timers []*timer.Timer
	for i := range 6 {
		timers = append(timers,
			&timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: 1000 * int64(1+i), Occurrence: 1})
	}
	timers[5].Value = make([]byte, 20<<10)
	turn := func() (loads int) {
		for range 10 {
			p.Resize(100 << 10)
			if from, ok := p.LoadFrom(); ok && from.Due < 1_000_000 {
				loads++
				p.Load(from, timer.Ref{Due: 1_000_000}, slices.DeleteFunc(
					slices.Clone(timers), func(t *timer.Timer) bool { return t.Ref().Compare(from) < 0 }))
			}
			p.Resize(10 << 10)
		}
		return loads
	}
	if loads := turn(); loads != 2 {
		t.Errorf("%d loads, want one and one more", loads)
	}
	fired(p, 1000, 10)
	if loads := turn(); loads < 1 || loads > 2 {
		t.Errorf("%d loads after a timer has fallen due, want one and at most one more", loads)
	}
}

// A recurring timer takes more memory while it fires than while it waits. The limit holds then too.
func TestFiringKeepsTheLimit(t *testing.T) {
	const n, limit = 100, 25_000
	p := New(0, 0, limit)
	p.Open(0)
	timers := make([]*timer.Timer, n)
	for i := range timers {
		timers[i] = &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: 1000, Occurrence: 1,
			Value:      make([]byte, 100),
			Recurrence: &timer.Recurrence{Every: 1000, Until: timer.NoUntil, CatchUp: timer.CatchUpAll}}
	}
	p.Load(Lowest, timer.Ref{Due: 10_000}, timers)
	if p.records() != n {
		t.Fatalf("%d are packed, want %d", p.records(), n)
	}
	if fired, _ := p.Fire(1000, timer.Size{Entries: n, Bytes: 1 << 40}, timer.Unlimited, free); fired.Entries != n {
		t.Fatalf("%d fire, want %d", fired.Entries, n)
	}
	if p.known.held() > limit+limit/4 {
		t.Errorf("%d bytes are held, the limit is %d", p.known.held(), limit)
	}
}

// After the clock was ahead for a while and is right again, timers are encoded as before.
func TestEncodingContinuesAfterAClockWasAhead(t *testing.T) {
	const day = 86_400_000
	p := New(0, 0, 1<<40)
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: 10 * day}, nil)
	schedule := func(id string, due int64) {
		s := &timer.Timer{ID: []byte(id), Offset: p.Position(), Due: due, Occurrence: 1}
		plan(p, timer.Request{ID: s.ID, Offset: s.Offset, Schedule: s}, nil)
		p.commitAll()
	}
	schedule("a", 9*day)
	p.Fire(day, timer.Size{Entries: 1, Bytes: 1 << 40}, timer.Unlimited, free)
	p.Fire(1000, timer.Size{Entries: 1, Bytes: 1 << 40}, timer.Unlimited, free)
	schedule("b", day/2)
	if p.records() != 2 {
		t.Errorf("%d of 2 are packed", p.records())
	}
	for _, now := range []int64{day / 2, 9 * day} {
		if fired, _ := p.Fire(now-1, timer.Size{Entries: 1, Bytes: 1 << 40}, timer.Unlimited,
			free); fired.Entries != 0 {
			t.Errorf("before %d something fires", now)
		}
		if fired, _ := p.Fire(now, timer.Size{Entries: 1, Bytes: 1 << 40}, timer.Unlimited, free); fired.Entries != 1 {
			t.Errorf("at %d nothing fires", now)
		}
	}
}

// Memory that many simultaneous timers needed is freed when they are gone.
func TestUnusedItemsAreFreed(t *testing.T) {
	const n = maxSpare
	p := New(0, 0, 1<<40)
	for i := range n {
		s := &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: 1 << 40, Occurrence: 1}
		plan(p, timer.Request{ID: s.ID, Offset: s.Offset, Schedule: s}, nil)
	}
	p.commitAll()
	if p.known.table.Stats().Objects != 0 || len(p.known.items) > 1 {
		t.Errorf("%d items, %d to be used again", p.known.table.Stats().Objects, len(p.known.items))
	}
}

// A timer is replaced while a checkpoint is writing its former version. When the checkpoint ends, the timer becomes a
// record again.
func TestTimerReplacedDuringACheckpointBecomesARecordAgain(t *testing.T) {
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

// records returns how many timers are encoded.
func (p *Planner) records() int {
	return p.known.table.Stats().IDs - p.known.table.Stats().Objects - p.known.table.Stats().Tombstones
}

// Items are reused even after many existed at one time and one of those stays.
func TestItemsAreReusedAfterManyAtATime(t *testing.T) {
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
	p.commitAll()
	if n := p.known.table.Stats().Objects; n != 1 {
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
		p.commitAll()
	}
	if len(used) != 1 {
		t.Errorf("%d items are made for 10 IDs, one after the other", len(used))
	}
}

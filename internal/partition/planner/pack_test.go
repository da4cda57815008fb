package planner

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/waterclock/waterclock/internal/timer"
)

// A caller that remembers the topic of a decoded timer keeps only its name, and not the bytes of all timers around
// it. And the planner remembers a limited number of topics, not all that there ever were.
func TestTopicsHaveMemoryOfTheirOwn(t *testing.T) {
	p := New(0, 0, 1<<40)
	p.Open(0)
	var rows []*timer.Timer
	for i := range 3 * maxTopics {
		topic := "orders"
		if i >= 2 {
			topic = fmt.Sprint("orders", i)
		}
		rows = append(rows, &timer.Timer{ID: fmt.Append(nil, i), Offset: int64(i), Due: 1000 + int64(i), Occurrence: 1,
			Target: timer.Target{Topic: topic}})
	}
	p.Load(Lowest, Highest, rows)
	if n := p.records(); n != len(rows) {
		t.Fatalf("%d of %d are packed", n, len(rows))
	}
	p.Fire(1<<20, timer.Size{Entries: 1 << 20, Bytes: 1 << 40}, timer.Unlimited, free)
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

// A timer that has become an item again and waits has bytes of its own: those of its record would keep the whole
// chunk alive. The same holds for its change.
func TestWaitingItemsKeepNoChunk(t *testing.T) {
	p := New(0, 0, 1<<40)
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: 10_000},
		[]*timer.Timer{{ID: []byte("stored"), Due: 1000, Occurrence: 1, Value: make([]byte, 10)}})
	ids := []string{"stored", string(committed(p, 1000)[0].ID)}
	record := func(id string) []byte {
		t.Helper()
		_, r, at := p.lookup([]byte(id))
		if at == 0 {
			t.Fatalf("%q is no record", id)
		}
		return r.Bytes
	}
	owns := func(what string, stored *timer.Timer, record []byte) {
		t.Helper()
		begin, end, at := unsafe.Pointer(&record[0]), unsafe.Pointer(&record[len(record)-1]),
			unsafe.Pointer(&stored.Value[0])
		if uintptr(begin) <= uintptr(at) && uintptr(at) <= uintptr(end) {
			t.Errorf("%s: %q keeps its record", what, stored.ID)
		}
	}
	for _, id := range ids {
		b := record(id)
		it := p.known.find([]byte(id))
		owns("a request meets it", it.timer, b)
		p.known.encode(it, nil)
	}
	records := [][]byte{record(ids[0]), record(ids[1])}
	p.Fire(1000, timer.Size{Entries: 10, Bytes: 1 << 40}, timer.Unlimited,
		func(*timer.Timer, any, bool) (timer.TopicPartition, bool) { return timer.TopicPartition{}, true })
	for i, id := range ids {
		it, _, _ := p.lookup([]byte(id))
		owns("its target is unhealthy", it.timer, records[i])
		if after := it.change.after; after != nil {
			owns("its change", after, records[i])
		} else if i == 1 {
			t.Error("it is not dirty")
		}
	}
}

// A firing that is rolled back keeps no chunk in memory: neither by its timer, which waits, nor by an ID, even if a
// cancel finds it and waits. The same holds for a later firing of the timer, which is rolled back with it.
func TestRolledBackFiringsKeepNoChunk(t *testing.T) {
	p := New(0, 0, 1<<40)
	p.Open(0)
	const n = 3 // the first one recurs, and fires twice
	rows := make([]*timer.Timer, n)
	for i := range rows {
		rows[i] = &timer.Timer{ID: fmt.Append(nil, "id", i), Offset: int64(i), Due: 1000 + int64(i), Occurrence: 1,
			Value: make([]byte, 100)}
	}
	rows[0].Recurrence = &timer.Recurrence{Every: 100, Until: timer.NoUntil, CatchUp: timer.CatchUpAll}
	p.Load(Lowest, Highest, rows)
	var chunks [n][]byte
	for i, r := range rows {
		_, record, _ := p.lookup(r.ID)
		chunks[i] = record.Bytes
	}
	shares := func(what string, b *byte) {
		t.Helper()
		at := uintptr(unsafe.Pointer(b))
		for _, c := range chunks {
			if from := uintptr(unsafe.Pointer(&c[0])); at >= from && at < from+uintptr(len(c)) {
				t.Errorf("%s is part of a record", what)
			}
		}
	}
	p.Fire(1150, timer.Size{Entries: 10, Bytes: 1 << 40}, timer.Unlimited, free)
	s := p.Take(10, 1<<40)
	all := slices.Collect(s.Entries())
	if len(all) != n+1 {
		t.Fatalf("%d entries", len(all))
	}
	p.RollBack(all...)
	b := NewBatch(1)
	b.Add(nil, timer.Request{ID: []byte("id1")}, nil)
	p.planNew(b)
	p.Commit()
	for _, e := range all {
		shares("the ID of an entry", &e.ID[0])
		shares("the timer of an entry", &e.After.Value[0])
	}
	for i, r := range rows {
		it := p.known.find(r.ID)
		shares("the ID of an item", unsafe.StringData(it.id))
		if (it.timer == nil) != (i == 1) {
			t.Errorf("%s: %v", r.ID, it.timer)
		}
		if it.timer != nil {
			shares("the timer of an item", &it.timer.Value[0])
		}
	}
	runtime.KeepAlive(chunks)
}

// The ID of an item may be part of a small timer. It is not part of a large one, which may be replaced, nor of the page
// of records that a cancel was read with.
func TestIDsKeepNoLargeTimerAndNoPage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		value  int // bytes; negative: a cancel
		shares bool
	}{{"a small timer", 10, true}, {"a large timer", 600, false}, {"a cancel", -1, false}} {
		t.Run(tt.name, func(t *testing.T) {
			p := New(0, 0, 1<<40)
			r := timer.Request{ID: []byte("id")}
			if tt.value >= 0 {
				r.Schedule = &timer.Timer{ID: r.ID, Due: 1000, Occurrence: 1, Value: make([]byte, tt.value)}
				if err := r.Own(); err != nil {
					t.Fatal(err)
				}
			}
			b := NewBatch(1)
			b.Add(nil, r, r.Bytes)
			p.Prepare(b)
			if it := b.items[0]; it.id != "id" || (unsafe.StringData(it.id) == &r.ID[0]) != tt.shares {
				t.Errorf("the item of %q shares memory: %t", it.id, !tt.shares)
			}
		})
	}
}

// A cancel that waits to be committed keeps no timer in memory that was a record, because nothing counts that.
func TestCancelsKeepNoLargeTimer(t *testing.T) {
	const n, value = 1000, 3000
	p := New(0, 0, 1<<40)
	p.Open(0)
	rows, b := make([]*timer.Timer, n), NewBatch(n)
	for i := range rows {
		rows[i] = &timer.Timer{ID: fmt.Append(nil, "id", i), Due: 100_000, Occurrence: 1, Value: make([]byte, value)}
		b.Add(nil, timer.Request{ID: rows[i].ID, Offset: int64(i)}, nil)
	}
	before := heap()
	p.Load(Lowest, Highest, rows)
	if p.records() != n {
		t.Fatalf("%d of %d timers are records", p.records(), n)
	}
	p.planNew(b)
	if took := int64(heap()-before) / n; took > value {
		t.Errorf("each cancel takes %d bytes", took)
	}
	runtime.KeepAlive(rows)
	runtime.KeepAlive(p)
}

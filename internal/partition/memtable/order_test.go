package memtable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

func TestPutTwicePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	table := New(0, 0)
	number := table.AddObject("a")
	table.Put(number, Soon, timer.Ref{Due: 5})
	table.Put(number, Later, timer.Ref{Due: 5})
}

// Very many timers of one millisecond, in several orders, come out in order. If anything were quadratic, this
// would take minutes.
func TestOneMillisecond(t *testing.T) {
	const n, due = 100_000, 1_000_000
	shuffled := rand.New(rand.NewPCG(1, 2)).Perm(n)
	for _, c := range []struct {
		name string
		now  int64 // the table's when the timers come
		seq  func(i int) int64
	}{
		{"ahead, in order", 0, func(i int) int64 { return int64(i) }},
		{"ahead, shuffled", 0, func(i int) int64 { return int64(shuffled[i]) }},
		{"late, in order", due, func(i int) int64 { return int64(i) }},
		{"late, reversed", due, func(i int) int64 { return int64(n - 1 - i) }},
		{"late, shuffled", due, func(i int) int64 { return int64(shuffled[i]) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := New(c.now, 6)
			for i := range n {
				table.Put(table.AddObject(fmt.Sprint(i)), Soon, timer.Ref{Due: due, Offset: c.seq(i)})
			}
			for want := range int64(n) {
				if k, ok := table.First(due); !ok || k.Offset != want {
					t.Fatalf("first is %v, %v, want seq %d", k, ok, want)
				}
				table.Pop(due)
			}
			if at := table.Pop(due); at != 0 || table.Stats().Soon != 0 {
				t.Fatalf("%d are left", table.Stats().Soon)
			}
		})
	}
}

// The clock was hours ahead and is set back. Timers that are added below that mark come out at their time, in
// order, together with the others, and Next says when.
func TestBelowTheHighMark(t *testing.T) {
	const now, hours = 1_700_000_000_000, 2 * 3600_000
	table := New(now, 0)
	table.Pop(now + hours)
	for i, in := range []int64{5000, 10, hours + 1, 3_600_000, 10, 0} {
		table.Put(table.AddObject(fmt.Sprint(i)), Soon, timer.Ref{Due: now + in, Offset: int64(i)})
	}
	var got []int64
	for table.Stats().Soon > 0 {
		at, ok := table.Next()
		if !ok {
			t.Fatalf("no next of %d", table.Stats().Soon)
		}
		if k, ok := table.First(at - 1); ok {
			t.Errorf("%v is given out at %d", k, at-1)
		}
		for k, ok := table.First(at); ok; k, ok = table.First(at) {
			got = append(got, k.Offset)
			table.Pop(at)
		}
	}
	if want := []int64{5, 1, 4, 0, 3, 2}; !slices.Equal(got, want) {
		t.Errorf("given out were %v, want %v", got, want)
	}
}

// Timers that are due all the time, so that the open slot is never empty, leave no memory behind when they are
// gone.
func TestAnOpenSlotThatIsNeverEmpty(t *testing.T) {
	table := New(1000, 6)
	next := 0
	add := func() {
		table.Put(table.AddObject(fmt.Sprint(next)), Soon, timer.Ref{Due: 900, Offset: int64(next)})
		next++
	}
	for range 100 {
		add()
	}
	for range 200_000 {
		add()
		at := table.Pop(1000)
		if at.Kind() != Object {
			t.Fatal("nothing is due")
		}
		table.Forget(at.Number())
	}
	if entries := cap(table.soon.queue.ready) + cap(table.soon.queue.late); table.soon.memory() > 3*chunkBytes ||
		entries > 4*maxReady {
		t.Errorf("%d bytes and %d entries are taken for 100", table.soon.memory(), entries)
	}
}

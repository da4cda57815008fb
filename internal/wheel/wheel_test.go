package wheel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestKeyCompare(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b Key
		want int
	}{
		{"equal", Key{1, 2}, Key{1, 2}, 0},
		{"due first", Key{1, 9}, Key{2, 0}, -1},
		{"then seq", Key{1, 3}, Key{1, 2}, 1},
		{"no overflow", Key{math.MinInt64, 0}, Key{math.MaxInt64, 0}, -1},
	} {
		if got := c.a.Compare(c.b); got != c.want {
			t.Errorf("%s: %v.Compare(%v) = %d, want %d", c.name, c.a, c.b, got, c.want)
		}
	}
}

func TestInsertTwicePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	w := New[int](0)
	e := &Entry[int]{Key: Key{Due: 5}}
	w.Insert(e)
	w.Insert(e)
}

// TestOneMillisecond puts very many entries into one millisecond, in several
// orders. Were any of them quadratic, this would take minutes.
func TestOneMillisecond(t *testing.T) {
	const n = 300_000
	const due = 1_000_000
	r := rand.New(rand.NewPCG(1, 2))
	shuffled := r.Perm(n)
	for _, c := range []struct {
		name string
		now  int64 // the wheel's when the entries come
		seq  func(i int) int64
	}{
		{"ahead, in order", 0, func(i int) int64 { return int64(i) }},
		{"ahead, reversed", 0, func(i int) int64 { return int64(n - 1 - i) }},
		{"ahead, shuffled", 0, func(i int) int64 { return int64(shuffled[i]) }},
		{"late, in order", due, func(i int) int64 { return int64(i) }},
		{"late, reversed", due, func(i int) int64 { return int64(n - 1 - i) }},
		{"late, shuffled", due, func(i int) int64 { return int64(shuffled[i]) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := New[struct{}](c.now)
			entries := make([]Entry[struct{}], n)
			for i := range entries {
				entries[i].Key = Key{due, c.seq(i)}
				w.Insert(&entries[i])
			}
			want := int64(0)
			for w.Len() > 0 {
				w.Pop(due, 1000, func(e *Entry[struct{}]) bool {
					if e.Key.Seq != want {
						t.Fatalf("seq %d, want %d", e.Key.Seq, want)
					}
					want++
					return true
				})
			}
			if want != n {
				t.Fatalf("%d entries, want %d", want, n)
			}
		})
	}
}

// TestEvictLateHeap evicts from a heap with very many siblings and levels.
func TestEvictLateHeap(t *testing.T) {
	const n = 100_000
	r := rand.New(rand.NewPCG(3, 4))
	w := New[struct{}](10)
	for _, i := range r.Perm(n) {
		w.Insert(&Entry[struct{}]{Key: Key{5, int64(i)}})
	}
	w.Pop(10, 100, func(*Entry[struct{}]) bool { return true }) // gives it depth
	k, ok := w.Farthest(1000)
	if !ok || k != (Key{5, n - 1000}) {
		t.Fatalf("farthest = %v, %v", k, ok)
	}
	evicted := 0
	w.EvictFrom(k, func(*Entry[struct{}]) { evicted++ })
	if evicted != 1000 || w.Len() != n-1100 {
		t.Fatalf("evicted %d, %d left", evicted, w.Len())
	}
}

func TestNoAllocation(t *testing.T) {
	w := New[int](0)
	entries := make([]Entry[int], 1000)
	now := int64(0)
	got := testing.AllocsPerRun(100, func() {
		for i := range entries {
			entries[i].Key = Key{now + int64(i*i)%5000, int64(-i)}
			w.Insert(&entries[i])
		}
		for i := 0; i < len(entries); i += 3 {
			w.Remove(&entries[i])
		}
		now += 5000
		w.Pop(now, math.MaxInt, func(*Entry[int]) bool { return true })
	})
	if got != 0 || w.Len() != 0 {
		t.Errorf("%v allocations a run, %d entries left", got, w.Len())
	}
}

// The clock was hours ahead and is set back: what is inserted below that mark
// comes at its time, in order, with what was there, and Next tells when.
func TestBelowTheHighMark(t *testing.T) {
	const now, hours = 1_700_000_000_000, 2 * 3600_000
	w := New[int](now)
	w.Pop(now+hours, 1, func(*Entry[int]) bool { return true })
	for i, in := range []int64{5000, 10, hours + 1, 3_600_000, 10, 0} {
		w.Insert(&Entry[int]{Key: Key{Due: now + in, Seq: int64(i)}, Value: i})
	}
	var got []int
	for w.Len() > 0 {
		at, ok := w.Next()
		if !ok {
			t.Fatalf("no next of %d entries", w.Len())
		}
		early := func(e *Entry[int]) bool { t.Errorf("%v is popped at %d", e.Key, at-1); return true }
		w.Pop(at-1, w.Len(), early)
		w.Pop(at, w.Len(), func(e *Entry[int]) bool {
			if e.Key.Due != at {
				t.Errorf("%v is popped at %d", e.Key, at)
			}
			got = append(got, e.Value)
			return true
		})
	}
	if want := []int{5, 1, 4, 0, 3, 2}; !slices.Equal(got, want) {
		t.Errorf("popped %v, want %v", got, want)
	}
}

package wheel

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is the wheel as a sorted slice of keys, which are unique here.
type model struct{ keys []Key }

func (m *model) insert(k Key) {
	i, _ := slices.BinarySearchFunc(m.keys, k, Key.Compare)
	m.keys = slices.Insert(m.keys, i, k)
}

func (m *model) remove(k Key) {
	if i, ok := slices.BinarySearchFunc(m.keys, k, Key.Compare); ok {
		m.keys = slices.Delete(m.keys, i, i+1)
	}
}

// cut takes the first n keys off.
func (m *model) cut(n int) []Key {
	head := slices.Clone(m.keys[:n])
	m.keys = slices.Delete(m.keys, 0, n)
	return head
}

// due counts the keys with Due <= now.
func (m *model) due(now int64) int {
	n := 0
	for n < len(m.keys) && m.keys[n].Due <= now {
		n++
	}
	return n
}

// machine drives a wheel and its model side by side.
type machine struct {
	w    *Wheel[int]
	m    model
	all  []*Entry[int] // every entry ever made
	now  int64
	next int64 // Seq of the next entry, unless it is drawn
}

// drawDue draws due times near now, at the edges of levels, and at both ends of
// int64.
func (x *machine) drawDue(t *rapid.T) int64 {
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return rapid.Int64().Draw(t, "any due")
	case 1:
		return rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, math.MaxInt64 - 1, -1, 0}).Draw(t, "edge")
	case 2:
		edge := int64(1) << rapid.IntRange(0, 40).Draw(t, "bit")
		return x.now + edge + rapid.Int64Range(-1, 1).Draw(t, "off")
	case 3:
		return x.now - rapid.Int64Range(0, 1000).Draw(t, "ago")
	case 4, 5, 6:
		return x.now + rapid.Int64Range(0, 3).Draw(t, "soon")
	default:
		return x.now + rapid.Int64Range(0, 10_000).Draw(t, "in")
	}
}

func (x *machine) insert(t *rapid.T) {
	for range rapid.IntRange(1, 12).Draw(t, "entries") {
		x.insertOne(t)
	}
}

func (x *machine) insertOne(t *rapid.T) {
	x.next++
	e := &Entry[int]{Key: Key{Due: x.drawDue(t), Seq: x.next}}
	if rapid.Bool().Draw(t, "reversed") {
		e.Key.Seq = -x.next
	}
	x.all = append(x.all, e)
	x.w.Insert(e)
	x.m.insert(e.Key)
}

func (x *machine) remove(t *rapid.T) {
	if len(x.all) == 0 {
		return
	}
	e := rapid.SampledFrom(x.all).Draw(t, "entry")
	if e.InWheel() {
		x.m.remove(e.Key)
	}
	x.w.Remove(e)
	if e.InWheel() {
		t.Fatalf("entry %v is still in the wheel", e.Key)
	}
}

func (x *machine) moveClock(t *rapid.T) {
	switch rapid.IntRange(0, 6).Draw(t, "jump") {
	case 6:
		x.now -= rapid.Int64Range(0, 100*3600*1000).Draw(t, "hours back")
	case 0:
		x.now += rapid.Int64Range(0, 100*3600*1000).Draw(t, "hours")
	case 1:
		x.now -= rapid.Int64Range(0, 5000).Draw(t, "back")
	case 2:
		if due, ok := x.w.Next(); ok && due < 1<<50 {
			x.now = max(x.now, due)
		}
	default:
		x.now += rapid.Int64Range(0, 200).Draw(t, "ms")
	}
}

// pop pops with a limit, and perhaps a callback that stops or inserts again.
func (x *machine) pop(t *rapid.T) {
	x.moveClock(t)
	limit := rapid.IntRange(0, 20).Draw(t, "limit")
	stopAt := rapid.IntRange(0, 40).Draw(t, "stop at")
	want := x.m.keys[:min(x.m.due(x.now), limit, stopAt)]
	var got []Key
	x.w.Pop(x.now, limit, func(e *Entry[int]) bool {
		if e.InWheel() {
			t.Fatalf("%v is in the wheel while it is popped", e.Key)
		}
		if len(got) == stopAt {
			return false
		}
		got = append(got, e.Key)
		return true
	})
	if !slices.Equal(got, want) {
		t.Fatalf("pop(now %d, limit %d) = %v, want %v", x.now, limit, got, want)
	}
	x.m.cut(len(want))
}

// popAgain pops everything due and inserts each entry again for later.
func (x *machine) popAgain(t *rapid.T) {
	x.moveClock(t)
	want := x.m.cut(x.m.due(x.now))
	var got []Key
	x.w.Pop(x.now, math.MaxInt, func(e *Entry[int]) bool {
		got = append(got, e.Key)
		e.Key.Due = x.now + 1 + int64(len(got)%70)
		x.w.Insert(e)
		x.m.insert(e.Key)
		return true
	})
	if !slices.Equal(got, want) {
		t.Fatalf("pop(now %d) = %v, want %v", x.now, got, want)
	}
}

func (x *machine) evict(t *rapid.T) {
	k := Key{Due: x.drawDue(t), Seq: rapid.Int64Range(-x.next-1, x.next+1).Draw(t, "seq")}
	if rapid.Bool().Draw(t, "by count") {
		n := rapid.IntRange(-1, len(x.m.keys)+2).Draw(t, "n")
		far, ok := x.w.Farthest(n)
		if ok != (n > 0 && len(x.m.keys) > 0) {
			t.Fatalf("farthest(%d) of %d: ok = %v", n, len(x.m.keys), ok)
		}
		if !ok {
			return
		}
		if want := x.m.keys[max(0, len(x.m.keys)-n)]; far != want {
			t.Fatalf("farthest(%d) = %v, want %v", n, far, want)
		}
		k = far
	}
	i, _ := slices.BinarySearchFunc(x.m.keys, k, Key.Compare)
	want := slices.Clone(x.m.keys[i:])
	x.m.keys = x.m.keys[:i]
	var got []Key
	x.w.EvictFrom(k, func(e *Entry[int]) {
		if e.InWheel() {
			t.Fatalf("evicted %v is in the wheel", e.Key)
		}
		got = append(got, e.Key)
	})
	slices.SortFunc(got, Key.Compare)
	if !slices.Equal(got, want) {
		t.Fatalf("evict from %v: %v, want %v", k, got, want)
	}
}

func (x *machine) check(t *rapid.T) {
	if x.w.Len() != len(x.m.keys) {
		t.Fatalf("len = %d, want %d", x.w.Len(), len(x.m.keys))
	}
	next, ok := x.w.Next()
	if ok != (len(x.m.keys) > 0) {
		t.Fatalf("next: ok = %v with %d entries", ok, len(x.m.keys))
	}
	if ok && next > x.m.keys[0].Due {
		t.Fatalf("next = %d oversleeps %v", next, x.m.keys[0])
	}
}

// TestModel compares the wheel with a sorted slice.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.SampledFrom([]int64{1_700_000_000_000, 0, -5}).Draw(t, "start")
		x := &machine{w: New[int](now), now: now}
		t.Repeat(map[string]func(*rapid.T){
			"insert":    x.insert,
			"remove":    x.remove,
			"pop":       x.pop,
			"pop again": x.popAgain,
			"evict":     x.evict,
			"":          x.check,
		})
	})
}

// TestNextTerminates follows Next as a sleeping owner does: it wakes when told,
// pops, and sleeps again. No entry may be late, and no wake-up may be wasted
// more often than once for each level.
func TestNextTerminates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const now = 1_700_000_000_000
		w := New[int](now)
		n := rapid.IntRange(1, 20).Draw(t, "n")
		for i := range n {
			in := rapid.Int64Range(0, 1<<rapid.IntRange(0, 45).Draw(t, "bits")).Draw(t, "in")
			w.Insert(&Entry[int]{Key: Key{Due: now + in, Seq: int64(i)}})
		}
		wakes := 0
		for w.Len() > 0 {
			at, _ := w.Next()
			wakes++
			w.Pop(at, math.MaxInt, func(e *Entry[int]) bool {
				if e.Key.Due != at {
					t.Fatalf("due at %d, popped at %d", e.Key.Due, at)
				}
				return true
			})
		}
		if wakes > n*levels {
			t.Fatalf("%d wake-ups for %d entries", wakes, n)
		}
	})
}

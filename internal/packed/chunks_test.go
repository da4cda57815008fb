package packed

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/waterclock/waterclock/internal/timer"
)

// memory is what the chunks of a wheel take.
func (w *Wheel) memory() (n int) {
	for _, all := range w.buckets {
		if all == nil {
			continue
		}
		for i := range all {
			n += cap(all[i].chunks) * int(unsafe.Sizeof(chunk{}))
			for _, c := range all[i].chunks {
				n += cap(c.b)
			}
		}
	}
	return n
}

// A record of MaxBytes is taken, of one more is not.
func TestLargeTimersAreNotPacked(t *testing.T) {
	var x Index
	w := New(&x, 1, 0, 6)
	small := waits("a", 1000, 0)
	for more, want := range map[int]bool{0: true, 1: false} {
		id := string(rune('a' + more))
		r := waits(id, 1000, MaxBytes-len(small.Bytes)-1+more) // the length takes two bytes
		if len(r.Bytes) != MaxBytes+more {
			t.Fatalf("%d bytes", len(r.Bytes))
		}
		if w.Add(r, x.Sum([]byte(id))) != want {
			t.Errorf("a timer of %d bytes is packed: %v", len(r.Bytes), !want)
		}
	}
}

func waits(id string, due int64, size int) Record {
	t := timer.Timer{ID: []byte(id), Due: due, Occurrence: 1, Value: make([]byte, size)}
	return Record{Bytes: t.AppendTo(nil), Stored: timer.Absent}
}

// What comes and goes beside what stays takes no memory when it is gone: neither a timer
// that is replaced all the time, nor one behind the other.
func TestWhatComesAndGoesTakesNoMemory(t *testing.T) {
	for _, c := range []struct {
		name  string
		there int
	}{{"one", 1}, {"many", 300}} {
		var x Index
		w := New(&x, 1, 0, 6)
		add := func(id string) {
			if !w.Add(waits(id, 10_000_000, 200), x.Sum([]byte(id))) {
				t.Fatal("it is refused")
			}
		}
		for i := range 3 {
			add(fmt.Sprint("stays", i))
		}
		most := 0
		for i := range 200_000 {
			add(fmt.Sprint("goes", i))
			if i < c.there {
				continue
			}
			id := []byte(fmt.Sprint("goes", i-c.there))
			w.Take(x.Get(x.Sum(id)))
			x.Delete(x.Sum(id))
			most = max(most, w.memory())
		}
		if want := 2*int(w.Bytes()) + 4*chunkBytes; most > want {
			t.Errorf("%s: up to %d bytes are taken for %d records of %d bytes, want %d at most", c.name, most, w.Len(), w.Bytes(), want)
		}
	}
}

// A chunk is as large as what is there asks for.
func TestOneThatIsReplacedTakesSmallChunks(t *testing.T) {
	var x Index
	w := New(&x, 1, 0, 6)
	add := func(id string) { w.Add(waits(id, 10_000_000, 200), x.Sum([]byte(id))) }
	for i := range 2 {
		add(fmt.Sprint("stays", i))
	}
	for range 100 {
		add("goes")
		level, slot, at, _ := place(x.Get(x.Sum([]byte("goes"))).Place()).split()
		if n := cap(w.buckets[level][slot].chunks[at].b); n > 2<<10 {
			t.Fatalf("a chunk of %d bytes for one of some 200", n)
		}
		w.Take(x.Get(x.Sum([]byte("goes"))))
		x.Delete(x.Sum([]byte("goes")))
	}
}

// A slot that many records were in leaves nothing behind.
func TestALongSlotLeavesNothing(t *testing.T) {
	var x Index
	w := New(&x, 1, 0, 6)
	for i := range 2 * maxReady {
		id := fmt.Sprint(i)
		w.Add(waits(id, 1000, 0), x.Sum([]byte(id)))
	}
	n := 0
	for _, ok := w.First(1000); ok; _, ok = w.First(1000) {
		r := w.Pop()
		x.Delete(x.Sum(r.ID()))
		n++
	}
	if n != 2*4096 || cap(w.ready) > maxReady || w.memory() != 0 || len(x.cells) > minCells {
		t.Errorf("of %d room for %d, %d bytes and %d cells are left", n, cap(w.ready), w.memory(), len(x.cells))
	}
}

// What was taken out of the slot that was open does not stay there when the wheel is
// moved back, and the slot is one of many again.
func TestASlotThatWasOpenKeepsNoMemory(t *testing.T) {
	var x Index
	w := New(&x, 1, 0, 6)
	const n, each = 200, 20
	for i := range n {
		id := fmt.Sprint(i)
		if !w.Add(waits(id, 1000, 1000), x.Sum([]byte(id))) {
			t.Fatal("it is refused")
		}
	}
	if _, ok := w.First(1000); !ok {
		t.Fatal("nothing is due")
	}
	for i := range n { // some of each chunk stay
		if sum := x.Sum(fmt.Append(nil, i)); i%each > 0 {
			w.Take(x.Get(sum))
			x.Delete(sum)
		}
	}
	if w.Lower(900); w.Len() != n/each || w.memory() > 2*int(w.Bytes())+2*chunkBytes {
		t.Errorf("%d bytes are taken for %d records of %d", w.memory(), w.Len(), w.Bytes())
	}
	if k, ok := w.First(1000); !ok || k.Due != 1000 {
		t.Errorf("first is %v, %v", k, ok)
	}
}

package memtable

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/waterclock/waterclock/internal/timer"
)

// memory is the memory of the chunks of a wheel.
func (w *wheel) memory() (n int) {
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

// A timer of MaxBytes may be a record; a larger one may not.
func TestLargeTimersAreNotRecords(t *testing.T) {
	table := New(0, 6)
	small := waits("a", 1000, 0)
	for more, want := range map[int]bool{0: true, 1: false} {
		b := waits(string(rune('a'+more)), 1000, MaxBytes-len(small)-1+more) // the length takes two bytes
		if len(b) != MaxBytes+more {
			t.Fatalf("%d bytes", len(b))
		}
		if table.AddStored(b) != want {
			t.Errorf("a timer of %d bytes is a record: %v", len(b), !want)
		}
	}
	if table.Bury(table.AddObject(string(make([]byte, MaxBytes+1))), timer.Absent) {
		t.Error("an ID of more than MaxBytes is buried")
	}
}

func waits(id string, due int64, size int) []byte {
	t := timer.Timer{ID: []byte(id), Due: due, Occurrence: 1, Value: make([]byte, size)}
	return t.AppendTo(nil)
}

// ref returns the place of a record in the order of firing.
func ref(b []byte) timer.Ref {
	r := Record{Bytes: b}
	return r.key()
}

// drop forgets a record.
func (t *Table) drop(id string) {
	number, _, _ := t.Decode(t.Find([]byte(id)), true)
	t.Forget(number)
}

// Timers that come and go while others stay leave no memory behind, whether one timer is replaced again and again or
// new ones follow each other.
func TestShortLivedTimersTakeNoMemory(t *testing.T) {
	for _, c := range []struct {
		name  string
		there int
	}{{"one", 1}, {"many", 300}} {
		table := New(0, 6)
		add := func(id string) {
			if !table.AddStored(waits(id, 10_000_000, 200)) {
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
			table.drop(fmt.Sprint("goes", i-c.there))
			most = max(most, table.soon.memory())
		}
		if want := 2*int(table.Stats().SoonBytes) + 4*chunkBytes; most > want {
			t.Errorf("%s: up to %d bytes are taken for %d records of %d bytes, want %d at most", c.name, most,
				table.Stats().Soon, table.Stats().SoonBytes, want)
		}
	}
}

// Tombstones that come and go while some stay leave no more memory behind than the remaining ones take, and a
// little.
func TestRemovedTombstonesTakeNoMemory(t *testing.T) {
	table := New(0, 6)
	add := func(id string) {
		if !table.Bury(table.AddObject(id), timer.Ref{Due: 1, Offset: 2}) {
			t.Fatalf("%q is not buried", id)
		}
	}
	for i := range 100_000 {
		add(fmt.Sprint("comes and goes ", i))
		if i%500 == 0 {
			add(fmt.Sprint("stays ", i))
		}
		table.drop(fmt.Sprint("comes and goes ", i))
	}
	held := 0
	for _, c := range table.layers.in(Dirty).tombstones.chunks {
		held += cap(c.b) + chunkHeader
	}
	if limit := 2*int(table.Stats().DirtyBytes) + 2*chunkBytes; table.Stats().Tombstones != 200 || held > limit {
		t.Errorf("%d bytes are held of %d tombstones, want %d at most", held, table.Stats().Tombstones, limit)
	}
	for i := 0; i < 100_000; i += 500 {
		id := fmt.Append(nil, "stays ", i)
		if r := table.At(table.Find(id)); string(r.Bytes) != string(id) || r.Stored.Offset != 2 {
			t.Fatalf("%q is found as %q, from %v", id, r.Bytes, r.Stored)
		}
	}
}

// A chunk is no larger than its records need.
func TestAReplacedRecordTakesSmallChunks(t *testing.T) {
	table := New(0, 6)
	add := func(id string) { table.AddStored(waits(id, 10_000_000, 200)) }
	for i := range 2 {
		add(fmt.Sprint("stays", i))
	}
	for range 100 {
		add("goes")
		level, slot, at, _ := table.Find([]byte("goes")).place().split()
		if n := cap(table.soon.buckets[level][slot].chunks[at].b); n > 2<<10 {
			t.Fatalf("a chunk of %d bytes for one of some 200", n)
		}
		table.drop("goes")
	}
}

// A record that comes and goes alone among many that stay gets small chunks too: as when a request meets one of many
// timers and cancels it.
func TestOneRecordAmongManyTakesSmallChunks(t *testing.T) {
	const stay, turns = 2000, 1000
	table := New(0, 6)
	for i := range stay {
		table.AddStored(waits(fmt.Sprint("stays", i), 10_000_000, 200))
	}
	made, last := 0, -1
	for i := range turns {
		table.AddStored(waits("goes", 10_000_000, 200))
		level, slot, at, _ := table.Find([]byte("goes")).place().split()
		if at != last {
			made += cap(table.soon.buckets[level][slot].chunks[at].b)
		}
		last = at
		if table.drop("goes"); i == 0 {
			made = 0 // its chunk may have existed before
		}
	}
	if limit := turns * 1 << 10; made > limit {
		t.Errorf("chunks of %d bytes are made, want %d at most", made, limit)
	}
}

// If most of many records are cancelled, the remaining ones take no more memory than they are counted with, plus the
// room that slots may keep for dead records.
func TestMemoryShrinksWhenMostTimersAreCancelled(t *testing.T) {
	const n = 196_000 // the index has as many cells as it may
	table := New(0, 6)
	for i := range n {
		table.AddStored(waits(fmt.Sprint("id", i), 10_000_000, 100))
	}
	for i, left := 0, n; i < n; i++ {
		if i%20 == 0 {
			continue
		}
		table.drop(fmt.Sprint("id", i))
		if left--; left%500 != 0 {
			continue
		}
		if index := 16 * len(table.directory.rest.cells); index > 86*left {
			t.Fatalf("the index takes %d bytes of each of %d records", index/left, left)
		}
		if took, limit := table.soon.memory(), 2*int(table.Stats().SoonBytes)+2*chunkBytes; took > limit {
			t.Fatalf("chunks take %d bytes of %d records, want %d at most", took, left, limit)
		}
	}
}

// A slot that held many records leaves nothing behind.
func TestALongSlotLeavesNothing(t *testing.T) {
	table := New(0, 6)
	for i := range 2 * maxReady {
		table.AddStored(waits(fmt.Sprint(i), 1000, 0))
	}
	n := 0
	for at := table.Pop(1000); at != 0; at = table.Pop(1000) {
		number, _, _ := table.Decode(at, true)
		table.Forget(number)
		n++
	}
	if n != 2*maxReady || cap(table.soon.queue.ready) > maxReady || table.soon.memory() != 0 ||
		len(table.directory.rest.cells) > minCells || table.objects.all != nil {
		t.Errorf("of %d room for %d, %d bytes and %d cells are left", n, cap(table.soon.queue.ready),
			table.soon.memory(), len(table.directory.rest.cells))
	}
}

// The same holds for objects that were already due when they came.
func TestManyThatWereLateLeaveNothing(t *testing.T) {
	table := New(1000, 6)
	for i := range 2 * maxReady {
		table.Put(table.AddObject(fmt.Sprint(i)), Soon, timer.Ref{Due: 900, Offset: int64(i)})
	}
	for at := table.Pop(1000); at != 0; at = table.Pop(1000) {
		table.Forget(at.Number())
	}
	if entries := cap(table.soon.queue.ready) + cap(table.soon.queue.late); entries > maxReady ||
		table.soon.memory() != 0 || table.Stats().IDs != 0 {
		t.Errorf("room for %d entries, %d bytes and %d IDs are left", entries, table.soon.memory(), table.Stats().IDs)
	}
}

// A long slot whose records move to lower levels is not in memory twice.
func TestASpreadSlotIsNotInMemoryTwice(t *testing.T) {
	const n, size = 8000, 2000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	moves, most := 0, int64(0)
	w := newWheel(refOf(Soon, 0, 0), 0, 6, func(*Record, []byte, Ref, Ref) {
		if moves++; moves == n-1 {
			most = heap()
		}
	})
	before := heap()
	for i := range n {
		b := waits(fmt.Sprint(i), 1_000_000, size)
		w.add(&Record{Bytes: b, Stored: timer.Absent}, ref(b))
	}
	w.first(999_000)
	if limit := before + n*size*3/2; moves < n || most > limit {
		t.Errorf("after %d moves of %d records %d bytes were taken, want %d at most", moves, n, most-before,
			limit-before)
	}
}

// A timer that is due within the open slot is not a record; one that is due after it is.
func TestATimerAboutToFireIsNotARecord(t *testing.T) {
	table := New(1000, 6) // the open slot ends at 1024
	for due, want := range map[int64]bool{900: false, 1000: false, 1023: false, 1024: true} {
		if table.AddStored(waits(fmt.Sprint(due), due, 0)) != want {
			t.Errorf("what is due at %d is a record: %v", due, !want)
		}
	}
}

// A timer evicted above the horizon waits to be stored, and is a record until then, even if the horizon was higher
// before.
func TestAnEvictedTimerIsARecord(t *testing.T) {
	table := New(0, 6)
	table.Put(table.AddObject("far"), Later, timer.Ref{Due: 5000})
	table.Approach(2000, nil)
	b := waits("a", 1000, 0)
	number := table.AddObject("a")
	table.Put(number, Soon, ref(b))
	table.Evict(ref(b), func(number int32) { table.Put(number, Later, ref(b)) })
	if !table.Encode(number, Record{Bytes: b, State: Dirty, Stored: timer.Absent}) || table.Stats().Later != 2 {
		t.Error("it is an object")
	}
}

// Objects that are taken out of the open slot do not stay in memory when the clock is set back and the slot becomes
// an ordinary one again.
func TestASlotThatWasOpenKeepsNoMemory(t *testing.T) {
	table := New(0, 6)
	const n, each = 200, 20
	for i := range n {
		if !table.AddStored(waits(fmt.Sprint(i), 1000, 1000)) {
			t.Fatal("it is refused")
		}
	}
	if _, ok := table.First(1000); !ok {
		t.Fatal("nothing is due")
	}
	for i := range n { // some of each chunk stay
		if i%each > 0 {
			table.drop(fmt.Sprint(i))
		}
	}
	if table.SetBack(900); table.Stats().Soon != n/each || table.soon.memory() > 2*int(table.Stats().SoonBytes)+
		2*chunkBytes {
		t.Errorf("%d bytes are taken for %d records of %d", table.soon.memory(), table.Stats().Soon,
			table.Stats().SoonBytes)
	}
	if k, ok := table.First(1000); !ok || k.Due != 1000 {
		t.Errorf("first is %v, %v", k, ok)
	}
}

// Objects come to the open slot and are taken out, not the first ones and not in order, while others stay and
// nothing fires. The removed ones leave no entries behind.
func TestObjectsThatLeaveTheOpenSlotLeaveNoEntries(t *testing.T) {
	const stay, batches, each = 1000, 100, 1000
	for _, k := range []Kind{Soon, Later} {
		table := New(1000, 6)
		put := func(id string, due int64) (number int32) {
			number = table.AddObject(id)
			table.Put(number, k, timer.Ref{Due: due})
			return number
		}
		for i := range stay {
			put(fmt.Sprint("stays", i), 100)
		}
		most := 0
		for range batches {
			var numbers []int32
			for i := range each {
				numbers = append(numbers, put(fmt.Sprint("goes", i), 900))
			}
			for _, number := range numbers {
				table.Remove(number)
				table.Forget(number)
			}
			most = max(most, cap(table.order(k).queue.late))
		}
		if limit := 4 * (stay + each + maxReady); most > limit {
			t.Errorf("kind %d: there is room for %d entries of %d objects, want %d at most", k, most, stay+each, limit)
		}
	}
}

// Timers that are alone in their slots take little more memory than they are counted with.
func TestFewTimersInManySlotsTakeTheCountedMemory(t *testing.T) {
	table := New(0, 6)
	n := 0
	for level := range 5 {
		for slot := 1; slot < slots; slot++ {
			n++
			table.AddStored(waits(fmt.Sprint("id", n), int64(slot)<<(6+level*slotBits), 50))
		}
	}
	if got, counted := table.soon.memory(), int(table.Stats().SoonBytes); table.Stats().Soon != n || got > counted*5/4 {
		t.Errorf("%d timers take %d bytes, and %d are counted", n, got, counted)
	}
}

// The numbers of many objects are given back when only a few are left, although one of the last ones stays for long,
// and the rest when that one goes.
func TestNumbersAreGivenBack(t *testing.T) {
	const many, few = 100_000, 10
	table := New(0, 6)
	var numbers []int32
	for i := range many {
		numbers = append(numbers, table.AddObject(fmt.Sprint("id", i)))
	}
	for _, number := range numbers[:many-few] {
		table.Forget(number)
	}
	comeAndGo := func() {
		for i := range many {
			table.Forget(table.AddObject(fmt.Sprint("goes", i)))
		}
	}
	comeAndGo()
	for i := range few {
		if number := table.AddObject(fmt.Sprint("low", i)); number > 2*few {
			t.Fatalf("number %d is given, and lower ones are free", number)
		}
	}
	for _, number := range numbers[many-few:] {
		table.Forget(number)
	}
	comeAndGo()
	if _, got := table.Objects(); got > 10*few || table.Stats().Objects != few || cap(table.objects.all) > 100*few ||
		cap(table.objects.free) > 100*few {
		t.Errorf("%d numbers for %d objects, room for %d and %d free ones", got, table.Stats().Objects,
			cap(table.objects.all), cap(table.objects.free))
	}
	for i := range few {
		if at := table.Find([]byte(fmt.Sprint("low", i))); at.Kind() != Object || at.Number() > 2*few {
			t.Errorf("object %d is not found", i)
		}
	}
}

package memtable

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

// known is what a table knows of an ID.
type known struct {
	kind   Kind
	number int32     // of an object
	in     Kind      // Soon or Later, for an object in the order of firing or a record
	key    timer.Ref // there
	record Record    // for a record or a tombstone
}

// model is a table beside a map.
type model struct {
	t     *rapid.T
	table *Table
	grain uint
	all   map[string]known
	seen  map[string]int
	now   int64
	seq   int64
	open  int64 // due times up to which records may be refused

	taken []Chunk          // what a question has taken
	then  map[string]known // what was known at that time
}

func (m *model) timer(id string, due int64, size int) []byte {
	m.seq++
	t := timer.Timer{ID: []byte(id), Offset: m.seq, Due: due, Occurrence: 1,
		Target: timer.Target{Topic: "t", Partition: timer.AnyPartition}, Value: bytes.Repeat([]byte{byte(m.seq)}, size)}
	return t.AppendTo(nil)
}

func keyOf(b []byte) timer.Ref {
	r := Record{Bytes: b}
	return r.key()
}

// ordered returns the IDs that are soon, or later, in the order of firing.
func (m *model) ordered(k Kind) (ids []string) {
	for id, x := range m.all {
		if x.in == k {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(m.all[a].key.Compare(m.all[b].key), cmp.Compare(a, b)) })
	return ids
}

// some draws an ID for which fits is true.
func (m *model) some(t *rapid.T, fits func(known) bool) string {
	var ids []string
	for id, x := range m.all {
		if fits(x) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		t.Skip("there is none")
	}
	slices.Sort(ids)
	return rapid.SampledFrom(ids).Draw(t, "id")
}

func (m *model) same(what string, got, want Record) {
	m.t.Helper()
	if !bytes.Equal(got.Bytes, want.Bytes) || got.State != want.State || got.State&Dirty != 0 &&
		got.Stored != want.Stored {
		m.t.Fatalf("%s: a record of %d bytes, state %d, stored %v; want %d, %d, %v", what, len(got.Bytes), got.State,
			got.Stored, len(want.Bytes), want.State, want.Stored)
	}
}

func (m *model) check() {
	var objects, buried, changed int
	var soon, dirty int64
	for id, x := range m.all {
		at := m.table.Find([]byte(id))
		if at.Kind() != x.kind {
			m.t.Fatalf("%q is of kind %d, want %d", id, at.Kind(), x.kind)
		}
		switch x.kind {
		case Object:
			objects++
			if k, key := m.table.Place(x.number); at.Number() != x.number || k != x.in || key != x.key {
				m.t.Fatalf("%q is object %d, at %v in %d; want %d, %v, %d", id, at.Number(), key, k, x.number,
					x.key, x.in)
			}
			continue
		case Tombstone:
			buried++
			if x.record.State == Dirty {
				dirty += tombstoneBytes(x.record.Bytes)
			}
		case Soon:
			soon += x.record.Size()
		case Later:
			if x.record.State == Dirty {
				dirty += x.record.Size()
			}
		}
		m.same(id, m.table.At(at), x.record)
		if x.kind != Tombstone && x.record.State != 0 {
			changed++
		}
	}
	if m.table.Find([]byte("nobody")) != 0 {
		m.t.Fatal("something is found of an ID of which nothing is known")
	}
	want := Stats{
		IDs: len(m.all), Objects: objects, Numbers: m.table.Stats().Numbers, Soon: len(m.ordered(Soon)),
		Later:   len(m.ordered(Later)),
		Changed: changed, Tombstones: buried, SoonBytes: soon, DirtyBytes: dirty,
	}
	if got := m.table.Stats(); got != want {
		m.t.Fatalf("the table has %+v, want %+v", got, want)
	}
	if m.seq%4 == 0 { // the table copies chunks in that case
		m.unflushedAre(m.table.Unflushed(nil), m.all)
	}
	m.unflushedAre(m.taken, m.then)
	order := m.ordered(Soon)
	if due, ok := m.table.Next(); ok != (len(order) > 0) || ok && due > m.all[order[0]].key.Due {
		m.t.Fatalf("next is %d, %v, of %d", due, ok, len(order))
	}
	m.checkSlots(m.table.soon, len(order))
	objects, records := 0, [2]int{}
	for _, id := range m.ordered(Later) {
		switch x := m.all[id]; {
		case isObject(x):
			objects++
		case x.record.State == Dirty:
			records[m.table.layers.active]++
		default:
			records[1-m.table.layers.active]++
		}
	}
	m.checkSlots(m.table.later, objects)
	for i := range records {
		m.checkSlots(m.table.layers.both[i].later, records[i])
	}
}

// take collects what the store may lack, as a question does. Later changes do not affect it.
func (m *model) take() { m.taken, m.then = m.table.Unflushed(nil), maps.Clone(m.all) }

// unflushedAre checks that chunks have everything that the store may lack.
func (m *model) unflushedAre(chunks []Chunk, all map[string]known) {
	want := map[string]Record{}
	for id, x := range all {
		if x.record.State != 0 {
			want[id] = x.record
		}
	}
	for _, c := range chunks {
		if m.seq%2 == 0 {
			c.Compact()
		}
		c.Each(func(r Record) {
			id := string(r.Bytes)
			if c.Kind != Tombstone {
				id = string(r.ID())
			}
			if all[id].kind != c.Kind {
				m.t.Fatalf("%q has changed as one of kind %d", id, c.Kind)
			}
			m.same("changed", r, want[id])
			delete(want, id)
		})
	}
	if len(want) > 0 {
		m.t.Fatalf("%d that have changed are not listed", len(want))
	}
}

func (m *model) checkSlots(w *wheel, want int) {
	n := 0
	for level, all := range w.buckets {
		if all == nil {
			continue
		}
		for slot := range slots {
			b := &all[slot]
			n += b.n
			open := level == 0 && slot == w.open()
			if occupied := w.occupied[level]>>slot&1 == 1; occupied != (b.n > 0 && !open) {
				m.t.Fatalf("slot %d of level %d is occupied: %v, with %d records", slot, level, occupied, b.n)
			}
			live, marked := 0, make([]int16, len(b.chunks))
			b.each(func(r *Record, i, _ int) {
				live += r.length()
				marked[i] += int16(marks(r.State))
			})
			if live != b.live {
				m.t.Fatalf("%d bytes are live, counted %d", live, b.live)
			}
			for i, n := range marked {
				if b.chunks[i].marked != n {
					m.t.Fatalf("%d records of a chunk are dirty or being flushed, counted %d", n, b.chunks[i].marked)
				}
			}
			if b.wasteful() {
				m.t.Fatalf("%d bytes in %d chunks are held for %d", b.held, len(b.chunks), b.live)
			}
			if open && b.n > len(w.queue.ready)+len(w.queue.late) {
				m.t.Fatalf("%d records of the open slot have %d entries", b.n, len(w.queue.ready)+len(w.queue.late))
			}
		}
	}
	if n != want || w.n != want {
		m.t.Fatalf("slots have %d records, counted %d, want %d", n, w.n, want)
	}
}

// A table agrees with a map about each ID, and gives out, evicts and flushes what it should, in whatever order things
// happen.
func TestTableAgainstModel(t *testing.T) {
	runs.Checks(t, 300)
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, seen: seen, now: 1_000_000, grain: rapid.SampledFrom([]uint{0, 3, 6}).Draw(t, "grain"),
			all: map[string]known{}}
		m.table, m.open = New(m.now, m.grain), m.now
		m.table.Hash.Blind = rapid.SampledFrom([]uint64{0, 0, math.MaxUint64 &^ 7}).Draw(t, "blind")
		t.Repeat(map[string]func(*rapid.T){
			"":           func(*rapid.T) { m.check() },
			"add stored": m.addStored, "add objects": m.addObjects, "add more objects": m.addObjects,
			"encode": m.encode, "encode more": m.encode,
			"decode": m.decode, "bury": m.bury, "forget": m.forget, "remove": m.remove,
			"pop": m.pop, "evict": m.evict, "approach": m.approach, "set back": m.setBack,
			"flush": m.flush, "flushed": func(*rapid.T) { m.flushed() }, "take": func(*rapid.T) { m.take() },
		})
	})
	t.Logf("seen: %v", seen)
	for _, what := range []string{"refused", "encoded", "decoded", "buried", "dug up", "popped", "popped objects",
		"evicted", "later", "approached", "flushed", "set back", "at an end"} {
		if seen[what] == 0 && !testing.Short() { // short runs are a fifth as many
			t.Errorf("nothing was %s", what)
		}
	}
}

var (
	ahead = rapid.SampledFrom([]int64{-3, 0, 1, 2, 7, 63, 64, 65, 100, 500, 4096, 5000, 300_000, 100_000_000})
	// the limits of time, and the due times of triggered and paused timers
	ends = rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, math.MinInt64 + 64, -1 << 62, -1, 0, 1, 63, 64,
		1 << 62, math.MaxInt64 - 64, math.MaxInt64 - 1, math.MaxInt64})
	sizes = rapid.SampledFrom([]int{0, 10, 200, 3000})
	anID  = rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("id", rapid.IntRange(0, 300).Draw(t, "id")) })
)

// plus returns a + b, limited to the range of time.
func plus(a, b int64) int64 {
	switch sum := a + b; {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	default:
		return sum
	}
}

// instant draws an instant near now, or at a limit.
func (m *model) instant(t *rapid.T) int64 {
	if rapid.IntRange(0, 9).Draw(t, "at an end") == 0 {
		m.seen["at an end"]++
		return ends.Draw(t, "due")
	}
	return plus(m.now, ahead.Draw(t, "in"))
}

func (m *model) addStored(t *rapid.T) {
	due, size := m.instant(t), sizes.Draw(t, "size")
	for range rapid.IntRange(1, 60).Draw(t, "n") {
		id := anID.Draw(t, "id")
		if m.all[id].kind != None {
			continue
		}
		b := m.timer(id, plus(due, rapid.Int64Range(0, 70).Draw(t, "more")), size)
		switch due := keyOf(b).Due; {
		case m.table.AddStored(b):
			m.all[id] = known{kind: Soon, in: Soon, key: keyOf(b), record: Record{Bytes: b, Stored: timer.Absent}}
		case due>>m.grain > m.open>>m.grain:
			t.Fatalf("a record due at %d is refused, up to %d is open", due, m.open)
		default:
			m.seen["refused"]++
		}
	}
}

func (m *model) addObjects(t *rapid.T) {
	due, k := m.instant(t), rapid.SampledFrom([]Kind{None, Soon, Soon, Later}).Draw(t, "kind")
	for range rapid.IntRange(1, 60).Draw(t, "n") {
		id := anID.Draw(t, "id")
		if m.all[id].kind != None {
			continue
		}
		x := known{kind: Object, number: m.table.AddObject(id), in: k}
		if k != None {
			m.seq++
			x.key = timer.Ref{Due: plus(due, rapid.Int64Range(0, 70).Draw(t, "more")), Offset: m.seq}
			m.table.Put(x.number, k, x.key)
		}
		m.all[id] = x
	}
}

func isObject(x known) bool { return x.kind == Object }

func (m *model) encode(t *rapid.T) {
	for range rapid.IntRange(1, 20).Draw(t, "n") {
		id := m.some(t, func(x known) bool { return isObject(x) && x.in != None })
		x := m.all[id]
		r := Record{Bytes: m.timer(id, x.key.Due, sizes.Draw(t, "size"))}
		r.State = rapid.SampledFrom([]State{0, Dirty, Flushing}).Draw(t, "state")
		if x.in == Later {
			r.State = max(r.State, Dirty)
		}
		r.Stored = rapid.SampledFrom([]timer.Ref{timer.Absent, {Due: 5, Offset: 7}}).Draw(t, "stored")
		if m.table.Encode(x.number, r) {
			m.seen["encoded"]++
			m.all[id] = known{kind: x.in, in: x.in, key: keyOf(r.Bytes), record: r}
		} else if x.in == Soon && x.key.Due>>m.grain > m.open>>m.grain {
			t.Fatalf("a record due at %d is refused, up to %d is open", x.key.Due, m.open)
		}
	}
}

func (m *model) decode(t *rapid.T) {
	for range rapid.IntRange(1, 20).Draw(t, "n") {
		id := m.some(t, func(x known) bool { return !isObject(x) })
		m.decodeAt(id, m.table.Find([]byte(id)))
	}
}

func (m *model) decodeAt(id string, at Ref) {
	want := m.all[id].record
	number, is, r := m.table.Decode(at)
	if is != id {
		m.t.Fatalf("%q is decoded as %q", id, is)
	}
	m.same("decoded", r, want)
	if m.seen["decoded"]++; at.Kind() == Tombstone {
		m.seen["dug up"]++
	}
	m.all[id] = known{kind: Object, number: number}
}

func (m *model) bury(t *rapid.T) {
	for range rapid.IntRange(1, 20).Draw(t, "n") {
		id := m.some(t, func(x known) bool { return isObject(x) && x.in == None })
		stored := timer.Ref{Due: m.seq, Offset: rapid.Int64Range(0, 2).Draw(t, "offset")}
		if !m.table.Bury(m.all[id].number, stored) {
			t.Fatalf("%q is not buried", id)
		}
		m.seen["buried"]++
		m.all[id] = known{kind: Tombstone, record: Record{Bytes: []byte(id), State: Dirty, Stored: stored}}
	}
}

func (m *model) forget(t *rapid.T) {
	for range rapid.IntRange(1, 40).Draw(t, "n") {
		id := m.some(t, isObject)
		m.table.Remove(m.all[id].number)
		m.table.Forget(m.all[id].number)
		delete(m.all, id)
	}
}

func (m *model) remove(t *rapid.T) {
	id := m.some(t, isObject)
	m.table.Remove(m.all[id].number)
	m.all[id] = known{kind: Object, number: m.all[id].number}
}

func (m *model) pop(t *rapid.T) {
	m.now = plus(m.now, rapid.SampledFrom([]int64{-50, 0, 1, 10, 64, 1000, 50_000, 10_000_000}).Draw(t, "ms"))
	if rapid.IntRange(0, 19).Draw(t, "to an end") == 0 {
		m.now = ends.Draw(t, "now")
	}
	order := m.ordered(Soon)
	for i := range rapid.IntRange(1, 50).Draw(t, "n") {
		k, ok := m.table.First(m.now)
		m.open = max(m.open, m.now, k.Due)
		if want := i < len(order) && m.all[order[i]].key.Due <= m.now; ok != want {
			t.Fatalf("first of %d is due: %v, want %v", len(order)-i, ok, want)
		}
		at := m.table.Pop(m.now)
		if !ok {
			if at != 0 {
				t.Fatal("what is not due is given out")
			}
			break
		}
		want := m.all[order[i]]
		if k != want.key || at.Kind() != want.kind {
			t.Fatalf("first is %v, of kind %d; want %v, %d", k, at.Kind(), want.key, want.kind)
		}
		m.seen["popped"]++
		if want.kind == Object {
			m.seen["popped objects"]++
			m.all[order[i]] = known{kind: Object, number: at.Number()}
		} else {
			m.decodeAt(order[i], at)
		}
	}
}

func (m *model) evict(t *rapid.T) {
	order := m.ordered(Soon)
	if len(order) == 0 {
		return
	}
	n := rapid.IntRange(1, len(order)).Draw(t, "n")
	k := m.table.Farthest(n)
	if want := m.all[order[len(order)-n]].key; k != want {
		t.Fatalf("the %d-th from the end is %v, want %v", n, k, want)
	}
	objects := map[int32]bool{}
	m.table.Evict(k, func(number int32) { objects[number] = true })
	for _, id := range order[len(order)-n:] {
		m.seen["evicted"]++
		switch x := m.all[id]; {
		case isObject(x):
			if !objects[x.number] {
				t.Fatalf("object %d is not evicted", x.number)
			}
			m.all[id] = known{kind: Object, number: x.number}
		case x.record.State == 0:
			delete(m.all, id)
		default:
			m.seen["later"]++
			x.kind, x.in = Later, Later
			m.all[id] = x
		}
	}
}

func (m *model) approach(t *rapid.T) {
	due := m.instant(t)
	objects := map[int32]bool{}
	m.table.Approach(due, func(number int32) { objects[number] = true })
	for _, id := range m.ordered(Later) {
		x := m.all[id]
		if x.key.Due > due {
			break
		}
		m.seen["approached"]++
		if isObject(x) {
			if !objects[x.number] {
				t.Fatalf("object %d does not approach", x.number)
			}
			m.all[id] = known{kind: Object, number: x.number}
			continue
		}
		x.kind, x.in = Soon, Soon
		m.all[id] = x
	}
}

func (m *model) setBack(t *rapid.T) {
	m.open = plus(m.now, rapid.SampledFrom([]int64{-100_000, -100, 0, 10}).Draw(t, "to"))
	m.table.SetBack(m.open)
	m.open = plus(m.open, -1)
	if up := int64(m.table.soon.taken<<m.grain ^ 1<<63); up > m.open {
		m.open = up // it was not passed over
	}
	m.seen["set back"]++
}

func (m *model) flush(*rapid.T) {
	m.flushed()
	want := map[string]known{}
	for id, x := range m.all {
		if x.record.State == Dirty {
			want[id] = x
		}
	}
	m.table.Flush(func(k Kind, r Record) {
		id := string(r.Bytes)
		if k != Tombstone {
			id = string(r.ID())
		}
		x := want[id]
		if delete(want, id); x.kind != k {
			m.t.Fatalf("%q is flushed as kind %d, want %d", id, k, x.kind)
		}
		m.same("flushed", r, x.record)
		m.seen["flushed"]++
		x.record.State, x.record.Stored = Flushing, timer.Absent
		m.all[id] = x
	})
	if len(want) > 0 {
		m.t.Fatalf("%d are not flushed", len(want))
	}
}

func (m *model) flushed() {
	m.table.Flushed()
	maps.DeleteFunc(m.all, func(_ string, x known) bool { return x.record.State == Flushing && x.kind != Soon })
	for id, x := range m.all {
		x.record.State &^= Flushing
		m.all[id] = x
	}
}

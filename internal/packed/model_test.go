package packed

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wheel"
)

const kind = 2

// model is a wheel beside a map.
type model struct {
	t     *rapid.T
	w     *Wheel
	x     *Index
	grain uint
	all   map[string]Record
	now   int64
	seq   int64
	open  int64 // due times up to which records may be refused
}

func key(r Record) wheel.Key { return r.key() }

func (m *model) record(id string, in int64, size int, s State, stored timer.Ref) Record {
	m.seq++
	t := timer.Timer{ID: []byte(id), Offset: m.seq, Due: m.now + in, Occurrence: 1, Target: timer.Target{Topic: "t", Partition: timer.AnyPartition}, Value: bytes.Repeat([]byte{byte(m.seq)}, size)}
	return Record{Bytes: t.AppendTo(nil), State: s, Stored: stored}
}

func (m *model) ordered() []string {
	return slices.SortedFunc(maps.Keys(m.all), func(a, b string) int {
		return cmp.Or(key(m.all[a]).Compare(key(m.all[b])), cmp.Compare(a, b))
	})
}

func (m *model) same(what string, got, want Record) {
	m.t.Helper()
	if !bytes.Equal(got.Bytes, want.Bytes) || got.State != want.State || got.State&Stale != 0 && got.Stored != want.Stored {
		m.t.Fatalf("%s: a record of %d bytes, state %d, stored %v; want %d, %d, %v", what, len(got.Bytes), got.State, got.Stored, len(want.Bytes), want.State, want.Stored)
	}
}

func (m *model) check() {
	marked, size, stale, order := 0, int64(0), int64(0), m.ordered()
	for _, id := range order {
		r := m.all[id]
		at := m.x.Get(m.x.Sum([]byte(id)))
		if at.Kind() != kind {
			m.t.Fatalf("%q is not there: kind %d", id, at.Kind())
		}
		m.same(id, m.w.At(at), r)
		marked, size = marked+marks(r.State), size+r.Size()
		if r.State&Stale != 0 {
			stale += r.Size()
		}
	}
	if m.x.Len() != len(m.all) || m.w.Len() != len(m.all) || m.w.Marked() != marked || m.w.Bytes() != size || m.w.StaleBytes() != stale {
		m.t.Fatalf("%d records, %d marked, %d bytes; want %d, %d, %d", m.w.Len(), m.w.Marked(), m.w.Bytes(), len(m.all), marked, size)
	}
	if due, ok := m.w.Next(); ok != (len(order) > 0) || ok && due > key(m.all[order[0]]).Due {
		m.t.Fatalf("next is %d, %v, of %d", due, ok, len(order))
	}
	seen := map[string]bool{}
	m.w.Marks(func(r Record) {
		id, err := timer.DecodeID(r.Bytes)
		if err != nil {
			m.t.Fatal(err)
		}
		seen[string(id)] = true
		m.same("marked", r, m.all[string(id)])
	})
	if len(seen) != marked {
		m.t.Fatalf("%d are marked, want %d", len(seen), marked)
	}
	held, live, n := 0, 0, 0
	for level, all := range m.w.buckets {
		for slot := range slots {
			if all == nil {
				continue
			}
			b := &all[slot]
			held, live, n = held+b.held, live+b.live, n+b.n
			occupied := m.w.occupied[level]>>slot&1 == 1
			if occupied != (b.n > 0) && !m.w.open(level, slot) {
				m.t.Fatalf("slot %d of level %d is occupied: %v, with %d records", slot, level, occupied, b.n)
			}
			if !m.w.open(level, slot) && b.wasteful() {
				m.t.Fatalf("%d bytes in %d chunks are held for %d", b.held, len(b.chunks), b.live)
			}
		}
	}
	if n != len(m.all) || held < live {
		m.t.Fatalf("slots have %d records, %d bytes for %d; want %d", n, held, live, len(m.all))
	}
}

// A wheel finds, gives out in order, evicts and marks what a map has, whatever comes between.
func TestWheelAgainstModel(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		grain := rapid.SampledFrom([]uint{0, 3, 6}).Draw(t, "grain")
		m := &model{t: t, now: 1_000_000, grain: grain, all: map[string]Record{}}
		m.x = new(Index)
		m.w = New(m.x, kind, m.now, grain)
		m.open = m.now
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("id", rapid.IntRange(0, 300).Draw(t, "id")) })
		ahead := rapid.SampledFrom([]int64{-3, 0, 1, 2, 7, 63, 64, 65, 100, 500, 4096, 5000, 300_000, 100_000_000})
		add := func(t *rapid.T) {
			n := rapid.IntRange(1, 60).Draw(t, "n")
			in, size := ahead.Draw(t, "in"), rapid.SampledFrom([]int{0, 10, 200, 3000}).Draw(t, "size")
			s := rapid.SampledFrom([]State{0, Stale, Stale, Frozen}).Draw(t, "state")
			stored := rapid.SampledFrom([]timer.Ref{timer.Absent, {Due: 5, Offset: 7}}).Draw(t, "stored")
			for range n {
				x := id.Draw(t, "id")
				if _, there := m.all[x]; there {
					continue
				}
				r := m.record(x, in+rapid.Int64Range(0, 70).Draw(t, "more"), size, s, stored)
				switch ok := m.w.Add(r, m.x.Sum([]byte(x))); {
				case ok:
					m.all[x] = r
				case key(r).Due>>grain > m.open>>grain:
					t.Fatalf("a record due at %d is refused, up to %d is open", key(r).Due, m.open)
				default:
					seen["refused"]++
				}
			}
		}
		forget := func(r Record) string {
			x, err := timer.DecodeID(r.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			m.same("taken out", r, m.all[string(x)])
			delete(m.all, string(x))
			m.x.Delete(m.x.Sum(x))
			return string(x)
		}
		t.Repeat(map[string]func(*rapid.T){
			"":    func(*rapid.T) { m.check() },
			"add": add, "add too": add, "add more": add,
			"take": func(t *rapid.T) {
				for range rapid.IntRange(1, 100).Draw(t, "n") {
					x := id.Draw(t, "id")
					want, there := m.all[x]
					at := m.x.Get(m.x.Sum([]byte(x)))
					if ok := at != 0; ok != there {
						t.Fatalf("%q is there: %v, want %v", x, ok, there)
					}
					if there {
						m.same("taken", m.w.Take(at), want)
						forget(want)
						seen["taken"]++
					}
				}
			},
			"pop": func(t *rapid.T) {
				m.now += rapid.SampledFrom([]int64{-50, 0, 1, 10, 64, 1000, 50_000, 10_000_000}).Draw(t, "ms")
				n := rapid.IntRange(1, 50).Draw(t, "n")
				order := m.ordered()
				for i := range n {
					k, ok := m.w.First(m.now)
					m.open = max(m.open, m.now, k.Due)
					if want := i < len(order) && key(m.all[order[i]]).Due <= m.now; ok != want {
						t.Fatalf("first of %d is due: %v, want %v", len(order)-i, ok, want)
					}
					if !ok {
						break
					}
					want := m.all[order[i]]
					if k != key(want) {
						t.Fatalf("first is %v, want %v", k, key(want))
					}
					m.same("popped", m.w.Pop(), want)
					forget(want)
					seen["popped"]++
				}
			},
			"evict": func(t *rapid.T) {
				order := m.ordered()
				if len(order) == 0 {
					return
				}
				n := rapid.IntRange(1, len(order)).Draw(t, "n")
				k := m.w.Farthest(n)
				if want := key(m.all[order[len(order)-n]]); k != want {
					t.Fatalf("the %d-th from the end is %v, want %v", n, k, want)
				}
				m.w.EvictFrom(k, func(r Record) {
					if key(r).Compare(k) < 0 {
						t.Fatalf("%v is evicted from %v on", key(r), k)
					}
					forget(r)
				})
				seen["evicted"] += n
				if m.w.Len() != len(order)-n {
					t.Fatalf("%d are left, want %d", m.w.Len(), len(order)-n)
				}
			},
			"freeze": func(t *rapid.T) {
				m.w.Thaw(nil)
				for x, r := range m.all {
					r.State &^= Frozen
					m.all[x] = r
				}
				m.w.Freeze(func(r Record) {
					x, _ := timer.DecodeID(r.Bytes)
					m.same("frozen", r, m.all[string(x)])
					r.State = Frozen
					m.all[string(x)] = r
					seen["frozen"]++
				})
				for x, r := range m.all {
					if r.State&Stale != 0 {
						t.Fatalf("%q is stale yet", x)
					}
				}
			},
			"thaw away": func(*rapid.T) {
				m.w.Thaw(func(r Record) {
					if r.State&Frozen == 0 {
						t.Fatal("what is not frozen is thawed")
					}
					forget(r)
				})
			},
			"lower": func(t *rapid.T) {
				m.open = m.now + rapid.SampledFrom([]int64{-100_000, -100, 0, 10}).Draw(t, "to")
				m.w.Lower(m.open)
				m.open = max(m.open-1, 0)
				if up := int64(m.w.taken<<grain ^ 1<<63); up > m.open {
					m.open = up // it was not passed over
				}
				seen["lowered"]++
			},
		})
		for range len(m.all) {
			if _, ok := m.w.First(1 << 60); !ok {
				t.Fatal("nothing is left to pop")
			}
			forget(m.w.Pop())
		}
		if _, ok := m.w.First(1 << 60); ok || m.w.Len() != 0 || m.w.Bytes() != 0 || m.x.Len() != 0 {
			t.Fatalf("%d are left", m.w.Len())
		}
	})
	t.Logf("seen: %v", seen)
	for _, what := range []string{"refused", "taken", "popped", "evicted", "frozen", "lowered"} {
		if seen[what] == 0 {
			t.Errorf("nothing was %s", what)
		}
	}
}

package statestore

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

const unhealthy = "orders/3"

// withTimers returns a handle of a partition with timers a to e, due 10 to 50.
func withTimers(t *testing.T, s *Store) (k *Handle, ts []*timer.Timer) {
	k = s.Partition(partition0).Acquire()
	for i := range int64(5) {
		ts = append(ts, newTimer(string(rune('a'+i)), (i+1)*10, i))
		must(t, k.Apply(batchAt(i, put(ts[i], timer.Absent))))
	}
	return k, ts
}

// wantParked checks that as many timers are parked for each target as it names IDs.
func wantParked(t *testing.T, k *Handle, want map[string]string) {
	t.Helper()
	parked, err := readParked(k)
	must(t, err)
	got := map[string]string{}
	for id, target := range parked {
		got[target] += id
	}
	for target, ids := range got {
		b := []byte(ids)
		slices.Sort(b)
		if string(b) != want[target] {
			t.Fatalf("parked for %s: %q, want %q", target, b, want[target])
		}
	}
	list, err := k.Parked()
	must(t, err)
	if len(list) != len(want) {
		t.Fatalf("parked: %v, want %v", list, want)
	}
	for _, p := range list {
		if ids := want[p.Target]; p.Count != int64(len(ids)) || p.Oldest != int64(ids[0]-'a'+1)*10 {
			t.Fatalf("parked: %+v, want %q", p, ids)
		}
	}
	if m, err := k.p.Verify(); err != nil || m.Parked != int64(len(parked)) {
		t.Fatalf("verify: %+v, %v", m, err)
	}
}

// A partition has rows of parked timers, and of their targets, while there are some.
func TestRowsOfParkedTimers(t *testing.T) {
	s := memStore(t)
	k, ts := withTimers(t, s)
	rows := func() (kinds string) {
		it, err := s.db.NewIter(nil)
		must(t, err)
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			if kind := string(it.Key()[kindAt]); !strings.HasSuffix(kinds, kind) {
				kinds += kind
			}
		}
		return kinds
	}
	if kinds := rows(); kinds != "dim" {
		t.Fatalf("rows %s", kinds)
	}
	must(t, k.Park(unhealthy, ts[1:]))
	if kinds := rows(); kinds != "dimpt" {
		t.Fatalf("rows %s", kinds)
	}
	must(t, k.Apply(batchAt(5, remove(ts[1]))))
	_, err := k.Unpark(unhealthy, 10_000, 8<<20)
	must(t, err)
	if kinds := rows(); kinds != "dim" {
		t.Fatalf("rows %s", kinds)
	}
	wantIDs(t, k, "a c d e")
}

func TestParkPassesOverWhatIsNotPending(t *testing.T) {
	s := memStore(t)
	k, ts := withTimers(t, s)
	replaced := newTimer("b", 70, 7)
	must(t, k.Apply(batchAt(7, remove(ts[0]), put(replaced, ts[1].Ref()))))
	must(t, k.Park("mail/0", ts[2:3]))
	never := newTimer("never", 30, 1)
	must(t, k.Park(unhealthy, []*timer.Timer{ts[3], never, ts[3], ts[2], ts[1], ts[0], ts[3]}))
	wantIDs(t, k, "e b")
	wantParked(t, k, map[string]string{unhealthy: "d", "mail/0": "c"})
	before := s.db.Metrics().MemTable.Size
	must(t, k.Park("nobody/0", ts[:4])) // nothing to park, so there is no target
	wantParked(t, k, map[string]string{unhealthy: "d", "mail/0": "c"})
	if after := s.db.Metrics().MemTable.Size; after != before {
		t.Fatalf("parking nothing wrote something")
	}
	empty := s.Partition(partition1).Acquire()
	must(t, empty.Park(unhealthy, ts))
	if m := getMeta(t, empty); m.Position != -1 {
		t.Fatalf("%+v", m)
	}
}

func TestParkRefusals(t *testing.T) {
	s := memStore(t)
	k, ts := withTimers(t, s)
	wantErr(t, k.Park("", ts), ErrTarget)
	wantErr(t, k.Park(strings.Repeat("x", maxTargetName+1), ts), ErrTarget)
	longest := strings.Repeat("x", maxTargetName)
	must(t, k.Park(longest, ts[:1]))
	must(t, k.Park(longest, ts[1:2]))
	wantIDs(t, k, "c d e")
}

// No number of targets is too large. A partition that may not park timers would be acquired
// again and again.
func TestParkForAnyNumberOfTargets(t *testing.T) {
	k, ts := withTimers(t, memStore(t))
	for i := range 1 << 16 { // so many that a 16-bit number would not do
		k.p.targets.byNumber[uint32(i+100)] = target{}
	}
	must(t, k.Park("one more", ts[:1]))
	must(t, k.Park("and one", ts[1:2]))
	wantIDs(t, k, "c d e")
}

// Parked rows slow nothing down: neither a scan from the beginning, once the low bound was raised, nor unparking after
// most of them were cancelled.
func TestScanPassesOverParkedTimers(t *testing.T) {
	runs.NotRaced(t)
	synctest.Test(t, func(t *testing.T) {
		s := memStore(t)
		defer s.Close()
		k := s.Partition(partition0).Acquire()
		const n = sweepAfter
		var puts []Change
		var ts []*timer.Timer
		for i := range int64(n + 1) {
			ts = append(ts, newTimer(fmt.Sprint(i), i, i))
			puts = append(puts, put(ts[i], timer.Absent))
		}
		must(t, k.Apply(batchAt(1, puts...)))
		must(t, k.Park(unhealthy, ts[:n]))
		synctest.Wait() // for the sweep
		wantLow(t, k, n, n)
		wantIDs(t, k, fmt.Sprint(n))
		var cancels []Change
		for _, x := range ts[:n-1] {
			cancels = append(cancels, remove(x))
		}
		must(t, k.Apply(batchAt(2, cancels...)))
		list, err := k.Parked()
		must(t, err)
		if len(list) != 1 || list[0] != (ParkedTarget{unhealthy, 1, n - 1}) {
			t.Fatalf("parked: %+v", list)
		}
		if low := k.p.targets.byNumber[1].low; low.Due != n-1 {
			t.Fatalf("who looks next begins at %v", low)
		}
		got, err := k.Unpark(unhealthy, 10_000, 8<<20)
		must(t, err)
		if ids(got) != fmt.Sprint(n-1) {
			t.Fatalf("unparked %q", ids(got))
		}
		wantLow(t, k, n-1, n-1)
		wantIDs(t, k, fmt.Sprint(n-1, " ", n))
	})
}

// Each planted fault of a partition with parked timers is found.
func TestVerifyFindsFaults(t *testing.T) {
	type rows struct {
		b  *pebble.Batch
		p  prefix
		ts []*timer.Timer // a and b are parked as target 1
	}
	set := func(r rows, key, value []byte) { r.b.Set(key, value, nil) }
	for _, c := range []struct {
		name  string
		plant func(r rows)
	}{
		{"lost row by due time", func(r rows) { r.b.Delete(appendDueKey(nil, r.p, r.ts[2].Ref()), nil) }},
		{"lost parked row", func(r rows) { r.b.Delete(appendParkedKey(nil, r.p, 1, r.ts[0].Ref()), nil) }},
		{"lost ID row", func(r rows) { r.b.Delete(appendIDKey(nil, r.p, []byte("a")), nil) }},
		{"ID row alone", func(r rows) {
			set(r, appendIDKey(nil, r.p, []byte("z")), appendLocation(nil, Location{ref: timer.Ref{Due: 1, Offset: 1}}))
		}},
		{"ID row of 3 bytes", func(r rows) { set(r, appendIDKey(nil, r.p, []byte("c")), []byte("abc")) }},
		{"parked and not", func(r rows) {
			set(r, appendDueKey(nil, r.p, r.ts[0].Ref()), r.ts[0].AppendTo(nil))
		}},
		{"ID row forgets the parking", func(r rows) {
			set(r, appendIDKey(nil, r.p, []byte("a")), appendLocation(nil, Location{ref: r.ts[0].Ref()}))
		}},
		{"parked for another target", func(r rows) {
			set(r, appendIDKey(nil, r.p, []byte("a")), appendLocation(nil, Location{r.ts[0].Ref(), 2}))
		}},
		{"parked for an unknown target", func(r rows) {
			r.b.Delete(appendParkedKey(nil, r.p, 1, r.ts[0].Ref()), nil)
			set(r, appendParkedKey(nil, r.p, 9, r.ts[0].Ref()), r.ts[0].AppendTo(nil))
			set(r, appendIDKey(nil, r.p, []byte("a")), appendLocation(nil, Location{r.ts[0].Ref(), 9}))
		}},
		{"target lost", func(r rows) { r.b.Delete(appendNumberKey(nil, r.p, kindTarget, 1), nil) }},
		{"target counts wrong", func(r rows) {
			x := target{number: 1, name: unhealthy, count: 3, low: r.ts[0].Ref()}
			set(r, appendNumberKey(nil, r.p, kindTarget, 1), x.encode())
		}},
		{"target begins too late", func(r rows) {
			x := target{number: 1, name: unhealthy, count: 2, low: r.ts[1].Ref()}
			set(r, appendNumberKey(nil, r.p, kindTarget, 1), x.encode())
		}},
		{"two targets of one name", func(r rows) {
			x := target{number: 2, name: unhealthy, count: 1, low: r.ts[2].Ref()}
			set(r, appendNumberKey(nil, r.p, kindTarget, 2), x.encode())
		}},
		{"another timer's bytes", func(r rows) {
			set(r, appendDueKey(nil, r.p, r.ts[3].Ref()), r.ts[4].AppendTo(nil))
		}},
		{"no timer's bytes", func(r rows) { set(r, appendDueKey(nil, r.p, r.ts[3].Ref()), []byte{1}) }},
		{"unknown kind", func(r rows) { set(r, r.p.key('x'), nil) }},
		{"no kind", func(r rows) { set(r, r.p[:], nil) }},
		{"meta row lost", func(r rows) { r.b.Delete(r.p.key(kindMeta), nil) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := memStore(t)
			k, ts := withTimers(t, s)
			must(t, k.Park(unhealthy, ts[:2]))
			must(t, k.Park("mail/0", ts[2:3]))
			_, err := k.Unpark("mail/0", 10_000, 8<<20)
			must(t, err)
			_, err = k.p.Verify()
			must(t, err)
			b := s.db.NewBatch()
			c.plant(rows{b, k.p.prefix, ts})
			must(t, b.Commit(pebble.NoSync))
			if _, err = k.p.Verify(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), k.p.id.String()) {
				t.Fatalf("%v", err)
			}
		})
	}
}

// Numbers of targets wrap around after 2^32. None is 0, which means that a timer is not parked: its row would not be
// found.
func TestNumbersOfTargetsComeRound(t *testing.T) {
	s := memStore(t)
	k := s.Partition(partition0).Acquire()
	var timers []*timer.Timer
	var changes []Change
	for i := range int64(4) {
		x := newTimer(fmt.Sprint("id", i), i, i)
		timers, changes = append(timers, x), append(changes, put(x, timer.Absent))
	}
	must(t, k.Apply(batchAt(1, changes...)))
	must(t, k.Park("first", timers[:1]))
	k.p.targets.highest = math.MaxUint32 - 2
	for i, name := range []string{"last", "round", "again"} {
		must(t, k.Park(name, timers[i+1:i+2]))
	}
	if p := s.Partition(partition0); p.targets.byName["last"] != math.MaxUint32-1 || p.targets.byName["round"] != 2 ||
		p.targets.byName["again"] != 3 {
		t.Errorf("numbers are %v", p.targets.byName)
	}
	for i, name := range []string{"first", "last", "round", "again"} {
		got, err := k.Unpark(name, 10_000, 8<<20)
		if err != nil || len(got) != 1 || string(got[0].ID) != string(timers[i].ID) {
			t.Errorf("parked for %s are %v, %v", name, got, err)
		}
	}
	wantIDs(t, k, "id0 id1 id2 id3")
}

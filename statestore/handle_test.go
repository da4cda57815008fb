package statestore

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

func TestEarlierHandlesAreRefused(t *testing.T) {
	s := memStore(t)
	p := s.Partition(partition0)
	if s.Partition(partition0) != p {
		t.Fatal("two partitions for one ID")
	}
	first := p.Acquire()
	a := newTimer("a", 1, 1)
	must(t, first.Apply(batchAt(1, put(a, timer.Absent))))
	replay, err := first.Replay(changelog, testNow)
	must(t, err)

	second := p.Acquire()
	calls := map[string]func() error{
		"meta":   func() error { _, err := first.Meta(); return err },
		"apply":  func() error { return first.Apply(batchAt(2, remove(a))) },
		"wipe":   first.Wipe,
		"live":   func() error { return first.Live(testNow, held) },
		"lookup": func() error { _, err := first.Lookup(a.ID); return err },
		"get":    func() error { _, err := first.Get(a.ID); return err },
		"replay": func() error { _, err := first.Replay(changelog, testNow); return err },
		"flush":  func() error { return replay.Flush(2) },
		"park":   func() error { return first.Park(unhealthy, []*timer.Timer{a}) },
		"unpark": func() error { _, err := first.Unpark(unhealthy, 10_000, 8<<20); return err },
		"parked": func() error { _, err := first.Parked(); return err },
		"count":  func() error { _, err := first.ParkedFor("t/0"); return err },
		"scan": func() error {
			_, _, _, err := first.Scan(timer.Ref{}, last, 10, 1000)
			return err
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, ErrNotOwner) {
			t.Errorf("%s by the former owner: %v", name, err)
		}
	}
	first.Release() // must not release the second
	wantIDs(t, second, "a")
	if m := getMeta(t, second); m.Position != 1 {
		t.Fatalf("position %d", m.Position)
	}
	second.Release()
	second.Release()
	wantErr(t, second.Wipe(), ErrNotOwner)
}

// The apply of a committed step is delayed until the partition was revoked and acquired again. The batch is either
// stored completely before the new handle, or rejected.
func TestAcquireWaitsForTheBatchUnderWay(t *testing.T) {
	s := memStore(t)
	p := s.Partition(partition0)
	var wg sync.WaitGroup
	for owner := range 100 {
		k := p.Acquire()
		at, err := readMeta(s.db, p.prefix) // does not wait
		must(t, err)
		wg.Wait() // for the former owner
		later, err := readMeta(s.db, p.prefix)
		must(t, err)
		if at.Position != later.Position || at.Pending != later.Pending {
			t.Fatalf("owner %d: changed under it from %+v to %+v", owner, at, later)
		}
		started := make(chan struct{})
		wg.Go(func() {
			for i := at.Position + 1; ; i++ {
				var changes []Change
				for j := range int64(100) {
					changes = append(changes, put(newTimer(fmt.Sprint(i, "-", j), i, j), timer.Absent))
				}
				err := k.Apply(batchAt(i, changes...))
				if i == at.Position+1 {
					close(started)
				}
				if err != nil {
					if !errors.Is(err, ErrNotOwner) {
						t.Error(err)
					}
					return
				}
			}
		})
		<-started
	}
	p.Acquire()
	wg.Wait()
}

func TestRefusals(t *testing.T) {
	s := memStore(t)
	k := s.Partition(partition0).Acquire()
	a := newTimer("a", 1, 1)
	must(t, k.Apply(batchAt(5, put(a, timer.Absent))))
	other := batchAt(6)
	other.Changelog = [16]byte{7}
	for _, c := range []struct {
		name string
		b    *Batch
		want error
	}{
		{"position goes back", batchAt(4), ErrPosition},
		{"no position", batchAt(-1), ErrPosition},
		{"another changelog", other, ErrForeignChangelog},
		{"empty ID", batchAt(6, timer.ChangeOf(nil, timer.Absent, a)), ErrID},
		{"long ID", batchAt(6, timer.ChangeOf(make([]byte, 513), timer.Absent, a)), ErrID},
	} {
		if err := k.Apply(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	_, err := k.Replay(other.Changelog, testNow)
	wantErr(t, err, ErrForeignChangelog)
	_, err = k.Lookup(nil)
	wantErr(t, err, ErrID)
	if m := getMeta(t, k); m.Position != 5 || m.Pending != 1 {
		t.Fatalf("changed by what was refused: %+v", m)
	}
	must(t, k.Apply(batchAt(5))) // the same position is fine
	must(t, s.Close())
	must(t, s.Close())
	wantErr(t, k.Apply(batchAt(6)), ErrClosed)
	wantErr(t, s.Flush(), ErrClosed)
	_, err = s.Partitions()
	wantErr(t, err, ErrClosed)
}

// syncedBefore is for Drop.
func syncedBefore(then time.Time) func(Meta) bool {
	return func(m Meta) bool { return m.InSync.Before(then) }
}

func TestWipeAndDrop(t *testing.T) {
	o := testOptions(vfs.NewMem())
	s := mustOpen(t, o)
	k0, k1 := s.Partition(partition0).Acquire(), s.Partition(partition1).Acquire()
	a, b := newTimer("a", 1, 1), newTimer("b", 2, 2)
	must(t, k0.Apply(batchAt(1, put(a, timer.Absent))))
	must(t, s.Flush())
	must(t, k0.Apply(batchAt(2, put(b, timer.Absent))))
	must(t, k1.Apply(batchAt(9, put(a, timer.Absent))))
	replay, err := k0.Replay(changelog, testNow)
	must(t, err)

	must(t, k0.Wipe())
	wantErr(t, replay.Flush(3), ErrReplayOver)
	if m := getMeta(t, k0); m.Position != -1 || m.Pending != 0 || m.Checkpoint != nil || !m.InSync.IsZero() {
		t.Fatalf("after the wipe: %+v", m)
	}
	wantIDs(t, k0, "")
	wantIDs(t, k1, "a")
	must(t, k0.Wipe()) // of nothing
	must(t, k0.Apply(batchAt(1, put(b, timer.Absent))))
	wantIDs(t, k0, "b")

	later := testNow.Add(time.Hour)
	drop := func(then time.Time, want bool) {
		t.Helper()
		if did, err := s.Drop(partition1, syncedBefore(then)); did != want || err != nil {
			t.Fatalf("dropped %v, %v, want %v", did, err, want)
		}
	}
	drop(later, false) // it has an owner
	must(t, k1.Live(testNow, held))
	k1.Release()
	drop(testNow, false) // it may be in sync
	drop(later, true)
	drop(later, false) // there is nothing
	ids, err := s.Partitions()
	must(t, err)
	if len(ids) != 1 || ids[0] != partition0 {
		t.Fatalf("partitions after a drop: %v", ids)
	}
	must(t, s.Close())
	s = mustOpen(t, o)
	wantIDs(t, s.Partition(partition0).Acquire(), "b")
	wantIDs(t, s.Partition(partition1).Acquire(), "")
}

func TestScan(t *testing.T) {
	s := memStore(t)
	k := s.Partition(partition0).Acquire()
	var changes []Change
	for i := range int64(10) {
		changes = append(changes, put(newTimer(fmt.Sprint(i), i/2*10, i), timer.Absent))
	}
	must(t, k.Apply(batchAt(10, changes...)))
	const many = 100
	rowBytes := int64(len(changes[0].Timer.AppendTo(nil)))
	for _, c := range []struct {
		name     string
		from, to timer.Ref
		max      int
		maxBytes int64
		want     string
		next     timer.Ref
		done     bool
	}{
		{"all", timer.Ref{}, last, many, 1 << 20, "0 1 2 3 4 5 6 7 8 9", last, true},
		{"from is included, to is not", timer.Ref{Due: 10, Offset: 3}, timer.Ref{Due: 20, Offset: 5}, many, 1 << 20,
			"3 4", timer.Ref{Due: 20, Offset: 5}, true},
		{"due is below", timer.Ref{Offset: -1}, timer.Ref{Due: 10, Offset: -1}, many, 1 << 20, "0 1",
			timer.Ref{Due: 10, Offset: -1}, true},
		{"rows", timer.Ref{}, last, 3, 1 << 20, "0 1 2", timer.Ref{Due: 10, Offset: 3}, false},
		{"exactly all rows", timer.Ref{}, last, 10, 1 << 20, "0 1 2 3 4 5 6 7 8 9", last, true},
		{"bytes", timer.Ref{}, last, many, rowBytes + 1, "0 1", timer.Ref{Offset: 2}, false},
		{"one row at least", timer.Ref{}, last, many, 1, "0", timer.Ref{Offset: 1}, false},
		{"empty range", timer.Ref{Due: 20}, timer.Ref{Due: 20}, many, 1 << 20, "", timer.Ref{Due: 20}, true},
		{"to before from", timer.Ref{Due: 20}, timer.Ref{Due: 10}, many, 1 << 20, "", timer.Ref{Due: 10}, true},
	} {
		got, next, done, err := k.Scan(c.from, c.to, c.max, c.maxBytes)
		if err != nil || ids(got) != c.want || next != c.next || done != c.done {
			t.Errorf("%s: %q, next %v, done %v, %v", c.name, ids(got), next, done, err)
		}
	}
}

func TestInSync(t *testing.T) {
	const hour = time.Hour
	brokers := newClock()
	start := brokers.now
	heard := start // when the group last knew the owner
	lease := func() (time.Duration, error) { return brokers.now.Sub(heard), nil }
	// Each step of the script is followed by the in-sync time that a restart would find, in hours since the start, by
	// the brokers' clock.
	type step struct {
		name    string
		advance time.Duration
		do      func(t *testing.T, s *Store, k **Handle)
		want    time.Duration
	}
	flush := func(t *testing.T, s *Store, _ **Handle) { must(t, s.Flush()) }
	live := func(t *testing.T, _ *Store, k **Handle) { must(t, (*k).Live(brokers.now, lease)) }
	hears := func(*testing.T, *Store, **Handle) { heard = brokers.now }
	apply := func(t *testing.T, _ *Store, k **Handle) { must(t, (*k).Apply(batchAt(7))) }
	take := func(t *testing.T, s *Store, k **Handle) { *k = s.Partition(partition0).Acquire() }
	replay := func(t *testing.T, _ *Store, k **Handle) {
		r, err := (*k).Replay(changelog, brokers.now)
		must(t, err)
		must(t, r.Delete([]byte("gone")))
		must(t, r.Flush(7))
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"first replay counts from its begin", []step{
			{"replay", 0, replay, 0}, {"flush later", 2 * hour, flush, 0}, {"live", 0, live, 2 * hour}}},
		{"replay begun, lost, begun again, twice", []step{
			{"replay", 0, replay, 0},
			{"take", 11 * hour, take, 0}, {"replay", 0, replay, 0}, {"flush", 0, flush, 0},
			{"take", 11 * hour, take, 0}, {"replay", 0, replay, 0}, {"apply while not live", 0, apply, 0}}},
		{"an idle partition of a running owner for 13 h", []step{
			{"replay", 0, replay, 0}, {"live", 0, live, 0},
			{"heartbeat", 12 * hour, hears, 0}, {"flush", 0, flush, 12 * hour},
			{"heartbeat", hour, hears, 12 * hour}, {"flush", hour, flush, 13 * hour}}},
		{"apply records the time while live", []step{
			{"replay", 0, replay, 0}, {"live", 3 * hour, live, 3 * hour}, {"apply", 0, apply, 3 * hour}}},
		{"a pause of 13 h, and the loss noticed after many flushes", []step{
			{"replay", 0, replay, 0}, {"live", 0, live, 0},
			{"flush on waking", 13 * hour, flush, 0}, {"apply", 0, apply, 0},
			{"flush again", 30 * time.Second, flush, 0}, {"flush again", 30 * time.Second, flush, 0},
			{"acquired by another", 0, take, 0}, {"flush", hour, flush, 0}}},
		{"a lease that is older than the claim", []step{
			{"replay", 0, replay, 0}, {"live", 3 * hour, live, 3 * hour}, {"flush", 0, flush, 3 * hour}}},
		{"the clock set back", []step{
			{"replay", 0, replay, 0}, {"live", 5 * hour, live, 5 * hour},
			{"heartbeat", 4 * hour, hears, 5 * hour}, {"flush", 0, flush, 9 * hour},
			{"heartbeat", -2 * hour, hears, 9 * hour}, {"flush", 0, flush, 7 * hour}}},
	} {
		for _, ahead := range []time.Duration{0, 13 * hour, -13 * hour} {
			t.Run(fmt.Sprint(c.name, ", the owner's clock ahead by ", ahead), func(t *testing.T) {
				*brokers, heard = clock{start}, start
				now := time.Duration(0)
				o := testOptions(vfs.NewMem())
				o.Now = func() time.Time { return brokers.now.Add(ahead) }
				s := mustOpen(t, o)
				k := s.Partition(partition0).Acquire()
				for i, st := range c.steps {
					brokers.now = brokers.now.Add(st.advance)
					now += st.advance
					st.do(t, s, &k)
					m := getMeta(t, k)
					if got := m.InSync.Sub(start); got != st.want {
						t.Fatalf("step %d, %s at %v: in sync at %v, want %v", i, st.name, now, got, st.want)
					}
				}
				inSync := getMeta(t, k).InSync
				must(t, s.Flush())
				must(t, s.Close())
				s = mustOpen(t, o)
				if got := getMeta(t, s.Partition(partition0).Acquire()).InSync; got.Before(inSync) &&
					got.Sub(inSync) > time.Second {
					t.Fatalf("stored %v, want %v", got, inSync)
				} else if got.After(brokers.now) {
					t.Fatalf("in sync in the future: %v", got)
				}
			})
		}
	}
}

// held is the lease of an owner that the group has just heard of.
func held() (time.Duration, error) { return 0, nil }

package statestore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

func low(k *Handle) timer.Ref { return k.p.low.with(func(timer.Ref) {}) }

func wantLow(t testing.TB, k *Handle, due, offset int64) {
	t.Helper()
	if got, want := low(k), (timer.Ref{Due: due, Offset: offset}); got != want {
		t.Fatalf("low bound %v, want %v", got, want)
	}
}

func TestLowBound(t *testing.T) {
	o := testOptions(vfs.NewMem())
	s := mustOpen(t, o)
	k := s.Partition(partition0).Acquire()
	var ts []*timer.Timer
	for i := range int64(10) {
		ts = append(ts, newTimer(fmt.Sprint(i), i*10, i))
		must(t, k.Apply(batchAt(i, put(ts[i], timer.Absent))))
	}
	wantLow(t, k, 0, 0)
	for i := range 5 {
		must(t, k.Apply(batchAt(10, remove(ts[i]))))
	}
	wantLow(t, k, 0, 0) // only a sweep raises it
	must(t, s.Flush())
	wantLow(t, k, 50, 5)
	wantIDs(t, k, "5 6 7 8 9")

	early := newTimer("early", 7, 11)
	must(t, k.Apply(batchAt(11, put(early, timer.Absent))))
	wantLow(t, k, 7, 11)
	wantIDs(t, k, "early 5 6 7 8 9")
	must(t, s.Close())

	s = mustOpen(t, o)
	k = s.Partition(partition0).Acquire()
	wantIDs(t, k, "early 5 6 7 8 9")
	wantLow(t, k, 7, 11)
	for _, x := range append(ts[5:], early) {
		must(t, k.Apply(batchAt(12, remove(x))))
	}
	must(t, s.Flush())
	if low(k) != last {
		t.Fatalf("low bound %v of an empty partition", low(k))
	}
	wantIDs(t, k, "")
	must(t, k.Apply(batchAt(13, put(ts[0], timer.Absent))))
	wantIDs(t, k, "0")
}

// A sweep takes its snapshot. Then a put is committed below the row that the sweep will find. When the
// sweep ends, the bound must not pass the put.
func TestPutDuringSweepLowersTheBound(t *testing.T) {
	b := newLowBound()
	b.put(timer.Ref{Due: 10})
	b.begin()
	// The snapshot holds a first row at 50.
	b.put(timer.Ref{Due: 20})
	b.end(timer.Ref{Due: 50})
	if got := b.with(func(timer.Ref) {}); got != (timer.Ref{Due: 20}) {
		t.Fatalf("low bound %v", got)
	}
	b.begin()
	b.end(timer.Ref{Due: 50})
	if got := b.with(func(timer.Ref) {}); got != (timer.Ref{Due: 50}) {
		t.Fatalf("low bound %v after a sweep without puts", got)
	}
}

// Many deletions raise the bound without any flush, and a scan from the very beginning does not step over them.
func TestScanPassesOverTombstones(t *testing.T) {
	runs.NotRaced(t)
	synctest.Test(t, func(t *testing.T) {
		s := memStore(t)
		defer s.Close()
		k := s.Partition(partition0).Acquire()
		const n = sweepAfter
		var puts, removals []Change
		for i := range int64(n + 1) {
			x := newTimer(fmt.Sprint(i), i, i)
			puts = append(puts, put(x, timer.Absent))
			removals = append(removals, remove(x))
		}
		must(t, k.Apply(batchAt(1, puts...)))
		must(t, k.Apply(batchAt(2, removals[:n]...)))
		synctest.Wait() // for the sweep
		wantLow(t, k, n, n)
		wantIDs(t, k, fmt.Sprint(n))
	})
}

// The store flushes by itself after each interval.
func TestPeriodicFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		o := testOptions(fs)
		o.FlushInterval = 30 * time.Second
		s := mustOpen(t, o)
		defer s.Close()
		k := s.Partition(partition0).Acquire()
		must(t, k.Apply(batchAt(1, put(newTimer("a", 1, 1), timer.Absent))))
		crashed := func() int64 {
			o := testOptions(fs.CrashClone(vfs.CrashCloneCfg{}))
			s := mustOpen(t, o)
			defer s.Close()
			return getMeta(t, s.Partition(partition0).Acquire()).Position
		}
		if p := crashed(); p != -1 {
			t.Fatalf("position %d without a flush", p)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if p := crashed(); p != 1 {
			t.Fatalf("position %d after the flush interval", p)
		}
		flushes := s.db.Metrics().Flush.Count
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := s.db.Metrics().Flush.Count; got != flushes {
			t.Fatalf("%d flushes of nothing", got-flushes)
		}
	})
}

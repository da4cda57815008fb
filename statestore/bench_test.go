package statestore

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// The workload: 200 bytes of value, half of it random, IDs of 16 random bytes,
// due at random within an hour, steps of 500.
const (
	benchStep  = 500
	benchValue = 200
)

type workload struct {
	rng   *rand.Rand
	value [1 << 16]byte
	n     int64
}

func newWorkload() *workload {
	w := &workload{rng: rand.New(rand.NewPCG(1, 2))}
	for i := 0; i < len(w.value); i += benchValue {
		for j := i; j < min(i+benchValue/2, len(w.value)); j++ {
			w.value[j] = byte(w.rng.Uint32())
		}
	}
	return w
}

func benchID(i int64) []byte {
	// A bijection: IDs look random, and it is easy to make absent ones.
	id := binary.LittleEndian.AppendUint64(nil, uint64(i)*0x9e3779b97f4a7c15)
	return binary.BigEndian.AppendUint64(id, uint64(i))
}

func (w *workload) next() *timer.Timer {
	i := w.n
	w.n++
	at := w.rng.IntN(len(w.value) - benchValue)
	return &timer.Timer{
		ID: benchID(i), Offset: i, Due: w.rng.Int64N(3_600_000), Occurrence: 1,
		Target: timer.Target{Topic: "orders", Partition: timer.AnyPartition, Key: nil},
		Value:  w.value[at : at+benchValue],
	}
}

func benchStore(b *testing.B) *Store {
	s, err := Open(Options{Dir: b.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	must(b, err)
	b.Cleanup(func() { s.Close() })
	return s
}

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report adds rates over n timers.
func report(b *testing.B, n int64, start time.Time, cpu0 time.Duration) {
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "timers/s")
	b.ReportMetric(float64((cpu()-cpu0).Nanoseconds())/float64(n)/1000, "cpu-us/timer")
}

func (w *workload) insert(b *testing.B, k *Handle, n int64) {
	changes := make([]Change, 0, benchStep)
	for i := int64(0); i < n; {
		changes = changes[:0]
		for ; len(changes) < benchStep && i < n; i++ {
			t := w.next()
			changes = append(changes, timer.ChangeOf(t.ID, timer.Absent, t))
		}
		must(b, k.Apply(&Batch{Changes: changes, Position: w.n, Changelog: changelog}))
	}
}

// One operation is one timer, except in the benchmarks of look-ups. Give
// -benchtime a number of operations, such as 2000000x.

func BenchmarkInsert(b *testing.B) {
	k := benchStore(b).Partition(partition0).Acquire()
	w := newWorkload()
	start, cpu0 := time.Now(), cpu()
	b.ResetTimer()
	w.insert(b, k, int64(b.N))
	report(b, int64(b.N), start, cpu0)
}

// BenchmarkFire scans in order and deletes the timers that it finds. After that a scan from
// the very beginning must be quick.
func BenchmarkFire(b *testing.B) {
	s := benchStore(b)
	k := s.Partition(partition0).Acquire()
	w := newWorkload()
	w.insert(b, k, int64(b.N))
	must(b, s.Flush())
	start, cpu0 := time.Now(), cpu()
	b.ResetTimer()
	from, left := timer.Ref{}, b.N
	changes := make([]Change, 0, benchStep)
	for done := false; !done; {
		changes = changes[:0]
		timers, next, all, err := k.Scan(from, last, benchStep, 8<<20)
		must(b, err)
		for _, t := range timers {
			changes = append(changes, timer.ChangeOf(t.ID, t.Ref(), nil))
		}
		from, done = next, all
		must(b, k.Apply(&Batch{Changes: changes, Position: w.n, Changelog: changelog}))
		left -= len(changes)
	}
	b.StopTimer()
	if left != 0 {
		b.Fatalf("%d timers not seen", left)
	}
	report(b, int64(b.N), start, cpu0)
	start = time.Now()
	_, _, _, err := k.Scan(timer.Ref{}, last, 1, 1<<20)
	must(b, err)
	b.ReportMetric(float64(time.Since(start).Microseconds()), "us/first-scan")
}

// BenchmarkPark parks the timers of a scan, and BenchmarkUnpark moves them
// back, both in steps of 500.
func BenchmarkPark(b *testing.B) {
	w := newWorkload()
	s := benchStore(b)
	k := s.Partition(partition0).Acquire()
	w.insert(b, k, int64(b.N))
	must(b, s.Flush())
	start, cpu0 := time.Now(), cpu()
	b.ResetTimer()
	benchPark(b, k)
	report(b, int64(b.N), start, cpu0)
}

func benchPark(b *testing.B, k *Handle) {
	from := timer.Ref{}
	for done := false; !done; {
		timers, next, all, err := k.Scan(from, last, benchStep, 8<<20)
		must(b, err)
		must(b, k.Park("orders/0", timers))
		from, done = next, all
	}
}

func BenchmarkUnpark(b *testing.B) {
	w := newWorkload()
	s := benchStore(b)
	k := s.Partition(partition0).Acquire()
	w.insert(b, k, int64(b.N))
	benchPark(b, k)
	must(b, s.Flush())
	start, cpu0 := time.Now(), cpu()
	b.ResetTimer()
	for left := b.N; left > 0; {
		ts, err := k.Unpark("orders/0", benchStep, 8<<20)
		must(b, err)
		left -= len(ts)
	}
	b.StopTimer()
	report(b, int64(b.N), start, cpu0)
	start = time.Now()
	_, err := k.Parked()
	must(b, err)
	b.ReportMetric(float64(time.Since(start).Microseconds()), "us/parked")
}

// BenchmarkApplyBesideParked inserts and fires timers of healthy targets in a
// partition that has parked ones.
func BenchmarkApplyBesideParked(b *testing.B) {
	for _, parked := range []bool{false, true} {
		b.Run(fmt.Sprint(parked), func(b *testing.B) {
			w := newWorkload()
			k := benchStore(b).Partition(partition0).Acquire()
			w.insert(b, k, 1000)
			if parked {
				benchPark(b, k)
			}
			start, cpu0 := time.Now(), cpu()
			b.ResetTimer()
			for i := 0; i < b.N; i += benchStep {
				puts, removals := make([]Change, benchStep), make([]Change, benchStep)
				for j := range puts {
					t := w.next()
					puts[j] = timer.ChangeOf(t.ID, timer.Absent, t)
					removals[j] = timer.ChangeOf(t.ID, t.Ref(), nil)
				}
				must(b, k.Apply(&Batch{Changes: puts, Position: w.n, Changelog: changelog}))
				must(b, k.Apply(&Batch{Changes: removals, Position: w.n, Changelog: changelog}))
			}
			report(b, int64(b.N), start, cpu0)
		})
	}
}

// BenchmarkLookup probes a million settled timers.
func BenchmarkLookup(b *testing.B) {
	s := benchStore(b)
	k := s.Partition(partition0).Acquire()
	w := newWorkload()
	const n = 1_000_000
	w.insert(b, k, n)
	must(b, s.Flush())
	must(b, s.db.Compact(b.Context(), k.p.prefix.key(0), k.p.prefix.key(0xff), false))
	for _, c := range []struct {
		name string
		base int64
		hit  bool
	}{{"miss", n, false}, {"hit", 0, true}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				ref, err := k.Lookup(benchID(c.base + int64(i*7919%n)))
				if err != nil || ref.IsAbsent() == c.hit {
					b.Fatal(ref, err)
				}
			}
		})
		b.Run(c.name+"/all", func(b *testing.B) {
			ids, refs := make([][]byte, benchStep), make([]timer.Ref, benchStep)
			for i := 0; i < b.N; i += benchStep {
				for j := range ids {
					ids[j] = benchID(c.base + int64((i+j)*7919%n))
				}
				must(b, k.LookupAll(ids, refs))
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.Int64N(n); pb.Next(); i++ {
					if _, err := k.Lookup(benchID(c.base + i*7919%n)); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkRestore folds timers into an empty store.
func BenchmarkRestore(b *testing.B) {
	w := newWorkload()
	benchReplay(b, benchStore(b), w, func(r *Replay, _ int64) error {
		t := w.next()
		return r.Put(t.ID, nil, t)
	})
}

// BenchmarkCatchUp folds changes of pending timers: half are replaced, and
// half are deleted.
func BenchmarkCatchUp(b *testing.B) {
	s := benchStore(b)
	w := newWorkload()
	w.insert(b, s.Partition(partition0).Acquire(), int64(b.N))
	must(b, s.Flush())
	benchReplay(b, s, w, func(r *Replay, i int64) error {
		t := w.next()
		t.ID = benchID(i)
		if i%2 == 0 {
			return r.Delete(t.ID)
		}
		return r.Put(t.ID, nil, t)
	})
}

// benchReplay takes b.N records in portions that are written as tables. If
// BATCH is set, the portions are just too small for that.
func benchReplay(b *testing.B, s *Store, w *workload, add func(r *Replay, i int64) error) {
	portion := int64(replayRecords)
	if os.Getenv("BATCH") != "" {
		portion = tableIDs - 1
	}
	k := s.Partition(partition0).Acquire()
	r, err := k.Replay(changelog, testNow)
	must(b, err)
	start, cpu0 := time.Now(), cpu()
	b.ResetTimer()
	for i := range int64(b.N) {
		must(b, add(r, i))
		if i%portion == portion-1 {
			must(b, r.Flush(w.n))
		}
	}
	must(b, r.Flush(w.n))
	b.StopTimer()
	report(b, int64(b.N), start, cpu0)
	b.ReportMetric(float64(s.level0Layers()), "level0-layers")
	benchMerged(b, s, cpu0)
}

// benchMerged waits for the compactions, and reports how long everything took.
func benchMerged(b *testing.B, s *Store, cpu0 time.Duration) {
	for quiet := 0; quiet < int(2*replayRest/compactionsCheck); quiet++ {
		await.For(b, compactionsCheck)
		if s.db.Metrics().Compact.NumInProgress > 0 {
			quiet = 0
		}
	}
	b.ReportMetric(float64((cpu()-cpu0).Nanoseconds())/float64(b.N)/1000, "merged-us/timer")
	b.ReportMetric(float64(bytesWritten(s.db.Metrics()))/float64(b.N), "B-written/timer")
}

// BenchmarkPass does with timers of eight partitions what happens to those that wait too long to stay
// in memory: a checkpoint writes them, a scan reads them in order, and a checkpoint deletes
// them.
func BenchmarkPass(b *testing.B) {
	const partitions, wrote, fired = 8, 11_000, 20_000
	s := benchStore(b)
	w := newWorkload()
	for i := range w.value {
		w.value[i] = byte(w.rng.Uint32())
	}
	var handles []*Handle
	for i := range int32(partitions) {
		handles = append(handles, s.Partition(PartitionID{Topic: partition0.Topic, Partition: i}).Acquire())
	}
	position := int64(0)
	apply := func(k *Handle, changes []Change) {
		position++
		batch := &Batch{Changes: changes, Position: position, Changelog: changelog, Checkpoint: []byte("c")}
		must(b, k.WaitForRoom(b.Context(), batch))
		must(b, k.Apply(batch))
	}
	start, cpu0 := time.Now(), cpu()
	left := make([]int, partitions)
	for i := 0; i < b.N; {
		for p, k := range handles {
			changes := make([]Change, 0, wrote)
			for ; len(changes) < wrote && i < b.N; i++ {
				t := w.next()
				changes = append(changes, timer.ChangeOf(t.ID, timer.Absent, t))
			}
			apply(k, changes)
			left[p] += len(changes)
		}
	}
	b.ReportMetric(float64((cpu()-cpu0).Nanoseconds())/float64(b.N)/1000, "write-us/timer")
	from := make([]timer.Ref, partitions)
	for more := true; more; {
		more = false
		for p, k := range handles {
			var changes []Change
			for len(changes) < fired {
				timers, next, done, err := k.Scan(from[p], last, 4096, 8<<20)
				must(b, err)
				for _, t := range timers {
					changes = append(changes, timer.ChangeOf(t.ID, t.Ref(), nil))
				}
				if from[p] = next; done {
					break
				}
			}
			if len(changes) > 0 {
				apply(k, changes)
				left[p] -= len(changes)
				more = true
			}
		}
	}
	for p, n := range left {
		if n != 0 {
			b.Fatalf("%d timers of partition %d not seen", n, p)
		}
	}
	report(b, int64(b.N), start, cpu0)
	m := s.db.Metrics()
	b.ReportMetric(float64(bytesWritten(m))/float64(b.N), "B-written/timer")
	b.ReportMetric(float64(m.Compact.Count), "compactions")
}

// BenchmarkTakeIn adds timers that are due within the day, as many at a time as a checkpoint writes.
// Each ID is looked up first. At the end it waits for the compactions.
func BenchmarkTakeIn(b *testing.B) {
	const wrote = 30_000
	s := benchStore(b)
	k := s.Partition(partition0).Acquire()
	w := newWorkload()
	for i := range w.value {
		w.value[i] = byte(w.rng.Uint32())
	}
	start, cpu0 := time.Now(), cpu()
	ids, refs := make([][]byte, benchStep), make([]timer.Ref, benchStep)
	for i := 0; i < b.N; {
		changes := make([]Change, 0, wrote)
		for ; len(changes) < wrote && i < b.N; i++ {
			t := w.next()
			t.Due = w.rng.Int64N(24 * 3_600_000)
			ids[i%benchStep] = t.ID
			if i%benchStep == benchStep-1 {
				must(b, k.LookupAll(ids, refs))
			}
			changes = append(changes, timer.ChangeOf(t.ID, timer.Absent, t))
		}
		batch := &Batch{Changes: changes, Position: w.n, Changelog: changelog, Checkpoint: []byte("c")}
		must(b, k.WaitForRoom(b.Context(), batch))
		must(b, k.Apply(batch))
	}
	report(b, int64(b.N), start, cpu0)
	benchMerged(b, s, cpu0)
}

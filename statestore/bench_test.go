package statestore

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

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
	// A bijection, so that IDs look random and absent ones are easily had.
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
	s, err := Open(Options{Dir: b.TempDir()})
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

func (w *workload) insert(b *testing.B, k *Take, n int64) {
	changes := make([]Change, 0, benchStep)
	for i := int64(0); i < n; {
		changes = changes[:0]
		for ; len(changes) < benchStep && i < n; i++ {
			t := w.next()
			changes = append(changes, Change{ID: t.ID, Before: timer.Absent, After: t})
		}
		must(b, k.Apply(&Batch{Changes: changes, Position: w.n, Changelog: changelog}))
	}
}

// A life's share of the store: insert, then scan in order and delete.
func BenchmarkInsertScanDelete(b *testing.B) {
	s := benchStore(b)
	k := s.Partition(partition0).Take()
	w := newWorkload()
	n := int64(b.N)
	b.Run("insert", func(b *testing.B) {
		start, cpu0 := time.Now(), cpu()
		w.insert(b, k, n)
		report(b, n, start, cpu0)
	})
	b.Run("scan+delete", func(b *testing.B) {
		start, cpu0 := time.Now(), cpu()
		from, left := timer.Ref{}, n
		changes := make([]Change, 0, benchStep)
		for done := false; !done; {
			changes = changes[:0]
			var err error
			from, done, err = k.Scan(from, last, benchStep, 0, func(t *timer.Timer) error {
				changes = append(changes, Change{ID: t.ID, Before: t.Ref()})
				return nil
			})
			must(b, err)
			must(b, k.Apply(&Batch{Changes: changes, Position: w.n, Changelog: changelog}))
			left -= int64(len(changes))
		}
		if left != 0 {
			b.Fatalf("%d timers not seen", left)
		}
		report(b, n, start, cpu0)
	})
	b.Run("first scan afterwards", func(b *testing.B) {
		for range b.N {
			_, _, err := k.Scan(timer.Ref{}, last, 1, 0, func(*timer.Timer) error { return nil })
			must(b, err)
		}
	})
}

// BenchmarkLookup probes a million settled timers.
func BenchmarkLookup(b *testing.B) {
	s := benchStore(b)
	k := s.Partition(partition0).Take()
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

// BenchmarkReplay restores timers: fresh ones, then as many that replace half of
// them and delete the other half; chunks as Full asks for them, and as few as a
// tail has.
func BenchmarkReplay(b *testing.B) {
	for _, chunk := range []int64{0, 3_999} {
		b.Run(fmt.Sprintf("chunk=%d", chunk), func(b *testing.B) {
			s := benchStore(b)
			k := s.Partition(partition0).Take()
			w := newWorkload()
			n := int64(b.N)
			replay := func(b *testing.B, add func(r *Replay, i int64)) {
				r, err := k.Replay(changelog)
				must(b, err)
				start, cpu0 := time.Now(), cpu()
				for i := range n {
					add(r, i)
					if chunk == 0 && r.Full() || chunk > 0 && i%chunk == chunk-1 {
						must(b, r.Flush(w.n))
					}
				}
				must(b, r.Flush(w.n))
				report(b, n, start, cpu0)
			}
			b.Run("fresh", func(b *testing.B) {
				replay(b, func(r *Replay, _ int64) {
					t := w.next()
					must(b, r.Put(t.ID, nil, t))
				})
			})
			b.Run("change", func(b *testing.B) {
				replay(b, func(r *Replay, i int64) {
					t := w.next()
					if t.ID = benchID(i); i%2 == 0 {
						must(b, r.Delete(t.ID))
					} else {
						must(b, r.Put(t.ID, nil, t))
					}
				})
			})
			m := s.Metrics()
			fmt.Fprintf(os.Stderr, "%d timers: level 0 layers %d, debt %d MB, disk %d MB, stalled %v\n",
				n, m.Level0Layers, m.CompactionDebt>>20, m.DiskBytes>>20, m.Stalled)
		})
	}
}

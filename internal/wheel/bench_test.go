package wheel

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkLife inserts timers up to a minute ahead and pops them as time
// passes, with 100 000 pending.
func BenchmarkLife(b *testing.B) {
	const pending = 100_000
	r := rand.New(rand.NewPCG(1, 2))
	w := New[int](0)
	entries := make([]Entry[int], pending)
	for i := range entries {
		entries[i].Key = Key{r.Int64N(60_000), int64(i)}
		w.Insert(&entries[i])
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; {
		now, _ := w.Next()
		w.Pop(now, 1000, func(e *Entry[int]) bool {
			e.Key.Due += 1 + r.Int64N(60_000)
			w.Insert(e)
			i++
			return true
		})
	}
}

// BenchmarkCancel inserts and removes, with nothing ever due.
func BenchmarkCancel(b *testing.B) {
	w := New[int](0)
	entries := make([]Entry[int], 10_000)
	b.ReportAllocs()
	for i := range b.N {
		e := &entries[i%len(entries)]
		w.Remove(e)
		e.Key = Key{int64(i*7919) % 3_600_000, int64(i)}
		w.Insert(e)
	}
}

// BenchmarkBurst pops 200 000 entries of one millisecond.
func BenchmarkBurst(b *testing.B) {
	const n = 200_000
	r := rand.New(rand.NewPCG(1, 2))
	for _, order := range []string{"in order", "shuffled"} {
		b.Run(order, func(b *testing.B) {
			entries := make([]Entry[int], n)
			seqs := r.Perm(n)
			for range b.N {
				w := New[int](0)
				for i := range entries {
					seq := i
					if order == "shuffled" {
						seq = seqs[i]
					}
					entries[i].Key = Key{5000, int64(seq)}
					w.Insert(&entries[i])
				}
				w.Pop(5000, n, func(*Entry[int]) bool { return true })
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
		})
	}
}

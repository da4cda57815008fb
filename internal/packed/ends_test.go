package packed

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// Every due time is one, to the ends of what there is, whatever the clock says and however
// large a record is: with an ID of 512 bytes, or of as many bytes as fit.
func TestEndsOfTime(t *testing.T) {
	dues := []int64{math.MinInt64, math.MinInt64 + 1, math.MinInt64 + 64, -1 << 40, -1, 0, 1, 63, 64, 1 << 40, math.MaxInt64 - 64, math.MaxInt64 - 1, math.MaxInt64}
	for _, grain := range []uint{0, 6} {
		for _, now := range []int64{math.MinInt64, -5, 0, 1 << 50, math.MaxInt64} {
			var x Index
			w := New(&x, 3, now, grain)
			fill := func(now int64) (want []int64) {
				for i, due := range dues {
					id := fmt.Sprint(i)
					if i%2 == 0 {
						id = fmt.Sprintf("%0512d", i)
					}
					r := waits(id, due, 0)
					if i%3 == 0 {
						r = waits(id, due, MaxBytes-len(r.Bytes)-3)
					}
					if w.Add(r, x.Sum([]byte(id))) {
						want = append(want, due)
					} else if due>>grain > now>>grain {
						t.Fatalf("grain %d, at %d: what is due at %d is refused", grain, now, due)
					}
				}
				return want
			}
			gone := func(r Record) { x.Delete(x.Sum(r.ID())) }
			want := fill(now)
			for n := len(want); n > 0; n-- { // one after the other, from the far end
				k := w.Farthest(1)
				if k.Due != want[n-1] {
					t.Fatalf("grain %d, at %d: the farthest is due at %d, want %d", grain, now, k.Due, want[n-1])
				}
				w.EvictFrom(k, gone)
			}
			w.Lower(math.MinInt64)
			want = fill(math.MinInt64 + 1<<18)
			var got []int64
			for i := range want {
				if due, ok := w.Next(); !ok || due > want[i] {
					t.Fatalf("grain %d, at %d: next is %d, %v; want %d at most", grain, now, due, ok, want[i])
				}
				if _, ok := w.First(want[i] - 1); ok && want[i] != math.MinInt64 {
					t.Fatalf("grain %d, at %d: what is due at %d is given out before", grain, now, want[i])
				}
				k, ok := w.First(want[i])
				if !ok {
					t.Fatalf("grain %d, at %d: what is due at %d is not given out", grain, now, want[i])
				}
				got = append(got, k.Due)
				gone(w.Pop())
			}
			if !slices.Equal(got, want) || w.Len() != 0 || x.Len() != 0 {
				t.Errorf("grain %d, at %d: %v, %d left; want %v", grain, now, got, w.Len(), want)
			}
		}
	}
}

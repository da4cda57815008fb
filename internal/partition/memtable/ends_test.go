package memtable

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// Every due time works, up to the limits of the type, whatever the clock says and however
// large a record is: with an ID of 512 bytes, or of as many bytes as fit.
func TestEndsOfTime(t *testing.T) {
	dues := []int64{math.MinInt64, math.MinInt64 + 1, math.MinInt64 + 64, -1 << 40, -1, 0, 1, 63, 64, 1 << 40,
		math.MaxInt64 - 64, math.MaxInt64 - 1, math.MaxInt64}
	for _, grain := range []uint{0, 6} {
		for _, now := range []int64{math.MinInt64, -5, 0, 1 << 50, math.MaxInt64} {
			table := New(now, grain)
			fill := func(now int64) {
				for i, due := range dues {
					id := fmt.Sprint(i)
					if i%2 == 0 {
						id = fmt.Sprintf("%0512d", i)
					}
					b := waits(id, due, 0)
					if i%3 == 0 {
						b = waits(id, due, MaxBytes-len(b)-3)
					}
					if table.AddStored(b) {
						continue
					}
					if due>>grain > now>>grain {
						t.Fatalf("grain %d, at %d: what is due at %d is refused", grain, now, due)
					}
					table.Put(table.AddObject(id), Soon, timer.Ref{Due: due})
				}
			}
			forget := func(number int32) { table.Forget(number) }
			fill(now)
			for n := len(dues); n > 0; n-- { // one after the other, starting with the latest
				k := table.Farthest(1)
				if k.Due != dues[n-1] {
					t.Fatalf("grain %d, at %d: the farthest is due at %d, want %d", grain, now, k.Due, dues[n-1])
				}
				table.Evict(k, forget)
			}
			table.SetBack(math.MinInt64)
			fill(math.MinInt64 + 1<<18)
			var got []int64
			for _, want := range dues {
				if due, ok := table.Next(); !ok || due > want {
					t.Fatalf("grain %d, at %d: next is %d, %v; want %d at most", grain, now, due, ok, want)
				}
				if _, ok := table.First(want - 1); ok && want != math.MinInt64 {
					t.Fatalf("grain %d, at %d: what is due at %d is given out before", grain, now, want)
				}
				k, ok := table.First(want)
				if !ok {
					t.Fatalf("grain %d, at %d: what is due at %d is not given out", grain, now, want)
				}
				got = append(got, k.Due)
				at := table.Pop(want)
				number := at.Number()
				if at.Kind() != Object {
					number, _, _ = table.Decode(at, true)
				}
				forget(number)
			}
			if !slices.Equal(got, dues) || table.Stats().IDs != 0 {
				t.Errorf("grain %d, at %d: %v, %d left; want %v", grain, now, got, table.Stats().IDs, dues)
			}
		}
	}
}

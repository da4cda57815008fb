package packed

import (
	"testing"

	"pgregory.net/rapid"
)

// An index says what a map does, however many sums want the same cell.
func TestIndexAgainstModel(t *testing.T) {
	shrunk, wrapped := false, false
	rapid.Check(t, func(t *rapid.T) {
		x, want := new(Index), map[uint64]Ref{}
		// Sums that end alike want one cell; some of them the last one.
		end := rapid.SampledFrom([]uint64{0, 1, minCells - 1, 4*minCells - 1, 64*minCells - 1})
		sum := rapid.Custom(func(t *rapid.T) uint64 {
			return rapid.Uint64Range(0, 40).Draw(t, "begin")<<32 | end.Draw(t, "end")
		})
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if x.Len() != len(want) {
					t.Fatalf("%d sums, want %d", x.Len(), len(want))
				}
				for s, at := range want {
					if got := x.Get(s); got != at {
						t.Fatalf("%x is at %x, want %x", s, got, at)
					}
				}
				wrapped = wrapped || len(x.cells) > 0 && x.cells[0].at != 0 && x.cells[0].sum&uint64(len(x.cells)-1) != 0
			},
			"set": func(t *rapid.T) {
				s := sum.Draw(t, "sum")
				want[s] = RefOf(rapid.IntRange(1, 3).Draw(t, "kind"), rapid.Uint64Range(0, 1<<placeBits-1).Draw(t, "place"))
				x.Set(s, want[s])
			},
			"set many": func(t *rapid.T) {
				for i := range uint64(1500) {
					want[i*7] = RefOf(1, i)
					x.Set(i*7, want[i*7])
				}
			},
			"delete": func(t *rapid.T) {
				s := sum.Draw(t, "sum")
				delete(want, s)
				x.Delete(s)
			},
			"delete many": func(t *rapid.T) {
				cells := len(x.cells)
				for i := range uint64(1500) {
					delete(want, i*7)
					x.Delete(i * 7)
				}
				shrunk = shrunk || len(x.cells) < cells
			},
			"ask": func(t *rapid.T) {
				if s := sum.Draw(t, "sum"); x.Get(s) != want[s] {
					t.Fatalf("%x is at %x, want %x", s, x.Get(s), want[s])
				}
			},
		})
	})
	if !shrunk || !wrapped {
		t.Errorf("the table became smaller: %v; a sum had its place behind the end: %v", shrunk, wrapped)
	}
}

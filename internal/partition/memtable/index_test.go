package memtable

import (
	"testing"

	"pgregory.net/rapid"
)

// An index agrees with a map, however many sums want the same cell, and however many places a sum has.
func TestIndexAgainstModel(t *testing.T) {
	shrunk, wrapped, alike := false, false, false
	rapid.Check(t, func(t *rapid.T) {
		x, want := new(index), map[Ref]uint64{}
		// Sums with the same end want the same cell; some of them want the last one.
		end := rapid.SampledFrom([]uint64{0, 1, minCells - 1, 4*minCells - 1, 64*minCells - 1})
		sum := rapid.Custom(func(t *rapid.T) uint64 {
			return rapid.Uint64Range(0, 40).Draw(t, "begin")<<32 | end.Draw(t, "end")
		})
		ref := rapid.Custom(func(t *rapid.T) Ref {
			return refOf(rapid.SampledFrom([]Kind{Object, Soon, Tombstone}).Draw(t, "kind"), 0,
				place(rapid.Uint64Range(0, 50).Draw(t, "place")))
		})
		at := func(sum uint64, at Ref) Ref { return x.find(sum, func(r Ref) bool { return r == at }) }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if x.n != len(want) {
					t.Fatalf("%d are known, want %d", x.n, len(want))
				}
				sums := map[uint64]bool{}
				for r, s := range want {
					if got := at(s, r); got != r {
						t.Fatalf("%x is at %x, want %x", s, got, r)
					}
					alike = alike || sums[s]
					sums[s] = true
				}
				wrapped = wrapped ||
					len(x.cells) > 0 && x.cells[0].at != 0 && x.cells[0].sum&uint64(len(x.cells)-1) != 0
			},
			"add": func(t *rapid.T) {
				s, r := sum.Draw(t, "sum"), ref.Draw(t, "at")
				if want[r] != 0 || s == 0 {
					t.Skip("it is there")
				}
				want[r] = s
				x.add(s, r)
			},
			"move": func(t *rapid.T) {
				from, to := ref.Draw(t, "from"), ref.Draw(t, "to")
				if want[from] == 0 || want[to] != 0 {
					t.Skip("it cannot move")
				}
				x.move(want[from], from, to)
				want[to] = want[from]
				delete(want, from)
			},
			"add many": func(t *rapid.T) {
				for i := range uint64(1500) {
					if r := refOf(Later, 0, place(i)); want[r] == 0 {
						want[r] = i*7 + 1
						x.add(want[r], r)
					}
				}
			},
			"remove": func(t *rapid.T) {
				r := ref.Draw(t, "at")
				if want[r] == 0 {
					t.Skip("it is not there")
				}
				x.remove(want[r], r)
				delete(want, r)
			},
			"remove many": func(t *rapid.T) {
				cells := len(x.cells)
				for i := range uint64(1500) {
					if r := refOf(Later, 0, place(i)); want[r] != 0 {
						x.remove(want[r], r)
						delete(want, r)
					}
				}
				shrunk = shrunk || len(x.cells) < cells
			},
			"ask": func(t *rapid.T) {
				s, r := sum.Draw(t, "sum"), ref.Draw(t, "at")
				if found := at(s, r) == r; found != (want[r] == s && s != 0) {
					t.Fatalf("%x is at %x: %v", s, r, found)
				}
			},
		})
	})
	if (!shrunk || !wrapped || !alike) && !testing.Short() { // short runs are a fifth as many
		t.Errorf("the table became smaller: %v; a sum had its place behind the end: %v; or two: %v", shrunk,
			wrapped, alike)
	}
}

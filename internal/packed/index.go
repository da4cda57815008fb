package packed

import "hash/maphash"

// Index tells of IDs, by their sums, where something is. It is a table of open addressing,
// written for this: of the sums nothing needs to be hashed again, and what changes most, where
// something is, is changed in place. The zero value is empty.
//
// What an ID stands for has to be looked at where it is: one in 2^64 has the sum of another.
type Index struct {
	// Blind are bits of the sums that do not count, so that IDs have the same: for tests.
	Blind uint64

	cells []cell // as many as a power of two
	n     int
}

// cell is empty if it refers to nothing.
type cell struct {
	sum uint64
	at  Ref
}

// Ref says where something is: what RefOf made. The zero value is nowhere.
type Ref uint64

const (
	kindBits  = 3
	placeBits = 64 - kindBits
	minCells  = 64
)

// RefOf is a place, of fewer than 61 bits, of a kind from 1 to 7.
func RefOf(kind int, place uint64) Ref { return Ref(kind)<<placeBits | Ref(place) }

// Kind is the kind of the place, 0 for nowhere.
func (r Ref) Kind() int { return int(r >> placeBits) }

// Place is the place.
func (r Ref) Place() uint64 { return uint64(r) & (1<<placeBits - 1) }

// seed is that of all sums.
var seed = maphash.MakeSeed()

// Sum is that of an ID. It is another one in each process.
func (x *Index) Sum(id []byte) uint64 { return maphash.Bytes(seed, id) &^ x.Blind }

// Len is how many sums there are.
func (x *Index) Len() int { return x.n }

// find returns which cell is that of a sum, or the empty one where it would be.
func (x *Index) find(sum uint64) (i uint64) {
	mask := uint64(len(x.cells) - 1)
	for i = sum & mask; x.cells[i].sum != sum && x.cells[i].at != 0; i = (i + 1) & mask {
	}
	return i
}

// Get returns where something of a sum is, 0 for nowhere.
func (x *Index) Get(sum uint64) Ref {
	if x.n == 0 {
		return 0
	}
	return x.cells[x.find(sum)].at
}

// Set says where something of a sum is: somewhere.
func (x *Index) Set(sum uint64, at Ref) {
	if x.n >= len(x.cells)/4*3 {
		x.resize(max(minCells, 2*len(x.cells)))
	}
	i := x.find(sum)
	if x.cells[i].at == 0 {
		x.n++
	}
	x.cells[i] = cell{sum, at}
}

// Delete forgets a sum.
func (x *Index) Delete(sum uint64) {
	if x.n == 0 {
		return
	}
	gap := x.find(sum)
	if x.cells[gap].at == 0 {
		return
	}
	x.cells[gap] = cell{}
	x.n--
	// What lies behind it, up to the next empty cell, may have been put there because its own
	// was taken: it moves to the gap, unless its own lies behind that.
	mask := uint64(len(x.cells) - 1)
	for i := (gap + 1) & mask; x.cells[i].at != 0; i = (i + 1) & mask {
		if (i-x.cells[i].sum)&mask >= (i-gap)&mask {
			x.cells[gap], x.cells[i] = x.cells[i], cell{}
			gap = i
		}
	}
	if len(x.cells) > minCells && x.n < len(x.cells)/16 {
		x.resize(len(x.cells) / 4)
	}
}

func (x *Index) resize(n int) {
	old := x.cells
	x.cells = make([]cell, n)
	for _, c := range old {
		if c.at != 0 {
			x.cells[x.find(c.sum)] = c
		}
	}
}

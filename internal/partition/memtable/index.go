package memtable

// index finds a record or an object by the sum of its ID. It is a hash table with open addressing. It is not a map,
// because sums need no second hash, and because places change most often and are changed in place here. Several IDs may
// have the same sum, so the caller of find compares the IDs. The zero value is empty.
type index struct {
	cells []cell // their number is a power of two
	n     int
}

// cell is empty if it refers to nothing.
type cell struct {
	sum uint64
	at  Ref
}

const minCells = 64

// find returns the Ref with a sum for which fits is true, 0 if there is none.
func (x *index) find(sum uint64, fits func(Ref) bool) Ref {
	if x.n == 0 {
		return 0
	}
	mask := uint64(len(x.cells) - 1)
	for i := sum & mask; x.cells[i].at != 0; i = (i + 1) & mask {
		if x.cells[i].sum == sum && fits(x.cells[i].at) {
			return x.cells[i].at
		}
	}
	return 0
}

// cell returns the number of the cell for a sum and a place. There must be one.
func (x *index) cell(sum uint64, at Ref) (i uint64) {
	mask := uint64(len(x.cells) - 1)
	for i = sum & mask; x.cells[i].at != at || x.cells[i].sum != sum; i = (i + 1) & mask {
		if x.cells[i].at == 0 {
			panic("memtable: the index does not have what it should")
		}
	}
	return i
}

// add notes where something new is.
func (x *index) add(sum uint64, at Ref) {
	if x.n >= len(x.cells)/4*3 {
		x.resize(max(minCells, 2*len(x.cells)))
	}
	x.n++
	x.put(cell{sum, at})
}

func (x *index) put(c cell) {
	mask := uint64(len(x.cells) - 1)
	i := c.sum & mask
	for x.cells[i].at != 0 {
		i = (i + 1) & mask
	}
	x.cells[i] = c
}

// move notes where something is now.
func (x *index) move(sum uint64, from, to Ref) { x.cells[x.cell(sum, from)].at = to }

// remove forgets an entry.
func (x *index) remove(sum uint64, at Ref) {
	gap := x.cell(sum, at)
	x.cells[gap] = cell{}
	x.n--
	// A cell behind it, up to the next empty one, may be there because its own place was taken. It moves to the gap,
	// unless its own place lies behind that.
	mask := uint64(len(x.cells) - 1)
	for i := (gap + 1) & mask; x.cells[i].at != 0; i = (i + 1) & mask {
		if (i-x.cells[i].sum)&mask >= (i-gap)&mask {
			x.cells[gap], x.cells[i] = x.cells[i], cell{}
			gap = i
		}
	}
	if len(x.cells) > minCells && x.n < len(x.cells)/16*3 {
		x.resize(len(x.cells) / 2)
	}
}

func (x *index) resize(n int) {
	old := x.cells
	x.cells = make([]cell, n)
	for _, c := range old {
		if c.at != 0 {
			x.put(c)
		}
	}
}

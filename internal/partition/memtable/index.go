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
func (in *index) find(sum uint64, fits func(Ref) bool) Ref {
	if in.n == 0 {
		return 0
	}
	mask := uint64(len(in.cells) - 1)
	for i := sum & mask; in.cells[i].at != 0; i = (i + 1) & mask {
		if in.cells[i].sum == sum && fits(in.cells[i].at) {
			return in.cells[i].at
		}
	}
	return 0
}

// cell returns the number of the cell for a sum and a place. There must be one.
func (in *index) cell(sum uint64, at Ref) (i uint64) {
	mask := uint64(len(in.cells) - 1)
	for i = sum & mask; in.cells[i].at != at || in.cells[i].sum != sum; i = (i + 1) & mask {
		if in.cells[i].at == 0 {
			panic("memtable: the index does not have what it should")
		}
	}
	return i
}

// add notes where something new is.
func (in *index) add(sum uint64, at Ref) {
	if in.n >= len(in.cells)/4*3 {
		in.resize(max(minCells, 2*len(in.cells)))
	}
	in.n++
	in.put(cell{sum, at})
}

func (in *index) put(c cell) {
	mask := uint64(len(in.cells) - 1)
	i := c.sum & mask
	for in.cells[i].at != 0 {
		i = (i + 1) & mask
	}
	in.cells[i] = c
}

// move notes where something is now.
func (in *index) move(sum uint64, from, to Ref) { in.cells[in.cell(sum, from)].at = to }

// remove forgets an entry.
func (in *index) remove(sum uint64, at Ref) {
	gap := in.cell(sum, at)
	in.cells[gap] = cell{}
	in.n--
	// A cell behind it, up to the next empty one, may be there because its own place was taken. It moves to the gap,
	// unless its own place lies behind that.
	mask := uint64(len(in.cells) - 1)
	for i := (gap + 1) & mask; in.cells[i].at != 0; i = (i + 1) & mask {
		if (i-in.cells[i].sum)&mask >= (i-gap)&mask {
			in.cells[gap], in.cells[i] = in.cells[i], cell{}
			gap = i
		}
	}
	if len(in.cells) > minCells && in.n < len(in.cells)/16*3 {
		in.resize(len(in.cells) / 2)
	}
}

func (in *index) resize(n int) {
	old := in.cells
	in.cells = make([]cell, n)
	for _, c := range old {
		if c.at != 0 {
			in.put(c)
		}
	}
}

package memtable

import "hash/maphash"

// index finds a record or an object by the sum of its ID. It is a table of open addressing, written for this:
// sums need no second hash, and where something is, which changes most, is changed in place. Several IDs may
// have one sum, so the caller of find compares the IDs. The zero value is empty.
type index struct {
	cells []cell // as many as a power of two
	n     int
}

// cell is empty if it refers to nothing.
type cell struct {
	sum uint64
	at  Ref
}

// Ref says where something is. The zero value is nowhere. It holds until something of the table changes.
type Ref uint64

// Kind is what a Ref refers to.
type Kind int

const (
	// None: nothing is known of the ID.
	None Kind = iota
	// Object: the ID has an object.
	Object
	// Soon is a record, or a reference to an object, below the horizon.
	Soon
	// Later is the same above the horizon.
	Later
	// Tombstone: nothing is pending, and the store has something.
	Tombstone
)

const (
	kindBits  = 3
	placeBits = 64 - kindBits
	minCells  = 64
)

func refOf(kind Kind, p place) Ref { return Ref(kind)<<placeBits | Ref(p) }

// Kind is what there is.
func (r Ref) Kind() Kind { return Kind(r >> placeBits) }

// Number is that of the object.
func (r Ref) Number() int32 { return int32(r.place()) }

func (r Ref) place() place { return place(r & (1<<placeBits - 1)) }

// seed is that of all sums. They are other ones in each process.
var seed = maphash.MakeSeed()

// find returns where something is of a sum that fits, 0 for nowhere.
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

// cell returns which cell says that something of a sum is at a place. There is one.
func (x *index) cell(sum uint64, at Ref) (i uint64) {
	mask := uint64(len(x.cells) - 1)
	for i = sum & mask; x.cells[i].at != at || x.cells[i].sum != sum; i = (i + 1) & mask {
		if x.cells[i].at == 0 {
			panic("memtable: the index does not have what it should")
		}
	}
	return i
}

// add says where something of a sum is that was nowhere.
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

// move says where something is now.
func (x *index) move(sum uint64, from, to Ref) { x.cells[x.cell(sum, from)].at = to }

// remove forgets something.
func (x *index) remove(sum uint64, at Ref) {
	gap := x.cell(sum, at)
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

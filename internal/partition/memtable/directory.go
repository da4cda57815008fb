package memtable

import "hash/maphash"

// Ref is the place of something in the table. The zero value means nowhere. A Ref is valid until the table changes.
type Ref uint64

// Kind is the kind of thing that a Ref refers to.
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

// A Ref has a kind, the number of the layer if it is in one, and a place or the number of an object.
const (
	placeBits = 60
	kindAt    = placeBits + 1
)

func refOf(kind Kind, layer int, p place) Ref {
	return Ref(kind)<<kindAt | Ref(layer)<<placeBits | Ref(p)
}

func objectAt(number int32) Ref { return refOf(Object, 0, place(number)) }

// Kind returns the kind of thing that r refers to.
func (r Ref) Kind() Kind { return Kind(r >> kindAt) }

// Number returns the number of the object.
func (r Ref) Number() int32 { return int32(r.place()) }

func (r Ref) layer() int { return int(r >> placeBits & 1) }

func (r Ref) place() place { return place(r & (1<<placeBits - 1)) }

// directory maps the hash sum of an ID to its place in the table. Each layer has an index of its own, which is
// forgotten with the layer.
type directory struct {
	rest   index // of objects and of soon records
	layers [2]index
}

// hash makes sums of IDs.
type hash struct {
	// Blind has the bits of sums that are ignored. Tests set it to make IDs have the same sum.
	Blind uint64
}

// seed is for all sums of this process. Each process has its own.
var seed = maphash.MakeSeed()

func (h *hash) sum(id []byte) uint64 { return maphash.Bytes(seed, id) &^ h.Blind }

// sumOf is sum without a copy of the ID.
func (h *hash) sumOf(id string) uint64 { return maphash.String(seed, id) &^ h.Blind }

// of returns the index for a place.
func (d *directory) of(at Ref) *index {
	if at.Kind() >= Later {
		return &d.layers[at.layer()]
	}
	return &d.rest
}

// find returns the Ref with a sum for which fits is true, 0 if there is none.
func (d *directory) find(sum uint64, fits func(Ref) bool) Ref {
	for _, x := range [3]*index{&d.rest, &d.layers[0], &d.layers[1]} {
		if at := x.find(sum, fits); at != 0 {
			return at
		}
	}
	return 0
}

func (d *directory) add(sum uint64, at Ref) { d.of(at).add(sum, at) }

func (d *directory) remove(sum uint64, at Ref) { d.of(at).remove(sum, at) }

// move notes where something is now.
func (d *directory) move(sum uint64, from, to Ref) {
	x, y := d.of(from), d.of(to)
	if x == y {
		x.move(sum, from, to)
		return
	}
	x.remove(sum, from)
	y.add(sum, to)
}

// drop forgets everything that is in a layer.
func (d *directory) drop(layer int) { d.layers[layer] = index{} }

func (d *directory) len() int { return d.rest.n + d.layers[0].n + d.layers[1].n }

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

// leastReleased is how many objects are released at least between two calls of shrink, which looks at every number.
const leastReleased = 1000

// objects is the objects of a table, by number.
type objects struct {
	all      []object
	free     []int32
	released int // since shrink
}

// object is the table's entry for an object. If it has no ID, its number is free.
type object struct {
	id  string
	sum uint64
	at  Ref // of its reference; 0 if the object is not in the order of firing
}

func (o *objects) len() int { return len(o.all) - len(o.free) }

// add adds an object, which is not in the order of firing.
func (o *objects) add(id string, sum uint64) (number int32) {
	if last := len(o.free) - 1; last >= 0 {
		number, o.free = o.free[last], o.free[:last]
	} else {
		number, o.all = int32(len(o.all)), append(o.all, object{})
	}
	o.all[number] = object{id: id, sum: sum}
	return number
}

// release frees the number of an object.
func (o *objects) release(number int32) {
	o.all[number], o.free = object{}, append(o.free, number)
	if o.released++; len(o.free) == len(o.all) ||
		o.released > max(leastReleased, len(o.all)/2) && len(o.free) > len(o.all)/4*3 {
		o.shrink()
	}
}

// shrink gives back the memory of the numbers above the highest one in use. The lowest free numbers are used next, so
// higher numbers in use become free in time.
func (o *objects) shrink() {
	n := len(o.all)
	for n > 0 && o.all[n-1].id == "" {
		n--
	}
	o.all, o.free, o.released = append([]object(nil), o.all[:n]...), nil, 0
	for number := n - 1; number >= 0; number-- {
		if o.all[number].id == "" {
			o.free = append(o.free, int32(number))
		}
	}
}

package memtable

import "hash/maphash"

// Ref says where the table keeps something. The zero value means nowhere. A Ref is valid until the table changes.
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

// directory maps the hash sum of an ID to where the table keeps it. Each layer has an index of its own, which is
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

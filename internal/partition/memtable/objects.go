package memtable

// leastReleased is how many objects are released at least between two calls of shrink, which looks at every number.
const leastReleased = 1000

// objects is the objects of a table, by number.
type objects struct {
	all      []object
	free     []int32
	released int // since shrink
}

// object is what the table knows of an object. If it has no ID, its number is free.
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
	if o.released++; len(o.free) == len(o.all) || o.released > max(leastReleased, len(o.all)/2) && len(o.free) > len(
		o.all)/4*3 {
		o.shrink()
	}
}

// shrink gives back the memory of the numbers above the highest one in use. The lowest free numbers are used next, so
// what is in use above them becomes free in time.
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

package planner

import (
	"bytes"

	"github.com/waterclock/waterclock/internal/packed"
	"github.com/waterclock/waterclock/internal/timer"
)

// Kinds of what the index refers to.
const (
	kindItem = iota + 1
	kindPacked
	kindBeyond
	kindGone
)

// ids is what is known, by ID: an item, or a packed record, or that it is gone. What is not
// here is in the store as it is, or nowhere.
type ids struct {
	index packed.Index
	items []*Item // by number; nil: the number is free
	free  []int32
	// twins are the items of IDs of which another, known too, has the sum: one in 2^64.
	twins map[string]*Item
	n     int // items
	// spare are items that are free: a timer has one until its step is folded, and one when
	// it fires.
	spare []*Item
}

// maxSpare is how many items are kept for that.
const maxSpare = 4096

// newItem makes an item of an ID of which nothing is known.
func (p *Planner) newItem(id string, ref timer.Ref, t *timer.Timer) *Item {
	it := p.ids.item(id, ref, t)
	p.ids.add(it, p.ids.index.Get(it.sum) != 0)
	return it
}

// item is an item that is not added yet.
func (s *ids) item(id string, ref timer.Ref, t *timer.Timer) (it *Item) {
	if last := len(s.spare) - 1; last >= 0 {
		it, s.spare = s.spare[last], s.spare[:last]
	} else {
		it = new(Item)
	}
	it.id, it.sum, it.ref, it.timer = id, s.index.Sum([]byte(id)), ref, t
	it.slot.Value = it
	return it
}

// add adds an item, in the place of the packed record of its ID if there is one, or as a twin.
func (s *ids) add(it *Item, twin bool) {
	s.n++
	if twin {
		if s.twins == nil {
			s.twins = make(map[string]*Item)
		}
		it.number, s.twins[it.id] = -1, it
		return
	}
	if last := len(s.free) - 1; last >= 0 {
		it.number, s.free = s.free[last], s.free[:last]
		s.items[it.number] = it
	} else {
		it.number, s.items = int32(len(s.items)), append(s.items, it)
	}
	s.index.Set(it.sum, packed.RefOf(kindItem, uint64(it.number)))
}

// forget forgets an item, and its ID.
func (p *Planner) forget(it *Item) {
	if it.number >= 0 {
		p.ids.index.Delete(it.sum)
	}
	p.retire(it)
}

// retire forgets an item, whose ID refers to something else. It is used again, unless an
// overlay may look at it: nobody else does, for no entry of it is left that is not folded, no
// batch and no checkpoint that knows it, and who parks looks at the timer too.
func (p *Planner) retire(it *Item) {
	p.ids.remove(it)
	if p.notes == nil && len(p.ids.spare) < maxSpare {
		*it = Item{}
		p.ids.spare = append(p.ids.spare, it)
	}
}

func (s *ids) remove(it *Item) {
	s.n--
	switch {
	case it.number < 0:
		delete(s.twins, it.id)
	case s.n == len(s.twins): // not to hold on to what was long once
		s.items, s.free, s.spare = nil, nil, nil
	default:
		s.items[it.number], s.free = nil, append(s.free, it.number)
	}
}

// lookup returns what is known of an ID: an item; or a record that is packed, without bytes if
// nothing is pending, and where; or nothing.
func (p *Planner) lookup(id []byte) (it *Item, r packed.Record, at packed.Ref) {
	s := &p.ids
	switch at = s.index.Get(s.index.Sum(id)); at.Kind() {
	case kindItem:
		if it = s.items[at.Place()]; it.id == string(id) {
			return it, r, 0
		}
	case kindPacked, kindBeyond:
		if r = p.packedIn(at).At(at); bytes.Equal(r.ID(), id) {
			return nil, r, at
		}
	case kindGone:
		var gone []byte
		if gone, r.Stored, r.State = p.gone.At(at); bytes.Equal(gone, id) {
			return nil, r, at
		}
	}
	return s.twins[string(id)], packed.Record{}, 0
}

// packedIn is the wheel that a record is in.
func (p *Planner) packedIn(at packed.Ref) *packed.Wheel {
	if at.Kind() == kindPacked {
		return p.packed
	}
	return p.packedBeyond
}

// knows reports whether something is known of an ID.
func (p *Planner) knows(id []byte) bool {
	it, _, at := p.lookup(id)
	return it != nil || at != 0
}

// find returns the item of an ID, nil if nothing is known of it: one that is packed has one
// again.
func (p *Planner) find(id []byte) *Item {
	it, _, at := p.lookup(id)
	if at == 0 {
		return it
	}
	if at.Kind() == kindGone {
		return p.unpackGone(p.gone.Take(at))
	}
	r := p.packedIn(at).Take(at)
	r.Bytes = bytes.Clone(r.Bytes) // what is around it may go
	it = p.unpack(r)
	if at.Kind() == kindPacked {
		p.insert(it)
	} else {
		p.postpone(it)
	}
	return it
}

package memtable

import "math/bits"

const (
	slotBits = 6
	slots    = 1 << slotBits
	levels   = (64 + slotBits - 1) / slotBits
)

// place is where a record begins: level, slot, chunk and offset.
type place uint64

const (
	offsetBits = 16
	chunkBits  = 32
	slotAt     = offsetBits + chunkBits
	levelAt    = slotAt + slotBits
)

func placeOf(level, slot, chunk, offset int) place {
	return place(level)<<levelAt | place(slot)<<slotAt | place(chunk)<<offsetBits | place(offset)
}

func (p place) split() (level, slot, chunk, offset int) {
	return int(p >> levelAt), int(p >> slotAt & (slots - 1)), int(p >> offsetBits & (1<<chunkBits - 1)),
		int(p & (1<<offsetBits - 1))
}

// slotted has records in the slots of a timing wheel.
//
// Invariant: a record whose tick is after taken lies in the slot named by the highest digit (of slotBits bits) in
// which the two differ: the level is the digit's place, the slot its value. All others lie in the open slot, that
// of taken at the finest level, which is not occupied.
type slotted struct {
	grain uint   // a tick has 1<<grain ms
	taken uint64 // the last tick whose slot was opened, or passed over

	occupied [levels]uint64 // bit s: slot s of the level has a record
	buckets  [levels]*[slots]bucket
}

func (s *slotted) tick(ms int64) uint64 { return (uint64(ms) ^ 1<<63) >> s.grain }

// isOpen reports whether the slot of an instant is, or was, open.
func (s *slotted) isOpen(due int64) bool { return s.tick(due) <= s.taken }

// open returns the slot that is open.
func (s *slotted) open() int { return int(s.taken & (slots - 1)) }

// append adds a copy of a record to its slot.
func (s *slotted) append(r *Record, tick uint64) place {
	level, slot := 0, s.open()
	if tick > s.taken {
		level = (63 - bits.LeadingZeros64(tick^s.taken)) / slotBits
		slot = int(tick>>(level*slotBits)) & (slots - 1)
		s.occupied[level] |= 1 << slot
	}
	if s.buckets[level] == nil {
		s.buckets[level] = new([slots]bucket)
	}
	c, offset := s.buckets[level][slot].append(r)
	return placeOf(level, slot, c, offset)
}

// at returns the record at a place.
func (s *slotted) at(p place) Record {
	level, slot, c, offset := p.split()
	return s.buckets[level][slot].at(c, offset)
}

func (s *slotted) isAlive(p place) bool {
	level, slot, c, offset := p.split()
	return s.buckets[level][slot].isAlive(c, offset)
}

// first returns the earliest slot that is occupied.
func (s *slotted) first() (level, slot int, ok bool) {
	for level, mask := range s.occupied {
		if mask != 0 {
			return level, bits.TrailingZeros64(mask), true
		}
	}
	return 0, 0, false
}

// start returns the first tick that belongs to a slot: the digits of taken
// above the level, then the slot's number, then zeros.
func (s *slotted) start(level, slot int) uint64 {
	shift := level * slotBits
	above := s.taken >> shift >> slotBits << slotBits << shift
	return above | uint64(slot)<<shift
}

// backward returns the slots that are occupied, the latest one first.
func (s *slotted) backward(yield func(level, slot int) bool) {
	for level := levels - 1; level >= 0; level-- {
		for mask := s.occupied[level]; mask != 0; {
			slot := 63 - bits.LeadingZeros64(mask)
			mask &^= 1 << slot
			if !yield(level, slot) {
				return
			}
		}
	}
}

// each calls fn with each record of a slot. fn may take it out.
func (s *slotted) each(level, slot int, fn func(*Record, place)) {
	s.buckets[level][slot].each(func(r *Record, i, offset int) { fn(r, placeOf(level, slot, i, offset)) })
}

// eachMarked calls fn with each record that is dirty or being flushed.
func (s *slotted) eachMarked(fn func(*Record, place)) {
	for level, all := range s.buckets {
		if all == nil {
			continue
		}
		for slot := range all {
			all[slot].eachMarked(func(r *Record, i, offset int) { fn(r, placeOf(level, slot, i, offset)) })
		}
	}
}

// share appends to a list the chunks with a record that is dirty or being flushed.
func (s *slotted) share(list []Chunk, as Chunk) []Chunk {
	for _, all := range s.buckets {
		if all == nil {
			continue
		}
		for slot := range all {
			list = all[slot].share(list, as)
		}
	}
	return list
}

package statestore

import "hash/maphash"

// seenWords is the size of a seen in words: 8 MB, which answers with a false yes
// for 1 in 30 at 6 million IDs and for nearly all at 60 million.
const seenWords = 1 << 20

// seen remembers which IDs a replay has stored, or a few more: a Bloom filter
// whose bits of one ID lie in one word. A replay of an empty partition would
// look up every ID in tables that it wrote itself, a microsecond each, mostly to
// find nothing.
type seen struct {
	seed  maphash.Seed
	words []uint64
}

func newSeen() *seen { return &seen{maphash.MakeSeed(), make([]uint64, seenWords)} }

func (s *seen) add(id []byte) {
	word, bits := s.bitOf(id)
	*word |= bits
}

// maybe is false only for an ID that was never added.
func (s *seen) maybe(id []byte) bool {
	word, bits := s.bitOf(id)
	return *word&bits == bits
}

func (s *seen) bitOf(id []byte) (word *uint64, bits uint64) {
	h := maphash.Bytes(s.seed, id)
	for i := range 4 {
		bits |= 1 << (h >> (6 * i) & 63)
	}
	return &s.words[h>>44%seenWords], bits
}

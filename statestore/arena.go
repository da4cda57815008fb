package statestore

import "bytes"

// slabSize is how many bytes of rows share one allocation. The rows stay in memory as long as one of
// their timers does.
const slabSize = 16 << 10

// arena copies byte slices into blocks. A copy is valid until reset, which lets the blocks be used again. Without a
// reset it may be kept, and keeps its whole block in memory. A large slice has an allocation of its own.
//
// The first block has slabSize bytes, and each further one twice as many as the one before, but no more than a limit.
// So an arena that copies little takes little.
type arena struct {
	block  int // the limit, in bytes
	blocks [][]byte
	used   int // blocks in use, the last of them partly
}

func (a *arena) copy(b []byte) []byte {
	if len(b) > a.block/4 {
		return bytes.Clone(b)
	}
	if a.used == 0 || len(b) > cap(a.blocks[a.used-1])-len(a.blocks[a.used-1]) {
		if a.used == len(a.blocks) {
			a.blocks = append(a.blocks, make([]byte, 0, a.next(len(b))))
		}
		a.blocks[a.used] = a.blocks[a.used][:0]
		a.used++
	}
	block := &a.blocks[a.used-1]
	n := len(*block)
	*block = append(*block, b...)
	return (*block)[n:len(*block):len(*block)]
}

// next returns how many bytes the next block has, for a slice of n bytes first.
func (a *arena) next(n int) int {
	size := slabSize
	if last := len(a.blocks) - 1; last >= 0 {
		size = 2 * cap(a.blocks[last])
	}
	return max(min(size, a.block), n)
}

// reset makes the blocks free. It keeps only those of full size, because a slice may not fit into a smaller one.
func (a *arena) reset() {
	full := a.blocks[:0]
	for _, b := range a.blocks {
		if cap(b) >= a.block {
			full = append(full, b)
		}
	}
	clear(a.blocks[len(full):])
	a.blocks, a.used = full, 0
}

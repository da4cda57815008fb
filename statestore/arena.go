package statestore

import "bytes"

// slabSize is how many bytes of rows share one allocation. The rows stay in memory as long as one of
// their timers does.
const slabSize = 16 << 10

// arena copies byte slices into blocks. A copy is valid until reset, which lets the blocks be used again. Without a
// reset it may be kept, and keeps its whole block in memory. A large slice has an allocation of its own.
type arena struct {
	block  int // bytes of a block
	blocks [][]byte
	used   int // blocks in use, the last of them partly
}

func (a *arena) copy(b []byte) []byte {
	if len(b) > a.block/4 {
		return bytes.Clone(b)
	}
	if a.used == 0 || len(b) > cap(a.blocks[a.used-1])-len(a.blocks[a.used-1]) {
		if a.used == len(a.blocks) {
			a.blocks = append(a.blocks, make([]byte, 0, a.block))
		}
		a.blocks[a.used] = a.blocks[a.used][:0]
		a.used++
	}
	block := &a.blocks[a.used-1]
	n := len(*block)
	*block = append(*block, b...)
	return (*block)[n:len(*block):len(*block)]
}

func (a *arena) reset() { a.used = 0 }

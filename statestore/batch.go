package statestore

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// batch collects the rows of one change to one partition.
type batch struct {
	effect
	b       *pebble.Batch
	scratch []byte
}

func (p *Partition) newBatchLocked() *batch {
	return &batch{effect: p.effectLocked(), b: p.s.db.NewBatch()}
}

func (b *batch) close() { b.b.Close() }

// change writes the new state of one ID. row is the encoded timer after the change. Writing to a batch in
// memory cannot fail.
func (b *batch) change(id []byte, before Location, after timer.Ref, row []byte) {
	stays := before == Location{ref: after}
	b.count(id, before.ref, after)
	if !before.ref.IsAbsent() && !stays {
		b.deleteRow(before)
	}
	switch {
	case !after.IsAbsent():
		b.putRow(Location{ref: after}, row)
		if !stays {
			b.putID(id, Location{ref: after})
		}
	case !before.ref.IsAbsent():
		op := b.b.DeleteDeferred(idAt + len(id))
		appendIDKey(op.Key[:0], b.p.prefix, id)
		op.Finish()
	}
}

// putRow writes a timer's row, not its ID row.
func (b *batch) putRow(at Location, row []byte) {
	b.put(at)
	b.p.s.inputs.wrote(len(row))
	op := b.b.SetDeferred(at.rowKeySize(), len(row))
	appendRowKey(op.Key[:0], b.p.prefix, at)
	copy(op.Value, row)
	op.Finish()
}

// deleteRow deletes a timer's row, not its ID row.
func (b *batch) deleteRow(at Location) {
	b.remove(at)
	op := b.b.DeleteDeferred(at.rowKeySize())
	appendRowKey(op.Key[:0], b.p.prefix, at)
	op.Finish()
}

func (b *batch) putID(id []byte, at Location) {
	b.p.ids.noteLocked(id)
	size := refSize
	if at.target != 0 {
		size = parkedIDSize
	}
	op := b.b.SetDeferred(idAt+len(id), size)
	appendIDKey(op.Key[:0], b.p.prefix, id)
	appendLocation(op.Value[:0], at)
	op.Finish()
}

func (b *batch) set(key, value []byte) { b.b.Set(key, value, nil) }

// commit writes the batch and sets the state of the partition to next, plus the changes of the batch; the partition's
// lock is held. Every batch contains the meta row: see doc.go.
func (b *batch) commit(next meta) error {
	p := b.p
	b.behind(&next)
	for _, t := range b.targets.next {
		key := appendNumberKey(b.scratch[:0], p.prefix, kindTarget, t.number)
		if t.count == 0 {
			b.b.Delete(key, nil)
		} else {
			b.set(key, t.encode())
		}
	}
	op := b.b.SetDeferred(prefixSize+1, metaSize)
	copy(op.Key, p.prefix.key(kindMeta))
	next.append(op.Value[:0])
	op.Finish()
	p.unflushed = true
	if err := b.b.Commit(pebble.NoSync); err != nil {
		p.loaded.Store(false)
		return fmt.Errorf("write: %w", err)
	}
	p.s.upkeep.dirty.Store(true)
	b.install(next)
	return nil
}

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

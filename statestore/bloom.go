package statestore

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	// Filters of IDs take 1/filterPart of the store's memory.
	filterPart = 8
	// idBits is how many bits of a filter there are for each ID, and idSet how many of them it sets. One in 200
	// probes of a full part for an absent ID says maybe. That is expensive: the look-up reads cold blocks of
	// every layer.
	idBits, idSet = 16, 5
	// leastWords is the size of a filter's first part, 16 KiB. Each further part is partGrowth times as large.
	leastWords, partGrowth = 2 << 10, 4
	// replayFilter is how many bytes the filter of a partition may take during a replay even if filters have
	// no more memory. After the replay, a filter that does not fit is dropped (fitLocked).
	replayFilter = 8 << 20
)

// filter says that the store has no row for an ID, or that it may have one. Most requests are for new IDs, and
// without a filter the look-up of a new ID asks every layer and level of the store.
//
// It is a Bloom filter in several parts, of which only the last takes more IDs. Bits are set in place. The
// list of parts never changes: to grow, a partition gets another filter with the same parts and one more.
//
// # Why it never denies an ID that is there
//
// A partition's filter has every ID for which the partition has a row:
//
//   - It begins when the partition has no timer, hence no row by ID; or it has learned all rows, see below.
//   - A row by ID is written under Partition.write, by putID or writeIDs alone. Both note the ID before the
//     row can be seen. So a reader that could see the row, and loads the filter after that, finds the bits.
//   - An ID is never taken out. When the partition is wiped it gets a new filter.
//   - Rows that are deleted, damaged or excised leave their IDs in the filter. Each such ID may cost a look-up.
//   - It is in memory only. After a crash the partition has none, and every ID is looked up.
//
// A partition without a filter learns one while it is in use. Learning begins under Partition.write. From then
// on noteLocked adds new IDs to it, too. Then the rows are read, some at a time. Each row that was there at
// the beginning is read, unless it was deleted first; if its ID came back, noteLocked has added it. So when the
// last row is read the filter has all IDs. It takes effect if no read failed, nothing is damaged, and the
// partition was not wiped meanwhile.
type filter struct {
	parts []*bloomPart
	ids   int64 // how many were added
}

// bloomPart is one part: all bits of an ID lie in one word.
type bloomPart struct {
	words []uint64 // accessed atomically; their number is a power of two
	room  int      // how many more IDs it takes; guarded by Partition.write
}

func newBloomPart(words int) *bloomPart {
	return &bloomPart{words: make([]uint64, words), room: words * 64 / idBits}
}

func (b *bloomPart) bits(hash uint64) (word *uint64, set uint64) {
	for i := range idSet {
		set |= 1 << (hash >> (6 * i) & 63)
	}
	return &b.words[hash>>(6*idSet)&uint64(len(b.words)-1)], set
}

// maybe is false only for an ID that was never added.
func (f *filter) maybe(hash uint64) bool {
	for i := len(f.parts) - 1; i >= 0; i-- {
		if word, set := f.parts[i].bits(hash); atomic.LoadUint64(word)&set == set {
			return true
		}
	}
	return false
}

func (f *filter) bytes() (n int64) {
	for _, b := range f.parts {
		n += int64(len(b.words)) * 8
	}
	return n
}

// filterPool is what the filters of all partitions share.
type filterPool struct {
	seed      maphash.Seed
	bytes     atomic.Int64 // taken by all filters
	share     int64        // bytes that all filters may take
	learnRows int          // learnRows; tests change it
}

// hash returns the hash of an ID that all filters of the store use.
func (fp *filterPool) hash(id []byte) uint64 { return maphash.Bytes(fp.seed, id) }

// denies reports whether a filter says that the store has no row for an ID. f may be nil.
func (fp *filterPool) denies(f *filter, id []byte) bool { return f != nil && !f.maybe(fp.hash(id)) }

// reserve takes memory for a filter. It exceeds the share of all filters only if beyond is set.
func (fp *filterPool) reserve(bytes int64, beyond bool) bool {
	if fp.bytes.Add(bytes) <= fp.share || beyond {
		return true
	}
	fp.bytes.Add(-bytes)
	return false
}

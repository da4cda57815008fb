package statestore

import (
	"bytes"
	"errors"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

const (
	// The store considers learning a filter after every learnCheck look-ups without one.
	learnCheck = 10_000
	// learnShare: a filter is worth learning after one such look-up for every four pending timers. Learning an
	// ID costs a fifth of a look-up.
	learnShare = 4
	// garbage: a filter is learned anew once it has that many times as many IDs as are pending.
	garbage = 4
	// learnRows is how many rows are read at a time.
	learnRows = 4096
)

// idFilter is the filter of one partition. Partition.write guards it, except that current may be read, and
// unanswered counted up, without it.
type idFilter struct {
	p          *Partition
	pool       *filterPool
	current    atomic.Pointer[filter] // nil: there is none
	unanswered atomic.Int64           // look-ups without a filter
	learning   *learning              // nil unless one is being learned
}

// learning is a filter that is being learned.
type learning struct {
	filter *filter // it has a part at least, so addLocked never returns nil for it
	from   []byte  // key of the next row to read
}

// noteLocked adds an ID whose row is about to be written.
func (i *idFilter) noteLocked(id []byte) {
	f, l := i.current.Load(), i.learning
	if f == nil && l == nil {
		return
	}
	hash := i.pool.hash(id)
	if f != nil {
		if grown := i.addLocked(f, hash); grown != f {
			i.current.Store(grown)
		}
	}
	if l != nil {
		l.filter = i.addLocked(l.filter, hash)
	}
}

// addLocked returns f after adding an ID: f itself, or a grown copy, or nil if there is no memory for a first
// part.
func (i *idFilter) addLocked(f *filter, hash uint64) *filter {
	if f.maybe(hash) {
		return f
	}
	if len(f.parts) == 0 || f.parts[len(f.parts)-1].room == 0 {
		if f = i.growLocked(f); f == nil {
			return nil
		}
	}
	last := f.parts[len(f.parts)-1]
	word, set := last.bits(hash)
	atomic.OrUint64(word, set)
	last.room--
	f.ids++
	return f
}

// growLocked returns f with room for more. If memory is short, its last part takes as many IDs again, and then
// answers maybe more often. It returns nil if there is no memory for a first part.
func (i *idFilter) growLocked(f *filter) *filter {
	words := leastWords
	if n := len(f.parts); n > 0 {
		words = len(f.parts[n-1].words) * partGrowth
		if f.ids > garbage*(i.p.state.Pending+leastWords*64/idBits) {
			i.askToLearn()
		}
	}
	size := int64(words) * 8
	k := i.p.owner.Load()
	if replayed := k != nil && k.replaying; !i.pool.reserve(size, replayed && f.bytes()+size <= replayFilter) {
		if len(f.parts) == 0 {
			return nil
		}
		last := f.parts[len(f.parts)-1]
		last.room = len(last.words) * 64 / idBits
		return f
	}
	return &filter{parts: append(f.parts[:len(f.parts):len(f.parts)], newBloomPart(words)), ids: f.ids}
}

// setLocked replaces the partition's filter; nil: it has none.
func (i *idFilter) setLocked(f *filter) {
	if old := i.current.Swap(f); old != nil {
		i.pool.bytes.Add(-old.bytes())
	}
	i.unanswered.Store(0)
}

// fitLocked drops the filter if filters take more than their share.
func (i *idFilter) fitLocked() {
	if i.pool.bytes.Load() > i.pool.share {
		i.setLocked(nil)
	}
}

// forgetLearningLocked drops the filter that is being learned.
func (i *idFilter) forgetLearningLocked() {
	if i.learning != nil {
		i.pool.bytes.Add(-i.learning.filter.bytes())
		i.learning = nil
	}
}

// askToLearn makes the store check whether a filter of the partition should be learned.
func (i *idFilter) askToLearn() {
	select {
	case i.p.s.upkeep.learns <- i.p:
	default: // a later call asks again
	}
}

// unansweredBy counts n look-ups that went to the store because there is no filter.
func (i *idFilter) unansweredBy(n int) {
	if after := i.unanswered.Add(int64(n)); after/learnCheck != (after-int64(n))/learnCheck {
		i.askToLearn()
	}
}

// learn begins to learn a filter of the partition if that is worth it, or continues. It reports whether there is more
// to do.
func (i *idFilter) learn() (more bool, err error) {
	l := i.beginLearning()
	if l == nil {
		return false, nil
	}
	hashes, next, err := i.readIDs(l.from)
	return i.learned(l, hashes, next, err)
}

// learned adds the IDs that were read, and with the last of them puts the filter to use.
func (i *idFilter) learned(l *learning, hashes []uint64, next []byte, err error) (more bool, _ error) {
	i.p.write.Lock()
	defer i.p.write.Unlock()
	if i.learning != l {
		return false, nil // wiped in between
	}
	if err != nil {
		i.forgetLearningLocked()
		return false, err
	}
	for _, hash := range hashes {
		l.filter = i.addLocked(l.filter, hash)
	}
	if l.from = next; next != nil {
		return true, nil
	}
	i.learning = nil
	i.setLocked(l.filter)
	return false, nil
}

// beginLearning returns the filter that is being learned; nil if there is nothing to learn.
func (i *idFilter) beginLearning() *learning {
	p := i.p
	p.write.Lock()
	defer p.write.Unlock()
	if i.learning != nil || p.damaged.Load() || !p.loaded.Load() {
		return i.learning
	}
	pending, f := p.state.Pending, i.current.Load()
	if f == nil && i.unanswered.Load() < pending/learnShare || f != nil &&
		f.ids <= garbage*(pending+leastWords*64/idBits) {
		return nil
	}
	// A quarter more than there are, and up to the next power of two.
	words := max(leastWords, 1<<bits.Len64(uint64(pending+pending/4)*idBits/64))
	i.unanswered.Store(0)
	if !i.pool.reserve(int64(words)*8, false) {
		return nil
	}
	i.learning = &learning{filter: &filter{parts: []*bloomPart{newBloomPart(words)}}, from: p.prefix.key(kindID)}
	return i.learning
}

// readIDs reads some rows by ID, and returns the key to go on from; nil if there are no more.
func (i *idFilter) readIDs(from []byte) (hashes []uint64, next []byte, err error) {
	p := i.p
	if err := p.s.enter(); err != nil {
		return nil, nil, err
	}
	defer p.s.leave()
	err = eachRow(p.s.db, from, p.prefix.key(kindID+1), func(key, _ []byte) (bool, error) {
		if len(hashes) == i.pool.learnRows {
			next = bytes.Clone(key)
			return false, nil
		}
		hashes = append(hashes, i.pool.hash(key[idAt:]))
		return true, nil
	})
	return hashes, next, errors.Join(err, p.intact())
}

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

// filter says that the store has no row for an ID, or that it may have one. Most requests are for new IDs, and without
// a filter the look-up of a new ID asks every layer and level of the store.
//
// It is a Bloom filter in several parts; only the last takes more IDs. Bits are set in place. The list of parts never
// changes: to grow, a partition gets another filter with the same parts and one more.
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
// A partition without a filter learns one while it is in use. Learning begins under Partition.write. From then on
// noteLocked adds new IDs to it too. Then the rows are read, some at a time. Each row that was there at the beginning
// is read, unless it was deleted first; if its ID came back, noteLocked has added it. So when the last row is read the
// filter has all IDs. It takes effect if no read failed, nothing is damaged, and the partition was not wiped in
// between.
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

// filterPool is the memory that the filters of all partitions share.
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

package statestore

import (
	"errors"
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// filterPart: filters of IDs take one in so many bytes of the store's memory.
	filterPart = 8
	// idBits is how many bits of a filter an ID takes, of which idSet are set: in 200 probes of a full part for an
	// absent ID one says maybe. That is dear: such a look-up reads cold blocks of every layer.
	idBits, idSet = 16, 5
	// leastWords is the size of a filter's first part, 16 KiB. Each further part is partGrowth times as large.
	leastWords, partGrowth = 2 << 10, 4
	// replayFilter is how many bytes the filter of a partition may take during a replay even if filters have
	// no more memory. When the replay is over, a filter that does not fit goes (fitLocked).
	replayFilter = 8 << 20

	// learnCheck is after how many look-ups that no filter answered the store looks whether to learn one.
	learnCheck = 10_000
	// learnShare: a filter is worth learning after one such look-up for each four pending timers. To learn an
	// ID costs a fifth of a look-up.
	learnShare = 4
	// garbage: a filter is learned anew once it has four times as many IDs as are pending.
	garbage = 4
	// learnRows are read at a time.
	learnRows = 4096
)

// filter says of an ID that the store has no row for it, or that it may have one. Most requests are
// for new IDs, and the look-up of a new ID asks every layer and level of the store.
//
// It is a Bloom filter in several parts, of which only the last takes more IDs. Bits are set in place. The
// list of parts never changes: to grow, a partition gets another filter with the same parts and one more.
//
// # Why it never denies an ID that is there
//
// A partition's filter has every ID of which the partition has a row:
//
//   - It begins when the partition has no timer, so no row by ID; or it has learned all rows, see below.
//   - A row by ID is written under Partition.write, by putID or writeIDs alone. Both note the ID before the
//     row can be seen. So a reader that could see the row, and loads the filter after that, finds the bits.
//   - An ID is never taken out. The filter goes as a whole when the partition is wiped, which then
//     has no timer.
//   - Rows that are deleted, damaged or excised leave their IDs in the filter. That costs a look-up each.
//   - It is in memory only. After a crash the partition has none, and every ID is looked up.
//
// A partition without a filter learns one (learning) while it is in use. Learning begins under Partition.write,
// and from then on noteLocked adds IDs to it too. Then the rows are read, some at a time. Each row that was there
// at the beginning is read, unless it was deleted before; if its ID came back, that was noted. So when the last
// row is read the filter has all IDs. It takes effect if no read failed, nothing is damaged, and the partition
// was not wiped meanwhile.
type filter struct {
	parts []*bloomPart
	ids   int64 // how many were added
}

// bloomPart is one part: all bits of an ID lie in one word.
type bloomPart struct {
	words []uint64 // accessed atomically; their number is a power of two
	room  int      // for how many more IDs; guarded by Partition.write
}

// learning is a filter that is being learned.
type learning struct {
	filter *filter // it has a part, so it can always take one more ID
	from   []byte  // key of the next row to read
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

// hash returns the hash of an ID that all filters of the store use.
func (s *Store) hash(id []byte) uint64 { return maphash.Bytes(s.seed, id) }

// denies reports whether a filter says that the store has no row for an ID. f may be nil.
func (s *Store) denies(f *filter, id []byte) bool { return f != nil && !f.maybe(s.hash(id)) }

// noteLocked adds an ID whose row is about to be written.
func (p *Partition) noteLocked(id []byte) {
	f, l := p.filter.Load(), p.learning
	if f == nil && l == nil {
		return
	}
	hash := p.s.hash(id)
	if f != nil {
		if grown := p.addLocked(f, hash); grown != f {
			p.filter.Store(grown)
		}
	}
	if l != nil {
		l.filter = p.addLocked(l.filter, hash)
	}
}

// addLocked returns f with an ID: f itself, or f grown, or nil if there is no memory for a first part.
func (p *Partition) addLocked(f *filter, hash uint64) *filter {
	if f.maybe(hash) {
		return f
	}
	if len(f.parts) == 0 || f.parts[len(f.parts)-1].room == 0 {
		if f = p.growLocked(f); f == nil {
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

// growLocked returns f with room for more. If memory is short its last part takes as many again, and then answers
// maybe more often.
func (p *Partition) growLocked(f *filter) *filter {
	words := leastWords
	if n := len(f.parts); n > 0 {
		words = len(f.parts[n-1].words) * partGrowth
		if f.ids > garbage*(p.state.Pending+leastWords*64/idBits) {
			p.s.askToLearn(p)
		}
	}
	size := int64(words) * 8
	k := p.owner.Load()
	if replayed := k != nil && k.replay != nil; !p.s.reserve(size, replayed && f.bytes()+size <= replayFilter) {
		if len(f.parts) == 0 {
			return nil
		}
		last := f.parts[len(f.parts)-1]
		last.room = len(last.words) * 64 / idBits
		return f
	}
	return &filter{parts: append(f.parts[:len(f.parts):len(f.parts)], newBloomPart(words)), ids: f.ids}
}

// reserve takes memory for a filter; beyond the share of filters only with beyond.
func (s *Store) reserve(bytes int64, beyond bool) bool {
	if s.filters.Add(bytes) <= int64(s.o.Memory/filterPart) || beyond {
		return true
	}
	s.filters.Add(-bytes)
	return false
}

// setFilterLocked replaces the partition's filter; nil: it has none.
func (p *Partition) setFilterLocked(f *filter) {
	if old := p.filter.Swap(f); old != nil {
		p.s.filters.Add(-old.bytes())
	}
	p.unanswered.Store(0)
}

// fitLocked lets go of the filter if filters take more than their share.
func (p *Partition) fitLocked() {
	if p.s.filters.Load() > int64(p.s.o.Memory/filterPart) {
		p.setFilterLocked(nil)
	}
}

// forgetLearningLocked drops what is being learned.
func (p *Partition) forgetLearningLocked() {
	if p.learning != nil {
		p.s.filters.Add(-p.learning.filter.bytes())
		p.learning = nil
	}
}

// askToLearn has the store look whether a filter of the partition should be learned.
func (s *Store) askToLearn(p *Partition) {
	select {
	case s.learns <- p:
	default: // it is asked again
	}
}

// unansweredBy counts n look-ups that went to the store because there is no filter.
func (p *Partition) unansweredBy(n int) {
	if after := p.unanswered.Add(int64(n)); after/learnCheck != (after-int64(n))/learnCheck {
		p.s.askToLearn(p)
	}
}

// learn begins to learn a filter of the partition if that is worth it, or goes on with it. It reports whether
// there is more to do.
func (p *Partition) learn() (more bool, err error) {
	l := p.beginLearning()
	if l == nil {
		return false, nil
	}
	hashes, next, err := p.readIDs(l.from)
	return p.learned(l, hashes, next, err)
}

// learned adds the IDs that were read, and with the last of them puts the filter to use.
func (p *Partition) learned(l *learning, hashes []uint64, next []byte, err error) (more bool, _ error) {
	p.write.Lock()
	defer p.write.Unlock()
	if p.learning != l {
		return false, nil // wiped meanwhile
	}
	if err != nil {
		p.forgetLearningLocked()
		return false, err
	}
	for _, hash := range hashes {
		l.filter = p.addLocked(l.filter, hash)
	}
	if l.from = next; next != nil {
		return true, nil
	}
	p.learning = nil
	p.setFilterLocked(l.filter)
	return false, nil
}

// beginLearning returns the filter that is being learned; nil if there is nothing to learn.
func (p *Partition) beginLearning() *learning {
	p.write.Lock()
	defer p.write.Unlock()
	if p.learning != nil || p.damaged.Load() || !p.loaded.Load() {
		return p.learning
	}
	pending, f := p.state.Pending, p.filter.Load()
	if f == nil && p.unanswered.Load() < pending/learnShare || f != nil && f.ids <= garbage*(pending+leastWords*64/idBits) {
		return nil
	}
	// A quarter more than there are, and up to the next power of two.
	words := max(leastWords, 1<<bits.Len64(uint64(pending+pending/4)*idBits/64))
	p.unanswered.Store(0)
	if !p.s.reserve(int64(words)*8, false) {
		return nil
	}
	p.learning = &learning{filter: &filter{parts: []*bloomPart{newBloomPart(words)}}, from: p.prefix.key(kindID)}
	return p.learning
}

// readIDs reads some rows by ID, and returns the key to go on from; nil if there are no more.
func (p *Partition) readIDs(from []byte) (hashes []uint64, next []byte, err error) {
	if err := p.s.enter(); err != nil {
		return nil, nil, err
	}
	defer p.s.leave()
	it, err := p.s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: p.prefix.key(kindID + 1)})
	if err != nil {
		return nil, nil, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if len(hashes) == p.s.learnRows {
			next = append([]byte{}, it.Key()...)
			break
		}
		hashes = append(hashes, p.s.hash(it.Key()[idAt:]))
	}
	return hashes, next, errors.Join(it.Close(), p.intact())
}

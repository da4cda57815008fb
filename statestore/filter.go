package statestore

import (
	"errors"
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// filterPart is the share of the store's memory that filters of IDs take: one in so many bytes.
	filterPart = 8
	// idBits is how many bits of a filter an ID takes, of which idSet are set: in 200 probes of a full part for an
	// absent ID one says maybe. That is dear: such a look-up reads cold blocks of every layer.
	idBits, idSet = 16, 5
	// leastWords is the size of a filter's first part: 16 KiB. Each further part is partGrowth times as large.
	leastWords, partGrowth = 2 << 10, 4
	// replayFilter is how many bytes the filter of a partition that is replayed may take beyond the share of
	// filters, until the replay is over.
	replayFilter = 8 << 20

	// learnCheck look-ups that no filter answered ask whether it is worth to learn one.
	learnCheck = 10_000
	// learnShare look-ups for each pending timer are worth it; learning one costs a fifth of a look-up.
	learnShare = 4
	// garbage times as many IDs as are pending are reason to learn a filter anew.
	garbage = 4
	// learnRows are read at a time.
	learnRows = 4096
)

// filter says of an ID that the store has no row for it, or that it may have one: most requests are
// for IDs that are new, and a look-up of one asks every layer and level of the store.
//
// It is a Bloom filter in several parts, of which only the last takes more IDs. Bits are set in place, the
// list of parts never changes: one that has grown is another filter.
//
// # Why it never denies an ID that is there
//
// A partition's filter has every ID of which the partition has a row:
//
//   - It begins when the partition has no timer, hence no row by ID; or it has learned all rows, below.
//   - A row by ID is written under Partition.write, by putID or writeIDs alone. Both note the ID
//     before the row can be seen. So whoever could see the row, and loads the filter behind that, finds the bits.
//   - An ID is never taken out. The filter goes as a whole when the partition is wiped, which then
//     has no timer.
//   - What is excised, damaged or deleted leaves it with IDs that are not there, which costs a look-up each.
//   - It lies in memory alone. After a crash the partition has none, whatever was lost, and is looked up in.
//
// A partition learns one (learning) while it is in use. From the moment in which that begins, which is under
// write, all IDs noted go there too. Then the rows are read, some at a time. A row that was there at the
// beginning is read, or was deleted before; if its ID came back that was noted. So when the last row is
// read the filter has all IDs, and it takes effect if no read has failed, nothing is damaged, and the partition
// was not wiped meanwhile.
type filter struct {
	parts []*bloomPart
	ids   int64 // that were added
}

// bloomPart is one part: all bits of an ID lie in one word.
type bloomPart struct {
	words []uint64 // atomically; as many as a power of two
	room  int      // for so many IDs more; guarded by Partition.write
}

// learning is a filter that is being learned.
type learning struct {
	filter *filter // it has a part, so it can always take one more ID
	from   []byte  // key of the next row to read
}

func newFilterBits64(words int) *bloomPart {
	return &bloomPart{words: make([]uint64, words), room: words * 64 / idBits}
}

func (b *bloomPart) of(hash uint64) (word *uint64, set uint64) {
	for i := range idSet {
		set |= 1 << (hash >> (6 * i) & 63)
	}
	return &b.words[hash>>(6*idSet)&uint64(len(b.words)-1)], set
}

// maybe is false only for an ID that was never added.
func (f *filter) maybe(hash uint64) bool {
	for i := len(f.parts) - 1; i >= 0; i-- {
		if word, set := f.parts[i].of(hash); atomic.LoadUint64(word)&set == set {
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

// hash is that of an ID, for all filters of the store.
func (s *Store) hash(id []byte) uint64 { return maphash.Bytes(s.seed, id) }

// denies reports whether a filter says of some ID that the store has no row for it. f may be nil.
func (s *Store) denies(f *filter, id []byte) bool { return f != nil && !f.maybe(s.hash(id)) }

// noteLocked notes that a row of an ID is about to be written.
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

// addLocked returns f with an ID: f itself, or f grown, or nil if there is no memory to begin with.
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
	word, set := last.of(hash)
	atomic.OrUint64(word, set)
	last.room--
	f.ids++
	return f
}

// growLocked returns f with room for more. Where memory is short its last part takes as many again, by which it
// answers maybe more often.
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
	return &filter{parts: append(f.parts[:len(f.parts):len(f.parts)], newFilterBits64(words)), ids: f.ids}
}

// reserve takes memory for a filter, beyond the share of filters only if that is allowed.
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

// unansweredBy counts look-ups that went to the store since there is no filter.
func (p *Partition) unansweredBy(n int) {
	if after := p.unanswered.Add(int64(n)); after/learnCheck != (after-int64(n))/learnCheck {
		p.s.askToLearn(p)
	}
}

// learn begins to learn a filter of the partition if that is worth it, or goes on. It reports whether there is
// more to do.
func (p *Partition) learn() (more bool, err error) {
	l := p.beginLearning()
	if l == nil {
		return false, nil
	}
	hashes, next, err := p.readIDs(l.from)
	return p.learned(l, hashes, next, err)
}

// learned takes what was read.
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

// beginLearning returns what is being learned, nil if there is nothing to learn.
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
	p.learning = &learning{filter: &filter{parts: []*bloomPart{newFilterBits64(words)}}, from: p.prefix.key(kindID)}
	return p.learning
}

// readIDs reads some rows by ID, and returns where to go on, nil if there are no more.
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

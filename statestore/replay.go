package statestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// A replay is best flushed at this many records or bytes: the unit of
	// sorted tables.
	replayRecords = 100_000
	replayBytes   = 32 << 20

	// replayExcess times that much, without a Flush, is refused.
	replayExcess = 4

	// From this many different IDs on, or bytes, a flush ingests a table
	// instead of writing a batch: a table costs some synced writes, 10 to
	// 20 ms, a batch about 6 us per timer more.
	tableIDs   = 4_000
	tableBytes = 4 << 20

	// A replay that looks up more than one in lookUpShare of what it flushes does not have
	// compactions wait: see Replay.looksUp.
	lookUpShare = 8

	replayBlock = 1 << 20 // bytes of IDs and rows that are allocated at a time
)

// Replay folds changelog records into a partition, in the order of the log. It
// collects them in memory, up to some 50 MB, until Flush; the partition's filter of IDs may take
// 8 MB more than its share meanwhile. It is used by one goroutine. Close ends it, and so does a later
// Replay, or a Wipe.
type Replay struct {
	k          *Handle
	changelog  [16]byte
	records    []record
	bytes      int // of IDs and rows in records
	arena      arena
	checkpoint []byte // nil: none seen since the last flush
	mark       Mark   // at the next flush

	// looksUp says that a good part of what was flushed last had to be looked up: see
	// lookUpShare.
	looksUp bool
}

// record is the last one seen of an ID, after dedupe.
type record struct {
	target uint32 // what before is parked for: see place
	id     []byte
	row    []byte       // bytes of the timer, nothing for a deletion
	timer  *timer.Timer // instead of row, where that is not there
	before timer.Ref    // what the store has, filled in by resolve
	after  timer.Ref    // Absent for a deletion
}

// Replay begins to fold records of the changelog topic of that UUID, from
// Meta().Position on. Until Live is called the in-sync time stays what it was,
// however often the replay is flushed, lost and begun again: a replay that is
// interrupted for hours may have missed tombstones. That of a partition of which
// the store holds nothing is now, the brokers' time or earlier; the zero time
// stands for never. Errors wrap ErrForeignChangelog if the store was folded from
// another topic.
func (k *Handle) Replay(changelog [16]byte, now time.Time) (*Replay, error) {
	if err := k.enter(); err != nil {
		return nil, err
	}
	defer k.leave()
	s := &k.p.state
	if s.Position == noPosition {
		// The empty fold is in sync with everything that is still in the log:
		// a tombstone can only be missed from now on.
		s.InSync = now
	} else if s.Changelog != changelog {
		return nil, fmt.Errorf("replay partition %s: changelog %x, stored %x: %w",
			k.p.id, changelog, s.Changelog, ErrForeignChangelog)
	}
	k.live = false
	k.replay = &Replay{k: k, changelog: changelog, arena: arena{block: replayBlock}, looksUp: s.Pending > 0}
	return k.replay, nil
}

// Put takes in that t is pending under id; value are its bytes. Either may be
// nil, the other is used then. Nothing is kept of id, value and t.
func (r *Replay) Put(id, value []byte, t *timer.Timer) (err error) {
	if t == nil {
		if t, err = timer.Decode(value); err != nil {
			return fmt.Errorf("replay partition %s: %w", r.k.p.id, err)
		}
	}
	if value == nil {
		value = t.AppendTo(nil)
	}
	return r.add(id, value, t.Ref())
}

// Delete takes in that nothing is pending under id.
func (r *Replay) Delete(id []byte) error { return r.add(id, nil, timer.Absent) }

// Checkpoint takes in a checkpoint record, of which a copy is kept.
func (r *Replay) Checkpoint(raw []byte) error {
	r.checkpoint = append([]byte{}, raw...)
	return nil
}

// At marks the position of the next Flush; else it has no name.
func (r *Replay) At(m Mark) { r.mark = m }

func (r *Replay) add(id, row []byte, after timer.Ref) error {
	if err := checkID(id); err != nil {
		return fmt.Errorf("replay partition %s: %w", r.k.p.id, err)
	}
	if len(r.records) >= replayExcess*replayRecords || r.bytes >= replayExcess*replayBytes {
		return fmt.Errorf("replay partition %s: %d records: %w", r.k.p.id, len(r.records), ErrReplayFull)
	}
	r.bytes += len(id) + len(row)
	r.records = append(r.records, record{
		id:     r.arena.copy(id),
		row:    r.arena.copy(row),
		before: timer.Absent,
		after:  after,
	})
	return nil
}

// Flush stores everything taken in so far together with position, the changelog
// offset behind it: both or neither are there after a crash. Few records go to
// memory like an Apply, many to a synced table, before which it waits while too
// many tables wait to be merged, 30 s at most.
//
// Errors wrap ErrNotOwner, ErrReplayOver or ErrPosition; the replay is over
// then, and is begun again from Meta().Position.
func (r *Replay) Flush(position int64) error {
	ended := "replay partition %s up to %d: %w"
	r.dedupe()
	k := r.k
	if r.large() {
		if err := k.waitForRoom(context.Background(), true); err != nil {
			return err
		}
		if !r.looksUp {
			k.p.s.compactions.hold()
		}
	}
	if err := k.enter(); err != nil {
		return err
	}
	defer k.leave()
	if k.replay != r {
		return fmt.Errorf(ended, k.p.id, position, ErrReplayOver)
	}
	if err := r.flushLocked(position); err != nil {
		k.replay = nil
		return fmt.Errorf(ended, k.p.id, position, err)
	}
	clear(r.records)
	r.records, r.bytes, r.checkpoint, r.mark = r.records[:0], 0, nil, Mark{}
	r.arena.reset()
	return nil
}

// Close ends the replay and lets go of its memory, tens of MB that the Handle would hold
// otherwise. What was put since the last Flush is forgotten. It may be called twice.
func (r *Replay) Close() {
	r.k.p.write.Lock()
	defer r.k.p.write.Unlock()
	if r.k.replay == r {
		r.k.replay = nil
	}
	r.k.p.ids.fitLocked()
}

func (r *Replay) flushLocked(position int64) error {
	p := r.k.p
	next, err := p.advanceLocked(position, r.changelog)
	if err != nil {
		return err
	}
	if err := r.resolve(); err != nil {
		return fmt.Errorf("look up what is pending: %w", err)
	}
	if r.checkpoint != nil {
		next.Checkpoint = r.checkpoint
	}
	next.Mark = r.mark
	if r.large() {
		if p.state.Position == noPosition {
			if err := p.anchorLocked(next); err != nil {
				return err
			}
		}
		return p.ingestLocked(next, r.records)
	}
	w := p.newBatchLocked()
	defer w.close()
	for i := range r.records {
		c := &r.records[i]
		w.change(p.prefix, c.id, Location{c.before, c.target}, c.after, c.row)
	}
	if r.checkpoint != nil {
		w.set(p.prefix.key(kindCheckpoint), r.checkpoint)
	}
	return w.commit(p, next)
}

// anchorLocked writes a meta row that says that nothing of the changelog is folded yet; the
// rest of it is next's. The first table of a partition overlaps with that row, and so stays
// in level 0. Pebble puts a table that overlaps with none into the lowest level, and would
// merge all that comes behind with it, where it can just be moved.
func (p *Partition) anchorLocked(next meta) error {
	next.Position, next.Checkpoint, next.Mark = 0, nil, Mark{}
	w := p.newBatchLocked()
	defer w.close()
	return w.commit(p, next)
}

// large says that the records, once deduped, are worth a table.
func (r *Replay) large() bool {
	return len(r.records) >= r.k.p.s.tables.leastIDs || r.bytes >= tableBytes
}

// dedupe sorts the records by ID and keeps the last one of each.
func (r *Replay) dedupe() {
	sortRecords(r.records)
	kept := r.records[:0]
	for i := range r.records {
		if i+1 < len(r.records) && bytes.Equal(r.records[i].id, r.records[i+1].id) {
			continue
		}
		kept = append(kept, r.records[i])
	}
	clear(r.records[len(kept):])
	r.records = kept
}

// resolve looks up what the store has of every ID that the filter does not deny. Going in the order
// of the IDs, the iterator seldom starts afresh.
func (r *Replay) resolve() error {
	p, lookUps := r.k.p, 0
	defer func() { r.looksUp = lookUps*lookUpShare > len(r.records) }()
	f := p.ids.current.Load()
	it, err := newIDIterator(p.s.db)
	if err != nil {
		return err
	}
	for i := range r.records {
		c := &r.records[i]
		if p.s.filters.denies(f, c.id) {
			continue
		}
		lookUps++
		at, seekErr := it.seek(p.prefix, c.id)
		if err = errors.Join(seekErr, p.targets.check(at)); err != nil {
			break
		}
		c.before, c.target = at.ref, at.target
	}
	return errors.Join(err, it.Close(), p.intact())
}

// arena copies byte slices into blocks, which are used again after reset. A block stays in memory
// as long as one slice of it does.
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

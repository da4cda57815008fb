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
	// A replay is best flushed after replayRecords or replayBytes, which make a good table.
	replayRecords = 100_000
	replayBytes   = 32 << 20

	// A replay takes up to replayExcess times as much without a Flush.
	replayExcess = 4

	// A replay that looks up more than one in lookUpShare of the records that it flushes does not delay
	// compactions.
	lookUpShare = 8

	replayBlock = 1 << 20 // bytes of IDs and rows that are allocated at a time
)

// Replay folds changelog records into a partition, in log order. It collects them in memory, up to some 50 MB, until
// Flush. During a replay the partition's filter of IDs may take 8 MB more than its share. Only one goroutine uses it.
// Close ends it, as does a later Replay, or a Wipe.
type Replay struct {
	k          *Handle
	number     int // see Handle.replays
	changelog  [16]byte
	records    []record
	bytes      int // of IDs and rows in records
	arena      arena
	checkpoint []byte // nil: none seen since the last flush
	mark       Mark   // at the next flush
}

// Replay begins to fold records of the changelog topic with that UUID, from Meta().Position on. The in-sync time
// stays as it is until Live is called, however often the replay is flushed, lost and begun again, because a
// replay that is interrupted for hours may have missed tombstones. If the store holds nothing of the
// partition, the in-sync time becomes now, which is the brokers' time or earlier; the zero time means never.
// Errors wrap ErrForeignChangelog if the store was folded from another topic.
func (h *Handle) Replay(changelog [16]byte, now time.Time) (*Replay, error) {
	if err := h.enter(); err != nil {
		return nil, err
	}
	defer h.leave()
	s := &h.p.state
	if s.Position == noPosition {
		// An empty store is in sync with the log: it can miss a tombstone only from now on.
		s.InSync = now
	} else if s.Changelog != changelog {
		return nil, fmt.Errorf("replay partition %s: changelog %x, stored %x: %w",
			h.p.id, changelog, s.Changelog, ErrForeignChangelog)
	}
	h.live = nil
	h.replays++
	h.replaying = true
	return &Replay{k: h, number: h.replays, changelog: changelog, arena: arena{block: replayBlock}}, nil
}

// Put records that t is pending under id. value is t encoded. One of t and value may be nil. Put keeps nothing
// of id, value and t.
func (r *Replay) Put(id, value []byte, t *timer.Timer) (err error) {
	if t == nil {
		if t, err = timer.Decode(value); err != nil {
			return r.k.p.during("replay", err)
		}
	}
	if value == nil {
		value = t.AppendTo(nil)
	}
	return r.add(id, value, t.Ref())
}

// Delete records that nothing is pending under id.
func (r *Replay) Delete(id []byte) error { return r.add(id, nil, timer.Absent) }

// Checkpoint records a copy of a checkpoint.
func (r *Replay) Checkpoint(raw []byte) error {
	r.checkpoint = append([]byte{}, raw...)
	return nil
}

// At sets the Mark that the next Flush stores. Without it the position has no name.
func (r *Replay) At(m Mark) { r.mark = m }

func (r *Replay) add(id, row []byte, after timer.Ref) error {
	if err := checkID(id); err != nil {
		return r.k.p.during("replay", err)
	}
	if len(r.records) >= replayExcess*replayRecords || r.bytes >= replayExcess*replayBytes {
		return fmt.Errorf("replay partition %s: %d records: %w", r.k.p.id, len(r.records), ErrReplayFull)
	}
	r.bytes += len(id) + len(row)
	r.k.p.s.inputs.wrote(len(row))
	r.records = append(r.records, record{Change: Change{
		ID:     r.arena.copy(id),
		Bytes:  r.arena.copy(row),
		Before: timer.Absent,
		After:  after,
	}})
	return nil
}

// Flush stores all records so far together with position, the changelog offset behind them. After a crash the
// store has both or neither. Few records go to the memtable, as with Apply. Many go into a synced table; Flush
// first waits while too many tables wait to be merged, for at most 30 s.
//
// Errors wrap ErrNotOwner, ErrReplayOver or ErrPosition. Then the replay is over, and a new one begins at
// Meta().Position.
func (r *Replay) Flush(position int64) error {
	ended := "replay partition %s up to %d: %w"
	r.dedupe()
	k := r.k
	if r.large() {
		if err := waitForRoom(context.Background(), k, true, 0); err != nil {
			return err
		}
	}
	if err := k.enter(); err != nil {
		return err
	}
	defer k.leave()
	if !r.underWay() {
		return fmt.Errorf(ended, k.p.id, position, ErrReplayOver)
	}
	if err := r.flushLocked(position); err != nil {
		k.replaying = false
		return fmt.Errorf(ended, k.p.id, position, err)
	}
	clear(r.records)
	r.records, r.bytes, r.checkpoint, r.mark = r.records[:0], 0, nil, Mark{}
	r.arena.reset()
	return nil
}

// underWay reports whether nothing has ended the replay: no Close, failed Flush or later replay, and no wipe. p.write
// is held.
func (r *Replay) underWay() bool { return r.k.replaying && r.number == r.k.replays }

// Close ends the replay, and drops the partition's filter if it has grown beyond its share. Records since the last
// Flush are lost. It may be called twice.
func (r *Replay) Close() {
	r.k.p.write.Lock()
	defer r.k.p.write.Unlock()
	if r.underWay() {
		r.k.replaying = false
	}
	r.k.p.ids.fitLocked()
}

func (r *Replay) flushLocked(position int64) error {
	p := r.k.p
	next, err := p.advanceLocked(position, r.changelog)
	if err != nil {
		return err
	}
	lookUps, err := r.resolve()
	if err != nil {
		return fmt.Errorf("look up pending timers: %w", err)
	}
	if r.checkpoint != nil {
		next.Checkpoint = r.checkpoint
	}
	next.Mark = r.mark
	large := r.large()
	if large && lookUps*lookUpShare <= len(r.records) {
		p.s.compactions.pause()
	}
	if large && p.state.Position == noPosition {
		if err := anchorLocked(p, next); err != nil {
			return err
		}
	}
	return p.storeLocked(next, r.records, r.checkpoint, large)
}

// anchorLocked writes a meta row with position 0 and otherwise the content of next. The first table of a
// partition overlaps with that row, so it stays in level 0. Otherwise Pebble would put it into the lowest
// level, and have to merge all later tables with it, instead of just moving them there.
func anchorLocked(p *Partition, next meta) error {
	next.Position, next.Checkpoint, next.Mark = 0, nil, Mark{}
	w := p.newBatchLocked()
	defer w.close()
	return w.commit(next)
}

// large reports whether the records, without duplicates, are worth a table.
func (r *Replay) large() bool {
	return len(r.records) >= r.k.p.s.tables.leastIDs || r.bytes >= tableBytes
}

// dedupe sorts the records by ID and keeps the last one of each ID.
func (r *Replay) dedupe() {
	sortRecords(r.records)
	kept := r.records[:0]
	for i := range r.records {
		if i+1 < len(r.records) && bytes.Equal(r.records[i].ID, r.records[i+1].ID) {
			r.bytes -= len(r.records[i].ID) + len(r.records[i].Bytes)
			continue
		}
		kept = append(kept, r.records[i])
	}
	clear(r.records[len(kept):])
	r.records = kept
}

// resolve looks up every ID that the filter does not exclude. It goes in the order of the IDs, so the iterator seldom
// has to seek far. It returns how many it has looked up.
func (r *Replay) resolve() (lookUps int, err error) {
	p := r.k.p
	f := p.ids.current.Load()
	it, err := newIDIterator(p.s.db)
	if err != nil {
		return 0, err
	}
	for i := range r.records {
		c := &r.records[i]
		if p.s.filters.denies(f, c.ID) {
			continue
		}
		lookUps++
		at, seekErr := it.seek(p.prefix, c.ID)
		if err = errors.Join(seekErr, p.targets.check(at)); err != nil {
			break
		}
		c.Before, c.target = at.ref, at.target
	}
	return lookUps, errors.Join(err, it.Close(), p.intact())
}

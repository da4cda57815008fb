package statestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/timer"
)

// How many pending timers have IDs that belong on another partition is kept with
// the number of pending ones, in the meta row and hence in each batch: it costs a
// hash of the ID when a timer comes and when it goes. It is right for one number of
// partitions, which stands beside it. For another number the rows are scanned once:
//
//   - A Recount begins under the partition's lock, with an iterator, which sees
//     just what the batches before have written. The batches behind add to its
//     changes, and the number on disk is none meanwhile.
//   - When the scan is through, its sum and the changes are the number, also under
//     the lock. A batch is before the iterator or among the changes, never both.
//   - What replaces rows by other means than a batch or a table (a wipe, damage, a
//     write that failed and has the state read again) ends the recount: its number
//     is not taken, and another one begins with the next CountFor. So does a scan
//     that is told to stop.
//
// A store without Home writes no number: the next one that counts begins again.

// recountRows is after how many rows a recount looks whether it is to stop.
const recountRows = 1 << 12

// Recount is a scan for misplaced timers.
type Recount struct {
	p          *Partition
	partitions int32
	it         *pebble.Iterator
	changes    int64 // by batches since it began; guarded by p.write
}

// CountFor has the misplaced timers counted for a request topic of so many
// partitions, from now on. If what is stored was counted for another number it
// returns a scan that the caller must Run. It needs no handle. Errors wrap
// ErrNewerFormat or ErrCorrupt.
func (p *Partition) CountFor(partitions int32) (*Recount, error) {
	if p.s.o.Home == nil {
		return nil, nil
	}
	if err := p.s.enterChange(); err != nil {
		return nil, err
	}
	defer p.s.leave()
	p.write.Lock()
	defer p.write.Unlock()
	if err := errors.Join(p.intact(), p.loadLocked()); err != nil {
		return nil, err
	}
	p.recount = nil
	if p.state.Partitions == partitions {
		return nil, nil
	}
	next := p.state
	next.Partitions, next.Misplaced = 0, 0
	if next.Pending == 0 {
		next.Partitions = partitions
		p.setState(next)
		return nil, nil
	}
	it, err := p.s.db.NewIter(&pebble.IterOptions{LowerBound: p.prefix.key(kindID), UpperBound: p.prefix.key(kindID + 1)})
	if err != nil {
		return nil, fmt.Errorf("count misplaced timers of partition %s: %w", p.id, err)
	}
	p.setState(next)
	p.recount = &Recount{p: p, partitions: partitions, it: it}
	return p.recount, nil
}

// Run scans, until ctx ends: then the number stays unknown. It must be called once,
// and before the store is closed.
func (r *Recount) Run(ctx context.Context) error {
	p := r.p
	if err := p.s.enter(); err != nil {
		return err
	}
	defer p.s.leave()
	n, err := r.scan(ctx)
	p.write.Lock()
	defer p.write.Unlock()
	if p.recount != r {
		return nil // what it has read is not so any more, nor is its error
	}
	p.recount = nil
	if err = errors.Join(err, p.intact()); err != nil {
		return fmt.Errorf("count misplaced timers of partition %s: %w", p.id, err)
	}
	if ctx.Err() != nil || !p.loaded.Load() {
		return nil
	}
	next := p.state
	next.Partitions, next.Misplaced = r.partitions, n+r.changes
	p.setState(next)
	return nil
}

func (r *Recount) scan(ctx context.Context) (n int64, err error) {
	p, rows := r.p, 0
	for ok := r.it.First(); ok; ok = r.it.Next() {
		if p.s.o.Home(r.it.Key()[idAt:], r.partitions) != p.id.Partition {
			n++
		}
		if rows++; rows%recountRows == 0 && ctx.Err() != nil {
			break
		}
	}
	return n, r.it.Close()
}

// Misplaced is how many pending timers have IDs that belong on another partition,
// as of the last batch; false where that is not known, since nobody counts or a
// Recount is under way. It never waits.
func (p *Partition) Misplaced() (n int64, known bool) {
	n = p.misplaced.Load()
	return max(n, 0), n >= 0
}

// showMisplaced follows a change of state; p.write is held.
func (p *Partition) showMisplaced() {
	if p.state.Partitions == 0 {
		p.misplaced.Store(-1)
		return
	}
	p.misplaced.Store(p.state.Misplaced)
}

// tally is what one batch changes of the number of misplaced timers.
type tally struct {
	home       func(id []byte, partitions int32) int32
	partitions int32 // 0: nothing is counted
	here       int32
	change     int64
}

func (p *Partition) tallyFor(partitions int32) tally {
	if p.s.o.Home == nil {
		partitions = 0
	}
	return tally{home: p.s.o.Home, partitions: partitions, here: p.id.Partition}
}

func (p *Partition) tallyLocked() tally {
	if p.recount != nil {
		return p.tallyFor(p.recount.partitions)
	}
	return p.tallyFor(p.state.Partitions)
}

// add takes note of what became of an ID. One that stays pending stays where it is.
func (t *tally) add(id []byte, before, after timer.Ref) {
	if t.partitions == 0 || before.IsAbsent() == after.IsAbsent() || t.home(id, t.partitions) == t.here {
		return
	}
	if after.IsAbsent() {
		t.change--
	} else {
		t.change++
	}
}

// enter makes the change one of the state that the batch leads to; p.write is held.
// Should the batch fail, the state is read again, and no recount goes on.
func (t *tally) enter(p *Partition, next *meta) {
	switch {
	case p.recount != nil:
		p.recount.changes += t.change
	case t.partitions == 0:
		next.Partitions, next.Misplaced = 0, 0
	default:
		next.Misplaced += t.change
	}
}

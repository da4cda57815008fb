package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// checkpointPause is between two checkpoints that are wanted by workers.
	checkpointPause = 500 * time.Millisecond
	// changeMemory is about what an ID takes that is in the delta with nothing
	// pending: the item, its place among the items, the ID.
	changeMemory = 300 // bytes
)

// delta is what committed steps have changed since the last checkpoint of the
// store. It is Run's own.
//
// A committed step is durable in the changelog, so nothing is won by bringing it
// to the disk at once: a crash replays from the store's position in any case.
// Here it waits in memory, and of a timer that comes and goes between two
// checkpoints the store never hears. What is left goes to the store as one, with
// the position behind the last step that was folded in: since the delta takes
// whole steps in the order of the changelog, the store is a prefix's fold after
// each checkpoint.
//
// A checkpoint is written before the store is flushed, which bounds what a restart
// after a kill has to replay, when the delta has reached its bytes, and when a
// worker needs rows in the store.
//
// It takes a second or more where much has changed, and steps go on
// meanwhile. So it freezes what has changed so far, and a goroutine of its own
// writes that; later steps are folded into what begins empty, whose changes are
// held against the frozen ones, as if these were stored. One checkpoint at a time.
//
// What an ID stands for is in neither place the truth alone, so its item stays
// with its worker until the store has what the last committed step said of it:
// item.stale tells the worker. The worker hears of it in the order in which steps
// are folded and checkpoints end, which is Run's, who scans too. Hence a load that
// was scanned before a checkpoint ended is posted before the items are let go, and
// finds them; one that was scanned after it finds the rows.
type delta struct {
	items      []*item // that differ from the store, each once
	bytes      int64   // about what they hold
	since      time.Time
	position   int64  // of the changelog, behind the last step
	checkpoint []byte // of the last step

	frozen  []*item         // being written, nil: no checkpoint is under way
	waiters []chan struct{} // closed when it has ended
	done    chan error      // tells that it has ended
	ended   time.Time       // when the last one did
	lost    bool            // it has failed: nothing more can be stored
}

// diff is what the delta knows of an item. It is Run's own.
type diff struct {
	stored timer.Ref    // what the store holds, or does when the frozen delta is written
	after  *timer.Timer // what is pending, nil for nothing
	at     int          // place in delta.items, counted from 1; 0: it does not differ
	frozen bool         // it is in the frozen delta
}

// bytes is about how much memory the change holds.
func (c *diff) bytes() int64 {
	if c.after == nil {
		return changeMemory
	}
	return changeMemory + held(c.after)
}

// fold takes in what a step did to the item's ID.
func (d *delta) fold(it *item, before timer.Ref, after *timer.Timer) {
	c := &it.diff
	if c.at == 0 {
		d.items = append(d.items, it)
		c.at, c.stored = len(d.items), before
	} else {
		d.bytes -= c.bytes()
	}
	if c.after = after; after == nil && c.stored.IsAbsent() {
		d.drop(it)
		return
	}
	d.bytes += c.bytes()
}

// drop takes out an item that does not differ from the store any more.
func (d *delta) drop(it *item) {
	last := len(d.items) - 1
	moved := d.items[last]
	d.items[it.diff.at-1], moved.diff.at = moved, it.diff.at
	d.items[last] = nil
	d.items, it.diff.at = d.items[:last], 0
}

// stale reports whether the store does not have what committed steps said of the
// item.
func (c *diff) stale() bool { return c.at != 0 || c.frozen }

// freeze returns the batch that brings the delta into the store.
func (d *delta) freeze(changelog [16]byte) *statestore.Batch {
	b := &statestore.Batch{
		Changelog: changelog, Position: d.position, Checkpoint: d.checkpoint,
		Changes: make([]statestore.Change, len(d.items)),
	}
	for i, it := range d.items {
		c := &it.diff
		b.Changes[i] = statestore.Change{ID: []byte(it.id), Before: c.stored, After: c.after}
		c.at, c.after, c.frozen = 0, nil, true
	}
	d.frozen, d.items, d.bytes, d.since = d.items, nil, 0, time.Time{}
	if d.frozen == nil {
		d.frozen = []*item{} // nothing but the position
	}
	return b
}

// thaw ends the checkpoint: it returns the items that the store has now.
func (d *delta) thaw() []*item {
	stored := d.frozen[:0]
	for _, it := range d.frozen {
		if it.diff.frozen = false; !it.diff.stale() {
			stored = append(stored, it)
		}
	}
	d.frozen, d.ended = nil, time.Now()
	release(d.waiters)
	d.waiters = nil
	return stored
}

func release(waiters []chan struct{}) {
	for _, w := range waiters {
		close(w)
	}
}

// Checkpoint has what is committed brought into the store, and waits for that,
// unless ctx ends first or the partition is not live.
func (p *Partition) Checkpoint(ctx context.Context) {
	done := make(chan struct{})
	p.mu.Lock()
	if !p.looping {
		p.mu.Unlock()
		return
	}
	p.asked = append(p.asked, done)
	p.mu.Unlock()
	p.kick()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// askedFor returns who waits for the next checkpoint.
func (p *Partition) askedFor() []chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

// setLooping notes that somebody looks after who asks for a checkpoint, or lets
// them go.
func (p *Partition) setLooping(yes bool) {
	p.mu.Lock()
	p.looping = yes
	p.mu.Unlock()
	if !yes {
		release(p.askedFor())
		release(p.delta.waiters)
		p.delta.waiters = nil
	}
}

// endCheckpoint ends the one that has been written, if there is one.
func (p *Partition) endCheckpoint() error {
	select {
	case err := <-p.delta.done:
		return p.checkpointed(err)
	default:
		return nil
	}
}

// checkpoint begins one if it is time.
func (p *Partition) checkpoint(ctx context.Context) {
	d := &p.delta
	if d.frozen != nil {
		return
	}
	asked := p.askedFor()
	switch {
	case d.since.IsZero():
		release(asked)
	case len(asked) > 0, d.bytes >= p.o.DeltaBytes, p.wanted.Load() && time.Since(d.ended) >= checkpointPause:
		d.waiters = asked
		p.beginCheckpoint(ctx)
	}
}

// beginCheckpoint has what is in the delta written. At the end of a life it does
// not wait for the disk to keep up.
func (p *Partition) beginCheckpoint(ctx context.Context) {
	p.wanted.Store(false)
	b := p.delta.freeze(p.o.Topics.Changelog.ID)
	p.aside(func() {
		start := time.Now()
		err := p.take.WaitForRoom(ctx, b)
		if err == nil || ctx.Err() != nil {
			err = p.take.Apply(b)
		}
		p.log.Debug("checkpoint of the store written", "changes", len(b.Changes), "took", time.Since(start))
		p.delta.done <- err
		p.kick()
	})
}

// checkpointed takes the outcome of a checkpoint, and lets the workers forget
// what the store has.
func (p *Partition) checkpointed(err error) error {
	if err != nil {
		p.delta.lost = true
		return fmt.Errorf("write a checkpoint of the store: %w", err)
	}
	p.take.Unsaved(p.delta.since) // changes are in sync no earlier than this one
	by := make([][]*item, len(p.workers))
	for _, it := range p.delta.thaw() {
		i := p.worker([]byte(it.id))
		by[i] = append(by[i], it)
	}
	for i, items := range by {
		if len(items) > 0 {
			p.workers[i].post(message{stored: items})
		}
	}
	return nil
}

// settle brings what is committed into the store, at the end of a life: nothing
// is sealed any more, and no checkpoint is written but the last one, whose
// outcome waits. What cannot be stored is replayed by whoever comes next.
func (p *Partition) settle() {
	d := &p.delta
	var err error
	if d.frozen != nil && !d.lost {
		err = p.checkpointed(<-d.done)
	}
	if !d.lost {
		for j := p.nextJob(); j != nil; j = p.nextJob() {
			p.foldIn(j)
		}
	}
	if !d.lost && !d.since.IsZero() {
		err = p.take.Apply(d.freeze(p.o.Topics.Changelog.ID))
	}
	if err != nil {
		p.log.Warn("the last changes are not in the local store and will be replayed", "err", err)
	}
}

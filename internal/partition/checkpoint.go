package partition

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/partition/upcoming"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// checkpointPause is the pause between two checkpoints that are written so that timers can be parked.
const checkpointPause = 500 * time.Millisecond

// maxAsked is how many callers may ask for a checkpoint in one round of the keeper. Further ones wait for the next
// round.
const maxAsked = 16

// checkpoints bring the planners' dirty timers into the store. The keeper's goroutine owns them, except the fields that
// the planners' locks guard. The lane calls note and mustWait. Any goroutine may send to asked.
//
// A checkpoint is written before the store is flushed, which bounds the replay after a kill. It is also written when
// dirty timers have used their memory, and when timers are to be parked whose rows the store does not have yet. If much
// has changed it takes a second or more, so a goroutine of its own writes it. There is one at a time. If dirty timers
// use up their memory while one is written, the lane seals nothing until the next one has begun.
//
// One goroutine, the keeper's, both ends checkpoints and scans the store. So no planner forgets a change between a scan
// and the load of its result.
type checkpoints struct {
	part  *Partition
	store *statestore.Handle
	subs  *subPartitions
	asked chan chan struct{} // callers that wait for a checkpoint, taken by beginIfDue
	// ends when the keeper does: then no more checkpoints are written, and asked is not read
	running context.Context
	stop    context.CancelFunc
	aside   func(func()) // begins the function that writes a checkpoint; tests change it

	holds atomic.Bool // the lane waits for a checkpoint to begin; freeze ends that

	// The following fields change under the locks of all planners, so one of these is enough to read them.
	since      time.Time        // when the first step was committed after the last checkpoint began; zero: none
	position   int64            // in the changelog, behind the last committed step
	checkpoint []byte           // of that step
	writing    bool             // only the keeper changes it
	counts     *upcoming.Counts // of pending timers, by due time

	done    chan error      // the outcome of the write
	waiters []chan struct{} // closed when the checkpoint has ended
	ended   time.Time       // when the last one ended
	lost    bool            // one has failed: nothing more can be stored
}

func newCheckpoints(l *lane) *checkpoints {
	c := &checkpoints{part: l.part, store: l.store, subs: l.subs, counts: upcoming.New(l.part.clock.millis()),
		asked: make(chan chan struct{}, maxAsked), done: make(chan error, 1), aside: func(f func()) { go f() }}
	c.running, c.stop = context.WithCancel(context.Background())
	return c
}

func release(waiters []chan struct{}) {
	for _, w := range waiters {
		close(w)
	}
}

// note notes that a step is committed. The caller holds the locks of all planners.
func (c *checkpoints) note(step *planner.Step, position int64, checkpoint []byte) {
	for _, g := range step.Segments {
		for _, x := range g.Changes() {
			c.count(x.Before, -1)
			c.count(x.After, 1)
		}
	}
	if c.since.IsZero() {
		if c.since = time.Now(); !c.writing {
			c.store.Unsaved(c.since)
		}
	}
	c.position, c.checkpoint = max(c.position, position), checkpoint
}

func (c *checkpoints) count(at timer.Ref, n int32) {
	if at.IsPending() {
		c.counts.Add(at.Due, n)
	}
}

// mustWait reports whether nothing may be sealed because dirty timers have filled their share of memory. Then it wakes
// the keeper, and the next checkpoint wakes the lanes when it begins. With nothing to write no checkpoint would begin,
// so a step is sealed however small the share is.
func (c *checkpoints) mustWait() bool {
	if !c.starved() {
		return false
	}
	c.holds.Store(true)
	c.part.life.Wake.Send()
	return c.starved() // a checkpoint may have begun before holds was set
}

func (c *checkpoints) starved() bool { return !c.unsaved().IsZero() && c.full() }

// full reports whether dirty timers that are not soon have filled their share of memory.
func (c *checkpoints) full() bool {
	n := int64(0)
	c.subs.lock()
	defer c.subs.unlock()
	for _, p := range c.subs.planners {
		n += p.Stats().DirtyBytes
	}
	return c.part.o.Memory.Dirty.Set(n)
}

// unsaved returns since when the store lacks a committed step, apart from those that are being written; zero: it lacks
// none.
func (c *checkpoints) unsaved() time.Time {
	s := c.subs.all[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.since
}

// end takes the outcome of a checkpoint that has been written, if there is one. Timers that waited for it may be due
// then.
func (c *checkpoints) end() (ended bool, err error) {
	select {
	case err := <-c.done:
		return true, c.written(err)
	default:
		return false, nil
	}
}

// await waits for the checkpoint that is being written, if there is one, and ends it.
func (c *checkpoints) await() error {
	if !c.writing || c.lost {
		return nil
	}
	return c.written(<-c.done)
}

// beginIfDue begins a checkpoint if it is time.
func (c *checkpoints) beginIfDue(ctx context.Context) {
	if c.writing {
		return
	}
	wanted := c.subs.any(func(x *planner.Planner) bool { return x.Stats().Wanted })
	var asked []chan struct{}
	for len(c.asked) > 0 {
		asked = append(asked, <-c.asked)
	}
	switch {
	case c.unsaved().IsZero():
		release(asked)
	case len(asked) > 0, c.full(), wanted && time.Since(c.ended) >= checkpointPause:
		c.waiters = asked
		c.begin(ctx)
	}
}

// begin starts writing the dirty timers. Once ctx has ended, the write does not wait for the disk to keep up.
func (c *checkpoints) begin(ctx context.Context) {
	b := c.freeze()
	c.aside(func() {
		start, n := time.Now(), len(b.Changes)
		err := c.store.WaitForRoom(ctx, b)
		if err == nil || ctx.Err() != nil {
			err = c.write(b)
		}
		c.part.life.Log.Debug("checkpoint of the store written", "changes", n, "duration", time.Since(start))
		c.done <- err
		c.part.life.Wake.Send()
	})
}

// freeze begins a flush of every planner between two steps, and returns the dirty timers as a batch for the store.
func (c *checkpoints) freeze() *statestore.Batch {
	parts, n := make([][]timer.Change, len(c.subs.all)), 0
	c.subs.lock()
	c.counts.Freeze()
	for _, p := range c.subs.planners {
		n += p.Stats().Changed
	}
	c.subs.each(n, func(s *subPartition) { parts[s.number] = s.planner.BeginFlush() })
	c.part.o.Memory.Dirty.Set(0)
	c.writing, c.since = true, time.Time{}
	b := &statestore.Batch{Changelog: c.part.o.Topics.Changelog.ID, Position: c.position, Checkpoint: c.checkpoint}
	c.subs.unlock()
	if c.holds.Swap(false) {
		c.part.o.Lanes.Wake()
	}
	if b.Changes = parts[0]; len(parts) > 1 {
		b.Changes = slices.Concat(parts...)
	}
	return b
}

// written takes the outcome of a checkpoint, and makes the planners forget the changes that the store has.
func (c *checkpoints) written(err error) error {
	if err != nil {
		c.lost = true
		return fmt.Errorf("write a checkpoint of the store: %w", err)
	}
	c.subs.ask(func(s *subPartition) { s.planner.EndFlush() })
	c.subs.lock()
	c.store.Unsaved(c.since) // the oldest change that the store lacks
	c.writing = false
	c.subs.unlock()
	c.ended = time.Now()
	release(c.waiters)
	c.waiters = nil
	return nil
}

// last ends the checkpoint under way and writes the last one, on the keeper's own goroutine. If a checkpoint has failed
// nothing more can be stored.
func (c *checkpoints) last() error {
	if err := c.await(); err != nil || c.lost || c.unsaved().IsZero() {
		return err
	}
	return c.write(c.freeze())
}

func (c *checkpoints) write(b *statestore.Batch) error {
	if c.part.o.BeforeCheckpoint != nil {
		c.part.o.BeforeCheckpoint(c.part.o.Topics.Request.Name, c.part.o.Partition)
	}
	return c.store.Apply(b)
}

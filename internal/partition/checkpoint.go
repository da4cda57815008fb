package partition

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// checkpointPause is the pause between two checkpoints that are written so that timers can be parked.
const checkpointPause = 500 * time.Millisecond

// maxAsked is how many callers may ask for a checkpoint in one round of the keeper. Further ones wait for the next
// round.
const maxAsked = 16

// checkpoints bring the planners' dirty timers into the store. The keeper's goroutine owns them. Any goroutine may send
// to asked.
//
// A checkpoint is written before the store is flushed, which bounds what a restart after a kill has to replay. It is
// also written when dirty timers have used their memory, and when timers are to be parked whose rows the store does not
// have yet. If much has changed it takes a second or more, so a goroutine of its own writes it. There is one at a time.
//
// One goroutine, the keeper's, both ends checkpoints and scans the store. So no planner forgets a change between a scan
// and the load of its result.
type checkpoints struct {
	*shared
	forecast *forecast
	asked    chan chan struct{} // callers that wait for a checkpoint, taken by beginIfDue
	// ends when the keeper does: then no more checkpoints are written, and asked is not read
	running context.Context
	stop    context.CancelFunc
	aside   func(func()) // begins the function that writes a checkpoint; tests change it

	since      time.Time // when the first step was applied after the last checkpoint began; zero: none
	position   int64     // in the changelog, behind the last step that was applied
	checkpoint []byte    // of that step

	writing bool
	done    chan error      // the outcome of the write
	waiters []chan struct{} // closed when the checkpoint has ended
	ended   time.Time       // when the last one ended
	lost    bool            // one has failed: nothing more can be stored
}

func newCheckpoints(sh *shared, f *forecast) *checkpoints {
	c := &checkpoints{shared: sh, forecast: f, asked: make(chan chan struct{}, maxAsked), done: make(chan error, 1),
		aside: func(f func()) { go f() }}
	c.running, c.stop = context.WithCancel(context.Background())
	return c
}

func release(waiters []chan struct{}) {
	for _, w := range waiters {
		close(w)
	}
}

// note notes that a step is about to be applied.
func (c *checkpoints) note(s *sealedStep) {
	if c.since.IsZero() {
		if c.since = time.Now(); !c.writing {
			c.store.Unsaved(c.since)
		}
	}
	c.position, c.checkpoint = max(c.position, s.position), s.checkpoint
}

// full reports whether dirty timers have filled their share of memory.
func (c *checkpoints) full() bool { return c.o.Memory.Dirty.Set(c.dirtyBytes()) }

// dirtyBytes is about how much memory dirty timers take that are not soon.
func (c *checkpoints) dirtyBytes() (n int64) {
	c.subs.ask(func(s *subPartition) { n += s.planner.Stats().DirtyBytes })
	return n
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
	case c.since.IsZero():
		release(asked)
	case len(asked) > 0, c.full(), wanted && time.Since(c.ended) >= checkpointPause:
		c.waiters = asked
		c.begin(ctx)
	}
}

// begin starts writing what is dirty. Once ctx has ended, the write does not wait for the disk to keep up.
func (c *checkpoints) begin(ctx context.Context) {
	b := c.freeze()
	c.aside(func() {
		start, n := time.Now(), len(b.Changes)
		err := c.store.WaitForRoom(ctx, b)
		if err == nil || ctx.Err() != nil {
			err = c.store.Apply(b)
		}
		c.life.Log.Debug("checkpoint of the store written", "changes", n, "took", time.Since(start))
		c.done <- err
		c.life.Wake.Send()
	})
}

// freeze begins a flush of every planner, and returns what is dirty as a batch for the store.
func (c *checkpoints) freeze() *statestore.Batch {
	c.forecast.freeze()
	parts, n := make([][]timer.Change, len(c.subs.all)), 0
	c.subs.ask(func(s *subPartition) { n += s.planner.Stats().Changed })
	c.subs.each(n, func(s *subPartition) {
		s.mu.Lock()
		defer s.mu.Unlock()
		parts[s.number] = s.planner.BeginFlush()
	})
	changes := parts[0]
	if len(parts) > 1 {
		changes = slices.Concat(parts...)
	}
	c.o.Memory.Dirty.Set(0)
	c.writing, c.since = true, time.Time{}
	return &statestore.Batch{
		Changelog: c.o.Topics.Changelog.ID, Position: c.position, Checkpoint: c.checkpoint, Changes: changes,
	}
}

// written takes the outcome of a checkpoint, and makes the planners forget what the store has.
func (c *checkpoints) written(err error) error {
	if err != nil {
		c.lost = true
		return fmt.Errorf("write a checkpoint of the store: %w", err)
	}
	c.store.Unsaved(c.since) // the oldest change that the store lacks
	c.forecast.stored()
	c.subs.ask(func(s *subPartition) { s.planner.EndFlush() })
	c.writing, c.ended = false, time.Now()
	release(c.waiters)
	c.waiters = nil
	return nil
}

// last writes the last checkpoint, on the keeper's own goroutine.
func (c *checkpoints) last() error {
	if c.since.IsZero() {
		return nil
	}
	return c.store.Apply(c.freeze())
}

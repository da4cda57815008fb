package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/statestore"
)

// checkpointPause is between two checkpoints that are wanted for timers to be parked.
const checkpointPause = 500 * time.Millisecond

// checkpoints is what Run knows of bringing the planner's delta into the store: it is
// Run's own.
//
// A checkpoint is written before the store is flushed, which bounds what a restart
// after a kill has to replay, when the delta has reached its bytes, and when timers
// are to be parked whose rows the store does not have. It takes a second or more where
// much has changed, so a goroutine of its own writes it. One at a time.
//
// Run tells the planner that one has ended, and scans the store too: so nothing is
// forgotten between a scan and the load of what it found.
type checkpoints struct {
	since      time.Time // when the first change of the delta was folded; zero: there is none
	position   int64     // of the changelog, behind the last step that was folded
	checkpoint []byte    // of that step

	writing bool
	done    chan error      // tells that it is written
	aside   func(func())    // runs what writes it
	waiters []chan struct{} // closed when it has ended
	ended   time.Time       // when the last one did
	lost    bool            // one has failed: nothing more can be stored
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
	p.life.Kick()
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
		release(p.checkpoints.waiters)
		p.checkpoints.waiters = nil
	}
}

// endCheckpoint ends the one that has been written, if there is one.
func (p *Partition) endCheckpoint() error {
	select {
	case err := <-p.checkpoints.done:
		return p.checkpointed(err)
	default:
		return nil
	}
}

// checkpoint begins one if it is time.
func (p *Partition) checkpoint(ctx context.Context) {
	c := &p.checkpoints
	if c.writing {
		return
	}
	wanted, asked := p.plans.wanted(), p.askedFor()
	switch {
	case c.since.IsZero():
		release(asked)
	case len(asked) > 0, p.deltaFull(), wanted && time.Since(c.ended) >= checkpointPause:
		c.waiters = asked
		p.beginCheckpoint(ctx)
	}
}

// beginCheckpoint has what is in the delta written. At the end of a life it does
// not wait for the disk to keep up.
func (p *Partition) beginCheckpoint(ctx context.Context) {
	b := p.freeze()
	p.checkpoints.aside(func() {
		start, n := time.Now(), len(b.Changes)
		err := p.handle.WaitForRoom(ctx, b)
		if err == nil || ctx.Err() != nil {
			err = p.handle.Apply(b)
		}
		p.life.Log.Debug("checkpoint of the store written", "changes", n, "took", time.Since(start))
		p.checkpoints.done <- err
		p.life.Kick()
	})
}

// freeze makes the delta a batch for the store.
func (p *Partition) freeze() *statestore.Batch {
	changes := p.plans.freeze()
	p.o.Memory.Delta.Set(0)
	c := &p.checkpoints
	c.writing, c.since = true, time.Time{}
	return &statestore.Batch{
		Changelog: p.o.Topics.Changelog.ID, Position: c.position, Checkpoint: c.checkpoint, Changes: changes,
	}
}

// checkpointed takes the outcome of a checkpoint, and has the planner forget what the
// store has.
func (p *Partition) checkpointed(err error) error {
	c := &p.checkpoints
	if err != nil {
		c.lost = true
		return fmt.Errorf("write a checkpoint of the store: %w", err)
	}
	p.handle.Unsaved(c.since) // changes are in sync no earlier than this one
	p.plans.thaw()
	c.writing, c.ended = false, time.Now()
	release(c.waiters)
	c.waiters = nil
	p.wakeForDue()
	return nil
}

// settle brings what is committed into the store, at the end of a life: nothing
// is sealed any more, and no checkpoint is written but the last one, whose
// outcome waits. What cannot be stored is replayed by whoever comes next.
func (p *Partition) settle() {
	c := &p.checkpoints
	var err error
	if c.writing && !c.lost {
		err = p.checkpointed(<-c.done)
	}
	if !c.lost {
		for j := p.nextJob(); j != nil; j = p.nextJob() {
			p.count(j)
			p.foldIn(j)
		}
	}
	if !c.lost && !c.since.IsZero() {
		err = p.handle.Apply(p.freeze())
	}
	if err != nil && !errors.Is(err, statestore.ErrEnded) {
		p.life.Log.Warn("the last changes are not in the local store and will be replayed", "err", err)
	}
}

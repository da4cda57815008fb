package statestore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/beats"
)

// beforeFlushWait bounds how long a flush waits for Options.BeforeFlush.
const beforeFlushWait = 10 * time.Second

// upkeep is the store's background goroutine. It flushes, raises low bounds, learns filters and watches
// the disk. Others send it work through the channels.
type upkeep struct {
	s *Store

	stop, done chan struct{}
	sweeps     chan *Partition // partitions whose low bound is worth raising
	flush      beats.Signal    // too much has changed since the last flush

	behind atomic.Int64 // changes that the disk lacks: see Handle.Behind
	dirty  atomic.Bool  // something was written since the last flush began
	busy   sync.Mutex   // held over one flush or sweep, I/O included

	full beats.Reminder // for warnings that the disk is nearly full; only run uses it
}

func (u *upkeep) init(s *Store) {
	u.s, u.stop, u.done = s, make(chan struct{}), make(chan struct{})
	u.sweeps, u.flush = make(chan *Partition, maxSweepsWaiting), beats.NewSignal()
}

// run works until stop. It flushes at an interval, or earlier if so much has changed that a restart after
// a kill would have much to replay. The interval begins at the end of a flush, so a process that stood
// still does not flush twice in a row.
func (u *upkeep) run() {
	defer close(u.done)
	o := &u.s.o
	timer := time.NewTimer(o.FlushInterval)
	defer timer.Stop()
	u.lookAtSpace()
	for {
		select {
		case <-u.stop:
			return
		case p := <-u.sweeps:
			p.sweepQueued.Store(false)
			if err := u.sweep(p); err != nil {
				o.Logger.Error("sweep of the store failed", "partition", p.id.String(), "err", err)
			}
			continue
		case ids := <-u.s.filters.learns:
			more, err := ids.learn()
			if more {
				ids.askToLearn()
			}
			if err != nil && !errors.Is(err, ErrEnded) {
				o.Logger.Warn("filter of timer IDs was not learned", "partition", ids.p.id.String(), "err", err)
			}
			continue
		case <-timer.C:
		case <-u.flush:
			if u.behind.Load() < o.FlushChanges {
				continue // there was a flush in between
			}
		}
		u.behind.Store(0)
		u.lookAtSpace()
		u.beforeFlush()
		if err := u.s.Flush(); err != nil && !errors.Is(err, ErrEnded) {
			o.Logger.Error("flush of the store failed", "err", err)
		}
		timer.Reset(o.FlushInterval)
	}
}

// beforeFlush lets the owners apply waiting changes, for at most beforeFlushWait.
func (u *upkeep) beforeFlush() {
	if u.s.o.BeforeFlush == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), beforeFlushWait)
	defer cancel()
	returned := make(chan struct{})
	defer close(returned)
	go func() {
		select {
		case <-u.stop:
			cancel()
		case <-returned:
		}
	}()
	u.s.o.BeforeFlush(ctx)
}

func (u *upkeep) sweep(p *Partition) error {
	if err := u.s.enter(); err != nil {
		return err
	}
	defer u.s.leave()
	u.busy.Lock()
	defer u.busy.Unlock()
	return p.sweep()
}

// changed counts changes that the disk lacks, and asks for a flush if there are too many.
func (u *upkeep) changed(n int) {
	if u.behind.Add(int64(n)) < u.s.o.FlushChanges {
		return
	}
	u.flush.Send()
}

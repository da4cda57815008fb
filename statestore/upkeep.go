package statestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/tasks"
)

// beforeFlushWait bounds how long a flush waits for Options.BeforeFlush.
const beforeFlushWait = 10 * time.Second

// maxWaiting bounds the queues of upkeep. A partition that finds one full asks again after more changes or look-ups;
// the next flush sweeps it in any case.
const maxWaiting = 64

// upkeep is the store's background goroutine. It flushes, raises low bounds, learns filters and watches
// the disk. Others send it work through the channels.
type upkeep struct {
	s *Store

	tasks  *tasks.Group    // run, unless the store is read-only
	sweeps chan *Partition // whose low bound is worth raising
	learns chan *Partition // whose filter may be worth learning
	flush  beats.Signal    // too much has changed since the last flush

	behind atomic.Int64 // changes that the disk lacks: see Handle.Behind
	dirty  atomic.Bool  // something was written since the last flush began
	busy   sync.Mutex   // held over one flush or sweep, I/O included

	full beats.Reminder // for warnings that the disk is nearly full; only run uses it
}

func (u *upkeep) init(s *Store) {
	u.s, u.tasks = s, tasks.New(context.Background())
	u.sweeps, u.learns = make(chan *Partition, maxWaiting), make(chan *Partition, maxWaiting)
	u.flush = beats.NewSignal()
}

// run works until stop. It flushes at an interval, or earlier if so much has changed that a restart after
// a kill would have much to replay. The interval begins at the end of a flush, so a process that stood
// still does not flush twice in a row.
func (u *upkeep) run(ctx context.Context) {
	o := &u.s.o
	timer := time.NewTimer(o.FlushInterval)
	defer timer.Stop()
	u.lookAtSpace()
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-u.sweeps:
			p.sweepQueued.Store(false)
			if err := u.sweep(p); err != nil {
				o.Logger.Error("sweep of the store failed", "partition", p.id.String(), "err", err)
			}
			continue
		case p := <-u.learns:
			more, err := p.ids.learn()
			if more {
				p.ids.askToLearn()
			}
			if err != nil && !errors.Is(err, ErrEnded) {
				o.Logger.Warn("cannot build the filter of timer IDs", "partition", p.id.String(), "err", err)
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

// changed counts changes that the disk lacks, and asks for a flush if there are too many.
func (u *upkeep) changed(n int) {
	if u.behind.Add(int64(n)) < u.s.o.FlushChanges {
		return
	}
	u.flush.Send()
}

// beforeFlush lets the owners apply waiting changes, for at most beforeFlushWait.
func (u *upkeep) beforeFlush() {
	if u.s.o.BeforeFlush == nil {
		return
	}
	ctx, cancel := context.WithTimeout(u.tasks.Context(), beforeFlushWait)
	defer cancel()
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

// Flush makes earlier changes durable. It also records the in-sync time of every live partition, idle ones included.
func (s *Store) Flush() error {
	if err := s.enterChange(); err != nil {
		return err
	}
	defer s.leave()
	s.upkeep.busy.Lock()
	defer s.upkeep.busy.Unlock()
	for _, p := range s.known() {
		if p.deletions.Load() > 0 {
			if err := p.sweep(); err != nil {
				return fmt.Errorf("flush store: partition %s: %w", p.id, err)
			}
		}
		if err := p.refresh(); err != nil {
			return fmt.Errorf("flush store: partition %s: %w", p.id, err)
		}
	}
	if !s.upkeep.dirty.Swap(false) {
		return nil
	}
	if err := s.db.Flush(); err != nil {
		s.upkeep.dirty.Store(true)
		return fmt.Errorf("flush store: %w", err)
	}
	return nil
}

const (
	// leastSpace bytes must be free on the disk, on top of the store's size: a compaction may write all of it
	// once more before it removes the old tables.
	leastSpace = 256 << 20
	// saySpace is the least time between two warnings that there is less.
	saySpace = 10 * time.Minute
)

// freeBytes is the free space for this process on the store's disk, or -1 if that is not known.
func (o *Options) freeBytes() int64 {
	usage, err := o.fs().GetDiskUsage(o.Dir)
	if err != nil {
		return -1 // for example a file system in memory
	}
	return int64(min(usage.AvailBytes, 1<<62))
}

// lookAtSpace warns if the disk is nearly full. A full disk ends the process.
func (u *upkeep) lookAtSpace() {
	free := u.s.o.freeBytes()
	takes := u.s.db.Metrics().DiskSpaceUsage()
	if need := int64(takes) + leastSpace; free >= 0 && free < need && u.full.Due(saySpace) {
		u.s.o.Logger.Warn("the disk of the data directory is nearly full: the instance ends when it is; make room, "+
			"or give it a larger one",
			"directory", u.s.o.Dir, "free_bytes", free, "wanted_bytes", need, "store_bytes", takes)
	}
}

const (
	// An Apply that makes a table waits while level 0 has roomLayers layers of tables or more. Each layer costs every
	// look-up a probe.
	roomLayers = 24
	// A replay looks up little, so it waits only at replayRoom times as many.
	replayRoom = 2
	// replaySpare is how far below that limit AwaitRoom waits. Compactions have to run by then: see
	// pauseLayers.
	replaySpare = 4
	// spareLayers is how many layers such Applies may add to those that a replay has left.
	spareLayers = 8

	// roomWait is how long such an Apply, or a replay's flush, waits at most. If the disk has not merged
	// anything by then, waiting longer does not help.
	roomWait = 30 * time.Second

	// roomCheck is how often a waiting caller checks whether it has lost the partition.
	roomCheck = 100 * time.Millisecond
)

// WaitForRoom waits while too many tables are to be merged, for at most 30 s or until ctx ends, if Apply would make a
// table of the batch. It holds no lock, so the partition can be acquired and the store closed.
func (h *Handle) WaitForRoom(ctx context.Context, b *Batch) error {
	if !h.p.s.large(b) {
		return nil
	}
	return waitForRoom(ctx, h, false, 0)
}

// AwaitRoom is for background replays, between two flushes. It waits until a Flush would not have to
// wait and would leave replaySpare layers to others: for at most 30 s, or until ctx ends.
func (h *Handle) AwaitRoom(ctx context.Context) error {
	return waitForRoom(ctx, h, true, replaySpare)
}

// waitForRoom waits until there is room for more than spare layers.
func waitForRoom(ctx context.Context, k *Handle, replaying bool, spare int) error {
	s := k.p.s
	deadline, ticker := time.NewTimer(roomWait), time.NewTicker(roomCheck)
	defer deadline.Stop()
	defer ticker.Stop()
	var start time.Time
	for {
		compacted := s.events.compacted.wait()
		layers, err := layersOf(k)
		if err != nil || layers+spare < s.room(layers, replaying) {
			return err
		}
		if start.IsZero() {
			start = time.Now()
			s.events.replayWaits.Add(1)
			defer func() { s.events.replayNanos.Add(time.Since(start).Nanoseconds()) }()
		}
		select {
		case <-compacted:
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.upkeep.tasks.Context().Done():
			return ErrClosed
		case <-deadline.C:
			s.o.Logger.Warn("store compactions do not keep up: check the disk", "partition", k.p.id.String(),
				"level0_layers", layers)
			return nil
		}
	}
}

// room returns the number of layers at which the caller has to wait. layers is how many there are, which it
// notes for compactions if the caller is a replay. An Apply does not wait for layers that a replay has
// left, because merging all partitions may take a minute.
func (s *Store) room(layers int, replaying bool) int {
	if replaying {
		s.compactions.replaying(layers)
		return replayRoom * s.roomLayers
	}
	if left := s.compactions.left(layers); left > 0 {
		return max(s.roomLayers, left+spareLayers)
	}
	return s.roomLayers
}

// layersOf is Store.level0Layers, or an error if the handle has lost the partition.
func layersOf(k *Handle) (int, error) {
	s := k.p.s
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	if err := k.check(); err != nil {
		return 0, err
	}
	return s.level0Layers(), nil
}

// level0Layers returns how many layers of tables level 0 has.
func (s *Store) level0Layers() int { return int(s.db.Metrics().Levels[0].Sublevels) }

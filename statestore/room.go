package statestore

import (
	"context"
	"sync"
	"time"
)

const (
	// roomLayers of tables in level 0 are too many to add one more: a checkpoint
	// waits until there are fewer. Each costs every look-up a probe.
	roomLayers = 24
	// replayRoom times as many are what a replay waits at: it looks up little.
	replayRoom = 2
	// spareLayers are what checkpoints may add to those that a replay has left.
	spareLayers = 8

	// roomWait is how long a checkpoint, or a replay's flush, waits at most. A disk that
	// has not merged anything by then is not helped by waiting.
	roomWait = 30 * time.Second

	// roomCheck is how often it looks whether it has lost the partition.
	roomCheck = 100 * time.Millisecond
)

// WaitForRoom waits before a batch that Apply makes a table of, while too many tables
// wait to be merged, 30 s at most and until ctx ends. No lock is held meanwhile, so
// that the partition may be acquired and the store closed.
func (k *Handle) WaitForRoom(ctx context.Context, b *Batch) error {
	if !k.p.s.large(b) {
		return nil
	}
	return k.waitForRoom(ctx, false)
}

func (k *Handle) waitForRoom(ctx context.Context, replaying bool) error {
	s := k.p.s
	deadline, ticker := time.NewTimer(roomWait), time.NewTicker(roomCheck)
	defer deadline.Stop()
	defer ticker.Stop()
	var start time.Time
	for {
		compacted := s.events.compacted.wait()
		layers, err := k.layers()
		if err != nil || layers < s.room(layers, replaying) {
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
		case <-s.upkeep.stop:
			return ErrClosed
		case <-deadline.C:
			s.o.Logger.Warn("store does not keep up", "partition", k.p.id.String(), "level0_layers", layers)
			return nil
		}
	}
}

// room returns how many layers are too many to add one, and lets compactions know of a replay;
// layers is how many there are. Those that a replay has left are no reason for a checkpoint
// to wait: merging all partitions may take a minute.
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

// layers returns how many layers of tables level 0 has, while the handle owns the
// partition.
func (k *Handle) layers() (int, error) {
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

// signal wakes everybody who waits, each time it is given.
type signal struct {
	mu sync.Mutex
	ch chan struct{} // closed and forgotten when given
}

// wait returns a channel that is closed when the signal is given next.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

package statestore

import (
	"context"
	"time"
)

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
// table of the batch. It holds no lock meanwhile, so the partition can be acquired and the store closed.
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
		case <-s.upkeep.life.Done():
			return ErrClosed
		case <-deadline.C:
			s.o.Logger.Warn("store does not keep up", "partition", k.p.id.String(), "level0_layers", layers)
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

package ownership

import (
	"context"
	"fmt"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/replay"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/timer"
)

// lookBack is how many offsets of a log of checkpoints are read first. If they hold no checkpoint, lookMore times as
// many are read: a compacted log has few records.
const lookBack, lookMore = 1000, 8

// openCheckpoints begins before the last checkpoint that can be read now.
func (f *Follower) openCheckpoints(ctx context.Context) (v view, err error) {
	v.view.Position = -1
	start, _, end, err := partlog.Bounds(ctx, f.o.Client, f.log)
	if err != nil {
		return v, err
	}
	v.end = end
	v.from, _, err = f.checkpointBefore(ctx, start, end)
	return v, err
}

// checkpointBefore looks for the last checkpoint of a log. It returns an offset at or before the checkpoint, or the
// start if none can be read now.
func (f *Follower) checkpointBefore(ctx context.Context, start, end int64) (from int64, found bool, err error) {
	for back := int64(lookBack); ; back *= lookMore {
		from = max(start, end-back)
		found, err = f.hasCheckpoint(ctx, from)
		if err != nil || found || from == start {
			return from, found, err
		}
	}
}

// hasCheckpoint reports whether a checkpoint is committed at or behind an offset. It does not wait for open
// transactions; the replay does.
func (f *Follower) hasCheckpoint(ctx context.Context, from int64) (bool, error) {
	r := partlog.NewReader(f.o.Client, f.log, from)
	r.SetCompacted(true)
	for at := int64(-1); r.Position() > at; {
		at = r.Position()
		page, err := r.Next(ctx, fetchWait)
		if err != nil {
			return false, fmt.Errorf("look for the last checkpoint: %w", err)
		}
		for _, rec := range page.Records {
			if kind, _, err := wire.ParseKey(rec.Key); err == nil && kind == wire.KindCheckpoint {
				return true, nil
			}
		}
	}
	return false, nil
}

// nothing is a fold that keeps nothing.
type nothing struct{}

func (nothing) Hold(context.Context) error            { return nil }
func (nothing) Put(_, _ []byte, _ *timer.Timer) error { return nil }
func (nothing) Delete([]byte) error                   { return nil }
func (nothing) Checkpoint([]byte) error               { return nil }
func (nothing) Flush(replay.Point) error              { return nil }
func (nothing) Rest()                                 {}

// noTimers is the fold of a log that holds only checkpoints and claims.
type noTimers struct{ nothing }

func (noTimers) Put([]byte, []byte, *timer.Timer) error { return errTimer }
func (noTimers) Delete([]byte) error                    { return errTimer }

var errTimer = fmt.Errorf("a timer, where none can be: %w", wire.ErrCorrupt)

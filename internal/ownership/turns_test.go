package ownership

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/replay"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/topics"
	"github.com/waterclock/waterclock/statestore"
)

// A long replay that nobody waits for gives its slot to those who do after each part, and ends without it if it is ended
// meanwhile.
func TestAReplayThatNobodyWaitsForLetsOthersPass(t *testing.T) {
	store, err := statestore.Open(statestore.Options{Dir: "store", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	slots, turns := semaphore.NewWeighted(1), semaphore.NewWeighted(1)
	local := &Local{Handle: store.Partition(statestore.PartitionID{}).Acquire(), Slots: slots, Turns: turns}
	i := &intoLocal{f: NewFollower(FollowOptions{Topics: new(topics.Set), Local: local})}
	ctx, cancel := context.WithCancel(t.Context())
	if err := i.Hold(ctx); err != nil {
		t.Fatal(err)
	}
	part := func(position int64) {
		x := &timer.Timer{ID: []byte("a"), Occurrence: 1, Target: timer.Target{Topic: "t", Partition: timer.AnyPartition}}
		if err := i.Put(x.ID, nil, x); err != nil {
			t.Fatal(err)
		}
		i.begun = time.Now().Add(-partLeast)
		if err := i.Flush(replay.Point{Position: position}); err != nil {
			t.Fatal(err)
		}
	}
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		if err := slots.Acquire(t.Context(), 1); err == nil {
			slots.Release(1)
		}
	}()
	part(1)
	cancel()
	part(2) // from now on it has no slot
	part(3)
	<-passed
	if !slots.TryAcquire(1) {
		t.Error("a replay that has ended has the slot")
	}
	i.Rest()
	if slots.TryAcquire(1) || !turns.TryAcquire(1) {
		t.Error("the slot was given back twice, or the turn was not")
	}
}

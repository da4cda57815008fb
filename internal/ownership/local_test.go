package ownership

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/statestore"
)

// A slot bounds the memory of replays: when it is given back, the replay is closed and nothing refers to it any more.
func TestASlotGoesWithItsMemory(t *testing.T) {
	s, err := statestore.Open(statestore.Options{Dir: "store", FS: vfs.NewMem()})
	must(t, err)
	defer s.Close()
	local := &Local{Handle: s.Partition(statestore.PartitionID{}).Acquire(), Slots: semaphore.NewWeighted(1)}
	i := &intoLocal{f: &Follower{o: FollowOptions{Local: local}, view: view{newest: time.Now()}}}
	for range 2 {
		must(t, i.Hold(t.Context()))
		sink := i.Replay
		i.Rest()
		if err := sink.Flush(1); !errors.Is(err, statestore.ErrReplayOver) {
			t.Fatalf("flushed behind the rest: %v", err)
		}
	}
}

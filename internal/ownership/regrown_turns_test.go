package ownership

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"
)

// replayer returns a follower with a store of its own. Without turns it replays as an acquisition does.
func (re *regrown) replayer(t *testing.T, slots, turns *semaphore.Weighted) *Follower {
	t.Helper()
	t.Helper()
	f, _, _ := re.follower(&Local{Handle: re.empty(t), Slots: slots, Turns: turns, Room: 1 << 10})
	return f
}

// Background replays have all turns, and others wait for these. A partition that is acquired meanwhile replays at once.
func TestAnAcquisitionIsNotHeldUpByBackgroundReplays(t *testing.T) {
	slots, turns := semaphore.NewWeighted(3), semaphore.NewWeighted(2)
	const copies = 4
	working := make(chan struct{}, copies) // one for each that has a turn
	goOn, ended := make(chan struct{}), make(chan error, copies)
	for range copies {
		w := newRegrown(t)
		begun := sync.OnceFunc(func() { working <- struct{}{} })
		// the brokers do not answer
		w.fake.ControlKey(kmsg.Fetch.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			select {
			case <-goOn:
			default:
				begun()
				w.fake.SleepControl(func() { <-goOn })
			}
			return nil, nil, false
		})
		f := w.replayer(t, slots, turns)
		go func() { ended <- f.ToEnd(t.Context()) }()
	}
	for range 2 {
		<-working
	}
	if turns.TryAcquire(1) {
		t.Fatal("the background replays leave a turn")
	}
	acquired := newRegrown(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := acquired.replayer(t, slots, nil).ToEnd(ctx); err != nil {
		t.Errorf("background replays hold up an acquisition: %v", err)
	}
	if len(ended) > 0 {
		t.Error("a background replay has ended meanwhile")
	}
	close(goOn)
	for range copies {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A background replay that takes long does not hold up others that wait for the same turn.
func TestALongBackgroundReplayHoldsUpNoOther(t *testing.T) {
	slots, turns := semaphore.NewWeighted(2), semaphore.NewWeighted(1)
	copyOf := func(w *regrown) *Follower { return w.replayer(t, slots, turns) }
	long, short := newRegrown(t), newRegrown(t)
	working, caughtUp := make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(working) })
	long.fake.ControlKey(kmsg.Fetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) { // a page takes a while
		long.fake.KeepControl()
		if r.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset > 0 {
			begun()
			long.fake.SleepControl(func() {
				select {
				case <-caughtUp:
				case <-time.After(50 * time.Millisecond):
				}
			})
		}
		return nil, nil, false
	})
	ended := make(chan error, 1)
	slow := copyOf(long)
	go func() { ended <- slow.ToEnd(t.Context()) }()
	<-working
	if err := copyOf(short).ToEnd(t.Context()); err != nil || slow.Position() >= 60 {
		t.Errorf("another background replay, now at %d, holds it up: %v", slow.Position(), err)
	}
	close(caughtUp)
	if err := <-ended; err != nil || slow.Position() < 60 {
		t.Errorf("the long replay ended at %d, %v", slow.Position(), err)
	}
	if !turns.TryAcquire(1) || !slots.TryAcquire(2) {
		t.Error("a replay that has ended has a slot, or the turn")
	}
}

package statestore

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

// A replay writes many tables that all overlap. None is merged before the replay has ended or
// rested, unless there are too many layers. All of them are in level 0, so they are merged in one go
// and not with older tables.
func TestCompactionsWaitForReplays(t *testing.T) {
	const tables = 2 * compactLayers
	for name, c := range map[string]struct {
		hold   int64
		merged bool
	}{"there is room": {pauseLayers, false}, "too many layers": {compactLayers, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memStore(t)
				defer s.Close()
				s.tables.leastIDs = 1
				s.compactions.pauseLayers.Store(c.hold)
				k := s.Partition(partition0).Acquire()
				r, err := k.Replay(changelog, testNow)
				must(t, err)
				for i := range int64(tables) {
					for _, id := range []string{fmt.Sprint("a", i), fmt.Sprint("z", i)} {
						must(t, r.Put([]byte(id), nil, newTimer(id, i, i)))
					}
					must(t, r.Flush(i+1))
					time.Sleep(replayRest / 2)
					synctest.Wait()
				}
				if layers := s.level0Layers(); layers < tables != c.merged {
					t.Fatalf("%d layers of %d tables, %d compactions", layers, tables, s.db.Metrics().Compact.Count)
				}
				time.Sleep(replayRest)
				synctest.Wait()
				if layers := s.level0Layers(); layers >= compactLayers/2 {
					t.Fatalf("%d layers after the replay", layers)
				}
			})
		})
	}
}

// Compactions wait for a replay until it rests, there are too many layers, or the clock is
// set.
func TestWhenCompactionsWait(t *testing.T) {
	for name, c := range map[string]struct {
		layers int
		ago    time.Duration
		want   bool
	}{
		"it writes":             {1, 0, true},
		"it wrote before":       {pauseLayers - 1, replayRest / 2, true},
		"too many layers":       {pauseLayers, 0, false},
		"it rests":              {1, replayRest, false},
		"the clock is set back": {1, -time.Hour, false},
	} {
		m := newCompactions()
		if m.paused() {
			t.Fatal("compactions wait without a replay")
		}
		m.replaying(c.layers)
		m.replayed.Store(time.Now().Add(-c.ago).UnixNano())
		if got := m.paused(); got != c.want {
			t.Errorf("%s: compactions wait: %v, want %v", name, got, c.want)
		}
	}
}

// The first table overlaps with a row that is written before it. A crash between the two leaves an empty partition.
func TestReplayBeginsWithNothingFolded(t *testing.T) {
	s := memStore(t)
	defer s.Close()
	k := s.Partition(partition0).Acquire()
	must(t, k.enter())
	must(t, anchorLocked(k.p, k.p.state))
	k.leave()
	m, err := k.Meta()
	must(t, err)
	if m.Position != 0 || m.Pending != 0 || m.Checkpoint != nil {
		t.Fatalf("%+v", m)
	}
	wantIDs(t, k, "")
}

// A replay of many timers that have fired looks up its own stored rows. It does not hold compactions up, because each
// look-up asks all layers.
func TestCompactionsDoNotWaitForReplaysThatLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memStore(t)
		defer s.Close()
		s.tables.leastIDs = 1
		k := s.Partition(partition0).Acquire()
		r, err := k.Replay(changelog, testNow)
		must(t, err)
		for i := range int64(3 * compactLayers) {
			must(t, r.Put(fmt.Append(nil, "a", i), nil, newTimer(fmt.Sprint("a", i), i, i)))
			must(t, r.Put(fmt.Append(nil, "z", i), nil, newTimer(fmt.Sprint("z", i), i, i)))
			must(t, r.Delete(fmt.Append(nil, "a", i-1)))
			must(t, r.Flush(i+1))
			time.Sleep(2 * compactionsCheck)
			synctest.Wait()
		}
		// The first tables hold them up for a while, because there was nothing to look up then.
		time.Sleep(replayRest / 10)
		synctest.Wait()
		if layers := s.level0Layers(); layers > compactLayers {
			t.Fatalf("%d layers", layers)
		}
	})
}

// restful is a database that has nothing to merge, and notes when it was asked.
type restful struct{ asked atomic.Pointer[time.Time] }

// last returns when it was asked last.
func (r *restful) last() (at time.Time) {
	if p := r.asked.Load(); p != nil {
		at = *p
	}
	return at
}

func (*restful) GetAllowedWithoutPermission() int           { return 1 }
func (*restful) Schedule(pebble.CompactionGrantHandle) bool { return false }
func (r *restful) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	now := time.Now()
	r.asked.Store(&now)
	return false, pebble.WaitingCompaction{}
}

// Each wake-up of an idle process costs more than its work. So compactions are tried when other tickers of the process
// tick.
func TestCompactionsAreTriedWithOtherTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := beats.NewTicker(compactionsCheck)
		defer other.Stop()
		time.Sleep(compactionsCheck / 7)
		db, c := &restful{}, newCompactions()
		c.Register(1, db)
		defer c.Unregister()
		for range 10 {
			at := <-other.C
			synctest.Wait()
			if last := db.last(); !last.Equal(at) {
				t.Fatalf("tried at %v, another ticker ticked at %v", last, at)
			}
		}
	})
}

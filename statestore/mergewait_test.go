package statestore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

// full returns a store, and a replay with one record. The replay has no room as long as nothing
// merges the store's tables.
func full(t *testing.T) (*Store, *Replay) {
	s := memStore(t)
	s.tables.leastIDs, s.roomLayers = 1, 0
	r, err := s.Partition(partition0).Acquire().Replay(changelog, testNow)
	must(t, err)
	must(t, r.Put([]byte("a"), nil, newTimer("a", 1, 1)))
	return s, r
}

func TestReplayWaitsForRoom(t *testing.T) {
	for why, end := range map[string]func(*Store, *Replay){
		"until the partition is acquired by another": func(s *Store, _ *Replay) {
			s.Partition(partition0).Acquire() // does not wait
		},
		"until it is given back": func(_ *Store, r *Replay) {
			r.k.Release() // as partitions do when they end
		},
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := full(t)
				defer s.Close()
				flushed := make(chan error, 1)
				start := time.Now()
				go func() { flushed <- r.Flush(1) }()
				synctest.Wait()
				end(s, r)
				wantErr(t, <-flushed, ErrNotOwner)
				if d := time.Since(start); d > roomCheck {
					t.Fatalf("noticed after %v", d)
				}
				wantIDs(t, s.Partition(partition0).Acquire(), "")
			})
		})
	}
	t.Run("until the store is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, r := full(t)
			flushed := make(chan error, 1)
			go func() { flushed <- r.Flush(1) }()
			synctest.Wait()
			must(t, s.Close())
			wantErr(t, <-flushed, ErrClosed)
		})
	})
	t.Run("not forever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, r := full(t)
			defer s.Close()
			start := time.Now()
			must(t, r.Flush(1))
			if d := time.Since(start); d != roomWait {
				t.Fatalf("waited %v", d)
			}
			wantIDs(t, r.k, "a")
			if n, took := s.events.replayWaits.Load(), s.events.replayNanos.Load(); n != 1 ||
				took != roomWait.Nanoseconds() {
				t.Fatalf("%d waits of %d ns", n, took)
			}
			// A few records need no table, hence no room.
			s.tables.leastIDs = 2
			must(t, r.Put([]byte("b"), nil, newTimer("b", 2, 2)))
			must(t, r.Flush(2))
			if d := time.Since(start); d != roomWait {
				t.Fatalf("waited %v", d)
			}
		})
	})
	t.Run("until a compaction ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, r := full(t)
			defer s.Close()
			flushed := make(chan error, 1)
			start := time.Now()
			go func() { flushed <- r.Flush(1) }()
			synctest.Wait()
			s.roomLayers = 1
			s.events.compacted.give()
			must(t, <-flushed)
			if d := time.Since(start); d != 0 {
				t.Fatalf("woke after %v", d)
			}
			if n := s.events.replayWaits.Load(); n != 1 {
				t.Fatalf("%d waits", n)
			}
		})
	})
}

// A replay without a waiting owner, such as that of a copy, leaves some layers to others. Otherwise the first flush of
// an acquisition would wait until its tables are merged.
func TestAReplayThatNobodyWaitsForLeavesRoom(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := memStore(t)
			defer s.Close()
			s.tables.leastIDs, s.roomLayers = 1, replaySpare // so a replay waits at replayRoom times as many
			s.compactions.pauseLayers.Store(100)             // the disk does not keep up
			r, err := s.Partition(partition0).Acquire().Replay(changelog, testNow)
			must(t, err)
			for i := int64(1); s.level0Layers() < replayRoom*s.roomLayers; i++ {
				if leaves {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					err := r.k.AwaitRoom(ctx)
					cancel()
					if err != nil {
						wantErr(t, err, context.DeadlineExceeded)
						break
					}
				}
				must(t, r.Put([]byte("a"), nil, newTimer("a", i, i)))
				must(t, r.Put([]byte("z"), nil, newTimer("z", i, i)))
				must(t, r.Flush(i))
				s.compactions.pause()
			}
			other, err := s.Partition(PartitionID{Partition: 77}).Acquire().Replay(changelog, testNow)
			must(t, err)
			must(t, other.Put([]byte("b"), nil, newTimer("b", 1, 1)))
			start := time.Now()
			must(t, other.Flush(1))
			if d := time.Since(start); d > 0 == leaves {
				t.Errorf("leaves room %v: a flush of another replay waits %v", leaves, d)
			}
		})
	}
}

// A replay writes many small tables that all overlap. When level 0 is full, it waits until a compaction
// wakes it, so there are never more layers than that.
func TestReplayDoesNotOutrunCompactions(t *testing.T) {
	s := mustOpen(t, testOptions(vfs.NewMem()))
	s.tables.leastIDs, s.roomLayers = 1, compactLayers/replayRoom
	s.compactions.pauseLayers.Store(compactLayers / 2)
	k := s.Partition(partition0).Acquire()
	r, err := k.Replay(changelog, testNow)
	must(t, err)
	model := log{seed: 3, names: 500}.empty()
	start, most := time.Now(), 0
	for i := range int64(100) {
		must(t, model.put(r, i*50))
		must(t, r.Flush(i*50))
		most = max(most, s.level0Layers())
	}
	if d := time.Since(start); most > compactLayers || d > roomWait {
		t.Fatalf("%d layers, in %v", most, d)
	}
	must(t, model.compare(k))
	if s.events.replayWaits.Load() == 0 && most == compactLayers { // a slow replay leaves compactions time
		t.Fatal("there was no room, and it never waited")
	}
}

// A checkpoint of few changes makes no table, so it does not wait until others are merged.
func TestFewChangesNeedNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := full(t)
		defer s.Close()
		b := &Batch{Changes: []Change{timer.ChangeOf([]byte("a"), timer.Absent, newTimer("a", 1, 1))}}
		start := time.Now()
		for _, x := range []struct {
			ids  int
			want time.Duration
		}{{2, 0}, {1, roomWait}} {
			s.tables.leastIDs = x.ids
			must(t, r.k.WaitForRoom(t.Context(), b))
			if d := time.Since(start); d != x.want {
				t.Errorf("a change waited %v where %d make a table, want %v", d, x.ids, x.want)
			}
		}
	})
}

// Layers that a replay has left do not hold up checkpoints, however long it takes to merge them.
// Layers that checkpoints add do.
func TestWhatAReplayLeftHoldsUpNoCheckpoint(t *testing.T) {
	s := memStore(t)
	defer s.Close()
	const replayed = roomLayers + 10
	for _, x := range []struct {
		layers    int
		replaying bool
		want      int
	}{
		{roomLayers, false, roomLayers},
		{replayed, true, replayRoom * roomLayers},
		{replayed, false, replayed + spareLayers},
		{replayed + spareLayers, false, replayed + spareLayers}, // it waits
		{roomLayers, false, roomLayers + spareLayers},           // compactions go on
		{replayed, false, roomLayers + spareLayers},
		{1, false, roomLayers},
		{roomLayers, false, roomLayers},
	} {
		if got := s.room(x.layers, x.replaying); got != x.want {
			t.Errorf("with %d layers, replaying %v: %d are too many, want %d", x.layers, x.replaying, got, x.want)
		}
	}
}

// Nor do layers that a replay of the former process has left.
func TestWhatAReplayBeforeAStartLeftHoldsUpNoCheckpoint(t *testing.T) {
	o := testOptions(vfs.NewMem())
	s := mustOpen(t, o)
	s.tables.leastIDs = 1
	r, err := s.Partition(partition0).Acquire().Replay(changelog, testNow)
	must(t, err)
	for i := range int64(roomLayers) {
		must(t, r.Put(fmt.Append(nil, "a", i), nil, newTimer("a", i, i)))
		must(t, r.Put(fmt.Append(nil, "z", i), nil, newTimer("z", i, i)))
		must(t, r.Flush(i+1))
	}
	must(t, s.Close())
	s = newStore(o)
	s.compactions.pause() // as if it took long
	must(t, s.openDatabase())
	defer s.db.Close()
	layers := s.level0Layers()
	if room := s.room(layers, false); layers < roomLayers || room != layers+spareLayers {
		t.Errorf("with %d layers: %d are too many", layers, room)
	}
}

// Only a few batches are made into tables at a time. Small batches need no turn, and a fatal error ends
// the wait for one. The changes of a batch that became a table are let go.
func TestTablesAreMadeInTurns(t *testing.T) {
	batch := func(first, n int) *Batch {
		b := &Batch{Changelog: changelog, Position: int64(first + n)}
		for i := first; i < first+n; i++ {
			id := fmt.Sprint(i)
			b.Changes = append(b.Changes, timer.ChangeOf([]byte(id), timer.Absent, newTimer(id, int64(i), int64(i))))
		}
		return b
	}
	synctest.Test(t, func(t *testing.T) {
		s := memStore(t)
		s.tables.leastIDs = 10
		for range cap(s.tables.turns) {
			s.tables.turns <- struct{}{}
		}
		k := s.Partition(partition0).Acquire()
		large, applied := batch(5, 20), make(chan error, 1)
		must(t, k.Apply(batch(0, 5)))
		go func() { applied <- k.Apply(large) }()
		if synctest.Wait(); len(applied) > 0 || len(large.Changes) != 20 {
			t.Fatal("one more is made than there are turns")
		}
		<-s.tables.turns
		must(t, <-applied)
		if len(large.Changes) != 0 || len(s.tables.turns) != cap(s.tables.turns)-1 {
			t.Errorf("%d changes are kept, %d turns taken", len(large.Changes), len(s.tables.turns))
		}
		if m, err := k.Meta(); err != nil || m.Pending != 25 {
			t.Errorf("%d are pending, %v", m.Pending, err)
		}
	})
	t.Run("a fatal error", func(t *testing.T) {
		s := memStore(t)
		s.tables.leastIDs, s.events.onFatal = 10, func(error) {}
		for range cap(s.tables.turns) {
			s.tables.turns <- struct{}{}
		}
		k, applied := s.Partition(partition0).Acquire(), make(chan error, 1)
		go func() { applied <- k.Apply(batch(0, 20)) }()
		s.events.fatal(errors.New("the disk is gone"))
		wantErr(t, <-applied, ErrEnded)
	})
}

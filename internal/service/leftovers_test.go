package service

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// Of the partitions in a folder those go that nobody has and that are too old:
// of a topic that is served, and of one that is not any more.
func TestLeftoversAreDropped(t *testing.T) {
	served, anew := [16]byte{1}, [16]byte{2}
	changelog := [16]byte{3}
	s, err := statestore.Open(statestore.Options{Dir: "store", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	const hour, keep = time.Hour, 12 * time.Hour
	partition := func(topic [16]byte, n int32, age time.Duration, taken bool) statestore.PartitionID {
		id := statestore.PartitionID{Topic: topic, Partition: n}
		k := s.Partition(id).Take()
		x := &timer.Timer{ID: []byte("a"), Occurrence: 1, Target: timer.Target{Topic: "t", Partition: timer.AnyPartition}}
		err := k.Live(now.Add(-age))
		if err == nil {
			err = k.Apply(&statestore.Batch{Changelog: changelog, Position: 1, Changes: []statestore.Change{{ID: x.ID, Before: timer.Absent, After: x}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		if !taken {
			k.Release()
		}
		return id
	}
	want := []statestore.PartitionID{
		partition(served, 0, 13*hour, true), // ours, and perhaps being replayed
		partition(served, 1, 11*hour, false),
	}
	partition(served, 2, 13*hour, false)
	want = append(want, partition(anew, 0, 11*hour, false))
	partition(anew, 1, 13*hour, false)

	l := &leftovers{store: s, now: func() time.Time { return now }, keep: map[[16]byte]time.Duration{served: keep, {9}: hour}, log: slog.New(slog.DiscardHandler)}
	l.drop()
	got, err := s.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
	now = now.Add(2 * hour)
	l.drop()
	if got, err = s.Partitions(); err != nil || !slices.Equal(got, want[:1]) {
		t.Errorf("left later are %v, %v, want %v", got, err, want[:1])
	}
}

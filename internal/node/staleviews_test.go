package node

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// Old views of partitions that are not owned here are dropped, whether their topic is still served or not.
func TestStaleViewsAreDropped(t *testing.T) {
	served, recreated := [16]byte{1}, [16]byte{2}
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
		k := s.Partition(id).Acquire()
		x := &timer.Timer{ID: []byte("a"), Occurrence: 1,
			Target: timer.Target{Topic: "t", Partition: timer.AnyPartition}}
		err := k.Live(now.Add(-age), func() (time.Duration, error) { return 0, nil })
		if err == nil {
			err = k.Apply(&statestore.Batch{Changelog: changelog, Position: 1,
				Changes: []statestore.Change{timer.ChangeOf(x.ID, timer.Absent, x)}})
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
		partition(served, 0, 13*hour, true), // owned, and perhaps being replayed
		partition(served, 1, 11*hour, false),
	}
	partition(served, 2, 13*hour, false)
	want = append(want, partition(recreated, 0, 11*hour, false))
	partition(recreated, 1, 13*hour, false)

	nobodys := func(statestore.PartitionID, [16]byte) bool { return false }
	kept := time.Duration(math.MaxInt64)
	l := &staleViews{last: nobodys, store: s, now: func() time.Time { return now }, log: slog.New(slog.DiscardHandler)}
	l.keep = func(context.Context) map[[16]byte]time.Duration {
		return map[[16]byte]time.Duration{served: kept, {9}: hour}
	}
	l.drop(t.Context())
	if all, err := s.Partitions(); err != nil || len(all) != 5 {
		t.Errorf("nobody says how long views are good, and %v are left, %v", all, err)
	}
	kept = keep
	l.drop(t.Context())
	got, err := s.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
	now = now.Add(2 * hour)
	l.drop(t.Context())
	if got, err = s.Partitions(); err != nil || !slices.Equal(got, want[:1]) {
		t.Errorf("left later are %v, %v, want %v", got, err, want[:1])
	}
}

// A view that may be the last copy of pending timers is kept, however old it is: of a changelog that was replaced, of a
// topic that is stopped, of an owned partition that refuses to go on. topics follow --restore needs it.
func TestTheLastCopyIsKept(t *testing.T) {
	s, err := statestore.Open(statestore.Options{Dir: "store", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	set := topics.Set{Request: topics.Topic{ID: [16]byte{1}},
		Changelog: topics.Topic{ID: [16]byte{2}, DeleteRetention: 2 * time.Hour}}
	halted := topics.Set{Request: topics.Topic{ID: [16]byte{3}},
		Changelog: topics.Topic{ID: [16]byte{4}, DeleteRetention: 2 * time.Hour}}
	served := newServedTopics(map[string]*served{"r": newServed(nil, set, nil), "halted": newServed(nil, halted, nil)})
	served.stop("halted", []topics.Problem{{Setting: "topic", Found: "missing"}})
	ps := newPartitions(slog.New(slog.DiscardHandler))
	ps.owned[timer.TopicPartition{Topic: "r", Partition: 1}] = &owned{}
	view := func(topic, changelog [16]byte, n int32) statestore.PartitionID {
		id := statestore.PartitionID{Topic: topic, Partition: n}
		k := s.Partition(id).Acquire()
		defer k.Release()
		if err := errors.Join(k.Live(time.Now().Add(-48*time.Hour), func() (time.Duration, error) { return 0, nil }),
			k.Apply(&statestore.Batch{Changelog: changelog, Position: 1})); err != nil {
			t.Fatal(err)
		}
		return id
	}
	view(set.Request.ID, set.Changelog.ID, 0) // elsewhere, and too old
	want := []statestore.PartitionID{
		view(set.Request.ID, set.Changelog.ID, 1),
		view(set.Request.ID, [16]byte{9}, 2),
		view(halted.Request.ID, halted.Changelog.ID, 0),
	}
	newStaleViews(s, served, ps, time.Now, slog.New(slog.DiscardHandler)).drop(t.Context())
	if got, err := s.Partitions(); err != nil || !slices.Equal(got, want) {
		t.Errorf("left are %v, %v, want %v", got, err, want)
	}
}

// A topic that is gone keeps nothing of the others in the store.
func TestATopicThatIsGoneKeepsItsOwnViews(t *testing.T) {
	_, cl := kafkatest.Fake(t, kfake.NumBrokers(1))
	set := func(id byte) topics.Set {
		return topics.Set{
			Request:   topics.Topic{Name: "gone", ID: [16]byte{id}},
			Changelog: topics.Topic{Name: "gone.waterclock.changelog", DeleteRetention: 2 * time.Hour},
		}
	}
	served := newServedTopics(
		map[string]*served{"gone": newServed(cl, set(1), nil), "there": newServed(nil, set(2), nil)})
	if got := absences(t.Context(), served, slog.New(slog.DiscardHandler)); got[[16]byte{1}] != math.MaxInt64 ||
		got[[16]byte{2}] != time.Hour {
		t.Errorf("views are good for %v", got)
	}
}

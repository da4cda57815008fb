package node

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/ownership/membership"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// A copy that has not reached the end of its changelog is shown and reported to the group as behind, and the group is
// not asked for the partition. A partition that this process owns from now on is followed no more.
func TestCopiesThatAreBehind(t *testing.T) {
	set := topics.Set{Request: topics.Topic{Name: "r", Partitions: 2}}
	registry := prometheus.NewRegistry()
	s := newStandbys(standbyOptions{topics: newServedTopics(map[string]*served{"r": {set: set}})}, registry)
	at := timer.TopicPartition{Topic: "r", Partition: 1}
	run := &standby{f: ownership.NewFollower(ownership.FollowOptions{Topics: &set, Partition: 1}), cancel: func() {},
		ended: make(chan struct{})}
	close(run.ended)
	s.runs[at] = run
	s.follow([]membership.Follow{{Topic: "r", Partition: 1, Next: true}}, nil)
	if s.mayOwnMore() {
		t.Error("the group is asked for a partition whose copy is behind")
	}
	if all := s.copies(); len(all) != 1 || all[0].CaughtUp || all[0].Partition != 1 {
		t.Errorf("the group is told %v", all)
	}
	if caughtUp, behind, _ := standbysShown(t, registry); caughtUp != 0 || behind != 1 {
		t.Errorf("%v copies are shown as caught up and %v as behind, want 0 and 1", caughtUp, behind)
	}
	if f := s.take(at); f != run.f {
		t.Errorf("the follower that is taken is %v", f)
	}
	if s.take(at) != nil || len(s.copies()) != 0 {
		t.Error("a partition is followed that was taken")
	}
}

// standbysShown returns the values of the metrics: copies by state, and the changelog offsets that were read for them.
func standbysShown(t *testing.T, registry *prometheus.Registry) (caughtUp, behind, offsets float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	states := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "waterclock_standby_offsets_total":
				offsets += m.GetCounter().GetValue()
			case "waterclock_standby_partitions":
				for _, l := range m.GetLabel() {
					states[l.GetValue()] += m.GetGauge().GetValue()
				}
			}
		}
	}
	return states["caught_up"], states["behind"], offsets
}

// A partition is assigned to the instance that follows it, and another one moves elsewhere, which takes up to a second.
// Only then does the group client report the assignment, but the followed partitions it reports immediately. The
// acquisition still gets the follower: the store alone would not be enough for a copy that was begun long ago.
func TestACopyIsKeptUntilItsAssignment(t *testing.T) {
	set := topics.Set{Request: topics.Topic{Name: "r", Partitions: 2}}
	s := newStandbys(standbyOptions{
		topics:     newServedTopics(map[string]*served{"r": {set: set}}),
		partitions: newPartitions(slog.New(slog.DiscardHandler)),
	}, prometheus.NewRegistry())
	runs := make([]*standby, 2)
	for i := range runs {
		run := &standby{f: ownership.NewFollower(ownership.FollowOptions{Topics: &set, Partition: int32(i)}),
			ended: make(chan struct{})}
		run.cancel = sync.OnceFunc(func() { close(run.ended) })
		runs[i], s.runs[timer.TopicPartition{Topic: "r", Partition: int32(i)}] = run, run
	}
	s.follow(nil, map[string][]int32{"r": {1}})
	for range 3 {
		s.reconcile(t.Context())
	}
	if f := s.take(timer.TopicPartition{Topic: "r", Partition: 1}); f != runs[1].f {
		t.Error("the acquisition of a partition that was followed does not get the follower")
	}
	if s.take(timer.TopicPartition{Topic: "r", Partition: 0}) != nil {
		t.Error("a partition is followed that somebody else is to follow")
	}
}

// A partition that cannot be followed, here because its changelog is not there, does not keep the instance from owning
// the others: they wait for it a minute, and not for as long as it takes.
func TestOneCopyThatIsBehindHoldsUpNoOther(t *testing.T) {
	_, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "r", topics.Changelog("r")))
	details, err := kadm.NewClient(cl).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	store, err := statestore.Open(
		statestore.Options{Dir: "store", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	set := topics.Set{
		Request: topics.Topic{Name: "r", ID: details["r"].ID, Partitions: 2},
		Changelog: topics.Topic{Name: topics.Changelog("r"), ID: details[topics.Changelog("r")].ID, Partitions: 2,
			DeleteRetention: 2 * time.Hour},
	}
	s := newStandbys(standbyOptions{
		topics:     newServedTopics(map[string]*served{"r": newServed(nil, set, nil)}),
		partitions: newPartitions(slog.New(slog.DiscardHandler)),
		store:      store, client: cl, slots: semaphore.NewWeighted(2), turns: semaphore.NewWeighted(1),
		log: slog.New(slog.DiscardHandler),
	}, prometheus.NewRegistry())
	s.follow([]membership.Follow{{Topic: "r", Partition: 0, Next: true}, {Topic: "r", Partition: 1, Next: true}}, nil)
	defer s.wg.Wait()
	defer s.end()
	await.Until(t, time.Minute, "one copy has caught up", func() bool {
		s.reconcile(t.Context())
		all := s.copies()
		return len(all) == 2 && all[0].CaughtUp != all[1].CaughtUp
	})
	if s.mayOwnMore() {
		t.Error("the group is asked before the other one had time to catch up")
	}
	s.since = s.since.Add(-rejoinAgain)
	if !s.mayOwnMore() {
		t.Error("the group is not asked for the partition whose copy has caught up")
	}
	if s.mayOwnMore() {
		t.Error("the group is asked twice")
	}
}

// The owner of a partition dies in the middle of a step. Until the group has noticed, no follower reads past that step,
// so its copies stand still. They are the ones to take over, and are reported as such: otherwise the partition could go
// to a member that has to replay all of it.
func TestACopyThatWaitsForADeadOwnerHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const session = 10 * time.Second
		log := topics.Changelog("r")
		_, opts, cl := kafkatest.Bubble(t, 1, "r", log)
		const timers = 3
		for i := range int64(timers) {
			x := &timer.Timer{ID: fmt.Append(nil, i), Offset: i, Due: 1 << 41, Occurrence: 1,
				Target: timer.Target{Topic: "t", Partition: -1}}
			if err := cl.ProduceSync(
				t.Context(), &kgo.Record{Topic: log, Key: wire.TimerKey(nil, x.ID),
					Value: x.AppendTo(nil)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		details, err := kadm.NewClient(cl).ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		store, err := statestore.Open(
			statestore.Options{Dir: "store", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		set := topics.Set{
			Request:   topics.Topic{Name: "r", ID: details["r"].ID, Partitions: 1},
			Changelog: topics.Topic{Name: log, ID: details[log].ID, Partitions: 1, DeleteRetention: 2 * time.Hour},
		}
		registry := prometheus.NewRegistry()
		s := newStandbys(standbyOptions{
			topics:     newServedTopics(map[string]*served{"r": newServed(nil, set, nil)}),
			partitions: newPartitions(slog.New(slog.DiscardHandler)),
			store:      store, client: cl, slots: semaphore.NewWeighted(2), turns: semaphore.NewWeighted(1),
			session: session, log: slog.New(slog.DiscardHandler),
		}, registry)
		for range 2 { // a second rebalance does not prolong the pause
			s.follow([]membership.Follow{{Topic: "r"}}, nil)
			if s.reconcile(t.Context()); len(s.copies()) > 0 {
				t.Error("a new copy does not wait for the acquisitions")
			}
			time.Sleep(beginAfter / 2)
		}
		s.reconcile(t.Context())
		defer s.wg.Wait()
		defer s.end()
		caughtUpNow := func() bool { all := s.copies(); return len(all) == 1 && all[0].CaughtUp }
		shows := func(caughtUp, behind float64) {
			t.Helper()
			if c, b, offsets := standbysShown(t, registry); c != caughtUp || b != behind || offsets != timers {
				t.Errorf("%v copies are shown as caught up, %v as behind, after %v offsets; want %v, %v, %d", c, b,
					offsets, caughtUp, behind, timers)
			}
		}
		time.Sleep(5 * time.Second)
		if !caughtUpNow() {
			t.Fatal("the copy does not catch up")
		}
		shows(1, 0)
		owner := kafkatest.Client(t, append(opts, kgo.TransactionalID("owner"))...)
		if err := owner.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := owner.ProduceSync(
			t.Context(), &kgo.Record{Topic: log, Value: []byte("a step")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(session + 2*time.Second)
		if !caughtUpNow() {
			t.Error("the group is told that the copy is behind, when it has noticed that the owner is dead")
		}
		time.Sleep(caughtUp)
		if caughtUpNow() {
			t.Error("a copy that stands still for long is not behind")
		}
		shows(0, 1)
	})
}

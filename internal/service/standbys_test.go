package service

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/membership"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/topics"
)

// A copy that has not reached the end of its changelog is shown as behind, the group is told so, and is not asked for the
// partition. A partition that this process owns from now on is followed no more.
func TestCopiesThatAreBehind(t *testing.T) {
	set := topics.Set{Request: topics.Topic{Name: "r", Partitions: 2}}
	registry := prometheus.NewRegistry()
	s := newStandbys(standbyOptions{topics: newServedTopics(map[string]*served{"r": {set: set}})}, registry)
	at := timer.TopicPartition{Topic: "r", Partition: 1}
	run := &standby{f: ownership.NewFollower(ownership.FollowOptions{Topics: &set, Partition: 1}), cancel: func() {}, ended: make(chan struct{})}
	close(run.ended)
	s.runs[at] = run
	s.follow([]membership.Follow{{Topic: "r", Partition: 1, Next: true}})
	if s.mayOwnMore() {
		t.Error("the group is asked for a partition whose copy is behind")
	}
	if all := s.copies(); len(all) != 1 || all[0].CaughtUp || all[0].Partition != 1 {
		t.Errorf("the group is told %v", all)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				shown[f.GetName()+" "+l.GetValue()] += m.GetGauge().GetValue()
			}
		}
	}
	if shown["waterclock_standby_partitions behind"] != 1 || shown["waterclock_standby_partitions caught_up"] != 0 {
		t.Errorf("%v", shown)
	}
	if f := s.take(at); f != run.f {
		t.Errorf("the follower that is taken is %v", f)
	}
	if s.take(at) != nil || len(s.copies()) != 0 {
		t.Error("a partition is followed that was taken")
	}
}

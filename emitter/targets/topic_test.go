package targets

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// Snapshots follow each change: nothing that was proved wrong is still returned, and a topic that is returned is not
// idle.
func TestSnapshotFollowsEachChange(t *testing.T) {
	_, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t", "refuted", "lacking"))
	now := time.Now()
	targets := NewMetadata(cl, MetadataOptions{Now: func() time.Time { return now }})
	well := func(topic string) bool { return (*targets.known.Load())[topic] != nil }
	for _, topic := range []string{"t", "refuted", "lacking"} {
		if well(topic) {
			t.Errorf("%s before anybody was asked", topic)
		}
		if _, known := targets.lookUp(t, topic); !known || !well(topic) {
			t.Errorf("%s is known: %v, well known: %v", topic, known, well(topic))
		}
	}

	targets.Refuted("refuted")
	if _, known := targets.Cached("refuted"); known || well("refuted") {
		t.Errorf("refuted: known %v, well known %v", known, well("refuted"))
	}
	now = now.Add(time.Millisecond)
	if _, known := targets.lookUp(t, "refuted"); !known || !well("refuted") {
		t.Errorf("asked for again: known %v, well known %v", known, well("refuted"))
	}

	targets.Lacks(timer.TopicPartition{Topic: "lacking", Partition: 2})
	if _, known := targets.Cached("lacking"); !known || well("lacking") {
		t.Errorf("asked for a partition beyond the last: known %v, well known %v", known, well("lacking"))
	}

	now = now.Add(targetIdle - time.Second)
	targets.Cached("t")
	now = now.Add(2 * time.Second)
	if names := targets.inUse(now); len(names) != 1 || names[0] != "t" || well("refuted") || !well("t") {
		t.Errorf("in use are %v; well known: t %v, refuted %v", names, well("t"), well("refuted"))
	}
	now = now.Add(targetIdle + time.Second)
	if names := targets.inUse(now); len(names) != 0 || well("t") {
		t.Errorf("in use after a long time: %v, well known: %v", names, well("t"))
	}
}

// A topic that was once asked for a partition that it does not have is treated like any other after some
// time: it is not looked up every second for as long as it is in use.
func TestATopicIsNotDoubtedForever(t *testing.T) {
	_, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
	now := time.Now()
	targets := NewMetadata(cl, MetadataOptions{Now: func() time.Time { return now }})
	targets.lookUp(t, "t")
	beyond := timer.TopicPartition{Topic: "t", Partition: 2}
	lacks := func() bool {
		t.Helper()
		targets.lookUp(t, "t")
		targets.inUse(now)
		return targets.Lacks(beyond)
	}
	for want := range 2 {
		if got := lacks(); got != (want == 1) {
			t.Errorf("the partition is missing: %v", got)
		}
		now = now.Add(missingAfter)
	}
	for range 2 * targetIdle / targetRefresh {
		now = now.Add(targetRefresh)
		targets.Cached("t")
		targets.inUse(now)
	}
	if (*targets.known.Load())["t"] == nil {
		t.Error("nothing has asked for the partition for a long time, and the topic is still doubted")
	}
	if lacks() {
		t.Error("that the partition is missing is known without a new look")
	}
}

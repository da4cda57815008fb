package operation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// Each setting of a topic that may be altered while instances run is raised and lowered under
// load, and each time partitions move: away from an instance that has found other settings
// when it started, and back to its directory. Whatever is set, all that is scheduled fires
// once. While nobody could tell how old a view is (message.timestamp.type) what has moved
// waits, and what has an owner goes on. All but three of the settings are CI's, and so are events
// and a fixed-delay topic beside the request topic.
func TestSettingsAlteredUnderLoad(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const partitions, limit = 4, time.Minute
	c := kafkatest.Shared(t)
	requests, target := c.CreateTopic(t, partitions, nil), c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-out")
	changelog := topics.Changelog(requests)
	adm := kadm.NewClient(c.Client(t))
	out := kafkatest.Collect(t, c, target)

	cfg := rig.Config(t, c.Seeds(), requests)
	cfg.TopicCheckInterval = time.Second
	owned, delayed, later := partitions, requests+"-delayed", kafkatest.Collect(t, c, requests+"-later")
	if runs.Slow() {
		owned += partitions / 2 // each instance has some of the request topic
		c.CreateTopic(t, partitions/2, nil, delayed)
		c.CreateTopic(t, 1, nil, requests+"-later")
		cfg.Delay = []config.DelayTopic{{Topic: delayed, Delay: time.Second, Target: requests + "-later"}}
		policy := cfg.PolicyOf(requests)
		policy.Events = true
		cfg.Tenants = map[string]config.Policy{requests: policy}
	}
	stays := rig.Serve(t, cfg, node.Options{})
	stays.Ready(owned, limit)
	moves := *cfg
	moves.DataDir = t.TempDir()
	comes := func() *rig.Instance { return rig.Serve(t, &moves, node.Options{}) }
	other := comes()
	live := func() int { return int(stays.Metric("waterclock_partitions", "state", "live")) }
	share := func() {
		t.Helper()
		other.Ready(owned/2, limit)
		await.Until(t, limit, "each has its share", func() bool { return live() == owned/2 })
	}
	share()
	leaves := func() {
		t.Helper()
		if err := other.Stop(); err != nil {
			t.Fatal(err)
		}
	}

	stream := rig.StartStream(t, c.Client(t), 100, func(n int) *kgo.Record {
		return rig.Timer(requests, target, fmt.Sprint("id-", n), time.Now().Add(time.Second))
	})
	var delays *rig.Stream
	if runs.Slow() {
		delays = rig.StartStream(t, c.Client(t), 100,
			func(n int) *kgo.Record { return &kgo.Record{Topic: delayed, Key: fmt.Append(nil, n)} })
	}
	for _, x := range alterations(requests, delayed) {
		set := func(way int) {
			t.Helper()
			for setting, values := range x.settings {
				kafkatest.SetTopic(t, adm, x.topic, setting, values[way])
			}
		}
		set(0)
		leaves()
		await.Until(t, limit, fmt.Sprint(x, " raised: one has all"), func() bool { return live() == owned })
		set(1)
		other = comes()
		share()
	}

	kafkatest.SetTopic(t, adm, changelog, "message.timestamp.type", "CreateTime")
	await.For(t, 4*time.Second) // what instances have read of the settings serves them for 2 s
	moved := int(other.Metric("waterclock_partitions", "topic", requests, "state", "live"))
	if moved == 0 {
		t.Fatal("no partition of the request topic is to move")
	}
	leaves()
	await.Until(t, limit, "what has moved waits", func() bool {
		return int(stays.Metric("waterclock_partitions", "state", "acquiring")) == moved && live() == owned-moved
	})
	await.Until(t, limit, "it says why", func() bool {
		_, body := stays.Readyz()
		return strings.Contains(body, changelog+": message.timestamp.type is CreateTime, needed: LogAppendTime")
	})
	kafkatest.SetTopic(t, adm, changelog, "message.timestamp.type", "LogAppendTime")
	stays.Ready(owned, limit)

	sent := stream.Stop()
	out.WaitFor(sent, limit)
	rig.Exactly(t, out.Records(), sent)
	t.Logf("%d timers", sent)
	if runs.Slow() {
		n := delays.Stop()
		once(t, later.WaitFor(n, limit), n)
		t.Logf("%d records passed on", n)
	}
}

// alteration is settings of one topic, each with a high and a low value.
type alteration struct {
	topic    string
	settings map[string][2]string
}

// alterations are those that the instances are to bear.
func alterations(requests, delayed string) []alteration {
	changelog, letters, events, checkpoints := topics.Changelog(requests), topics.DeadLetters(requests),
		topics.Events(requests), topics.Checkpoints(delayed)
	all := []alteration{
		{changelog, map[string][2]string{"delete.retention.ms": {"172800000", "3600000"}}},
		{changelog, map[string][2]string{"max.message.bytes": {"4000000", "1200000"}}},
		{requests, map[string][2]string{"retention.ms": {"-1", "3600000"}}},
	}
	if !runs.Slow() {
		return all
	}
	const most = "9223372036854775807"
	// On one broker no write is refused for want of replicas.
	inSync, unclean := [2]string{"2", "1"}, [2]string{"true", "false"}
	return append(all,
		alteration{changelog, map[string][2]string{"min.compaction.lag.ms": {"7200000", "0"}}},
		alteration{changelog, map[string][2]string{"max.compaction.lag.ms": {"604800000", "7200001"}}},
		alteration{changelog, map[string][2]string{"segment.ms": {"604800000", "1000"}}},
		alteration{changelog, map[string][2]string{"min.cleanable.dirty.ratio": {"0.9", "0.01"}}},
		alteration{changelog,
			map[string][2]string{"min.insync.replicas": inSync, "unclean.leader.election.enable": unclean}},
		alteration{requests, map[string][2]string{"segment.ms": {"604800000", "1000"}}},
		alteration{requests, map[string][2]string{"max.message.bytes": {"1100000", "100000"}}},
		alteration{requests, map[string][2]string{"min.insync.replicas": inSync, "retention.bytes": {"-1", "1000000"},
			"message.timestamp.after.max.ms": {most, "60000"}}},
		alteration{letters, map[string][2]string{"retention.ms": {"-1", "60000"}}},
		alteration{letters, map[string][2]string{"max.message.bytes": {"4000000", "1200000"},
			"min.insync.replicas": inSync, "unclean.leader.election.enable": unclean}},
		alteration{events, map[string][2]string{
			"max.message.bytes": {"1000000", "100000"}, "min.insync.replicas": inSync,
			"unclean.leader.election.enable": unclean, "retention.ms": {"-1", "3600000"},
		}},
		alteration{delayed, map[string][2]string{
			"message.timestamp.type": {"LogAppendTime", "CreateTime"}, "message.timestamp.after.max.ms": {most,
				"60000"}, "retention.ms": {"-1", "3600000"}, "retention.bytes": {"-1", "1000000"},
		}},
		alteration{checkpoints, map[string][2]string{
			"max.message.bytes": {"1000000", "100000"}, "min.insync.replicas": inSync,
			"unclean.leader.election.enable": unclean, "delete.retention.ms": {"172800000", "0"},
		}})
}

// once holds that records with the keys 0 to n-1 were passed on, each once.
func once(t *testing.T, received []kafkatest.Received, n int) {
	t.Helper()
	came := make(map[string]int)
	for _, r := range received {
		came[string(r.Key)]++
	}
	for i := range n {
		if times := came[fmt.Sprint(i)]; times != 1 {
			kafkatest.Inexact(t, "record %d was passed on %d times", i, times)
		}
	}
	if len(received) != n {
		kafkatest.Inexact(t, "%d records were passed on, want %d", len(received), n)
	}
}

package operation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
	"github.com/waterclock/waterclock/internal/topics"
)

// Each setting of a topic that may be altered while instances run is raised and lowered under
// load, and each time partitions move: away from an instance that has found other settings
// when it started, and back to its directory. Whatever is set, all that is scheduled fires
// once. While nobody could tell how old a view is (message.timestamp.type) what has moved
// waits, and what has an owner goes on. All but three of the settings are CI's.
func TestSettingsAlteredUnderLoad(t *testing.T) {
	t.Parallel()
	const partitions, limit = 4, time.Minute
	c := kafkatest.Shared(t)
	requests, target := c.CreateTopic(t, partitions, nil), c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-out")
	changelog, letters := topics.Changelog(requests), topics.DeadLetters(requests)
	adm := kadm.NewClient(c.Client(t))
	out := kafkatest.Collect(t, c, target)

	cfg := rig.Config(t, c.Seeds(), requests)
	cfg.TopicCheckInterval = time.Second
	stays := rig.Serve(t, cfg, service.Options{})
	stays.Ready(partitions, limit)
	moves := *cfg
	moves.DataDir = t.TempDir()
	comes := func() *rig.Instance { return rig.Serve(t, &moves, service.Options{}) }
	other := comes()
	live := func() int { return int(stays.Metric("waterclock_partitions", "state", "live")) }
	share := func() {
		t.Helper()
		other.Ready(partitions/2, limit)
		await.Until(t, limit, "each has its share", func() bool { return live() == partitions/2 })
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
	type row struct{ topic, setting, high, low string }
	rows := []row{
		{changelog, "delete.retention.ms", "172800000", "3600000"},
		{changelog, "max.message.bytes", "4000000", "1200000"},
		{requests, "retention.ms", "-1", "3600000"},
	}
	if kafkatest.Slow() {
		rows = append(rows,
			row{changelog, "min.compaction.lag.ms", "7200000", "0"},
			row{changelog, "max.compaction.lag.ms", "604800000", "7200001"},
			row{changelog, "segment.ms", "604800000", "1000"},
			row{changelog, "min.cleanable.dirty.ratio", "0.9", "0.01"},
			row{requests, "segment.ms", "604800000", "1000"},
			row{requests, "max.message.bytes", "1100000", "100000"},
			row{letters, "retention.ms", "-1", "60000"})
	}
	for _, x := range rows {
		kafkatest.SetTopic(t, adm, x.topic, x.setting, x.high)
		leaves()
		await.Until(t, limit, x.setting+" raised: one has all", func() bool { return live() == partitions })
		kafkatest.SetTopic(t, adm, x.topic, x.setting, x.low)
		other = comes()
		share()
	}

	kafkatest.SetTopic(t, adm, changelog, "message.timestamp.type", "CreateTime")
	await.For(t, 4*time.Second) // what instances have read of the settings serves them for 2 s
	leaves()
	await.Until(t, limit, "what has moved waits", func() bool { return stays.Metric("waterclock_partitions", "state", "acquiring") == partitions/2 })
	if n := live(); n != partitions/2 {
		t.Errorf("%d partitions are live, want the %d that did not move", n, partitions/2)
	}
	await.Until(t, limit, "it says why", func() bool {
		_, body := stays.Readyz()
		return strings.Contains(body, changelog+": message.timestamp.type is CreateTime, needed: LogAppendTime")
	})
	kafkatest.SetTopic(t, adm, changelog, "message.timestamp.type", "LogAppendTime")
	stays.Ready(partitions, limit)

	sent := stream.Stop()
	out.WaitFor(sent, limit)
	rig.Exactly(t, out.Records(), sent)
	t.Logf("%d timers", sent)
}

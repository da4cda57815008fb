package node_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// Timers that lie off their partition are counted at all times, across a restart too. After a topic
// was given more partitions a dry run counts the timers that will move, and once they have moved none
// is misplaced.
func TestMisplacedTimersAreCounted(t *testing.T) {
	t.Parallel()
	const before, now, timers = 3, 7, 40
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(before, requests))
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	often := node.Options{FlushInterval: time.Second} // they are counted with each flush of the store
	serve := func() *rig.Instance {
		in := rig.Serve(t, cfg, often)
		in.Ready(before, limit)
		return in
	}
	stop := func(in *rig.Instance) {
		if err := in.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	in := serve()
	counted := func(n int) {
		t.Helper()
		await.Until(t, limit, fmt.Sprint(n, " are counted"), func() bool {
			return strings.Contains(
				in.Metrics(), fmt.Sprintf("waterclock_misplaced_timers{topic=%q} %d\n", requests, n))
		})
	}
	moves := 0
	for i := range timers {
		r := rig.Timer(requests, "out", fmt.Sprint("id", i), time.Now().Add(time.Hour))
		rig.Send(t, cl, r)
		if intake.Murmur2Partition(r.Key, before) != intake.Murmur2Partition(r.Key, now) {
			moves++
		}
	}
	in.Balanced(timers)
	counted(0)

	manual := kafkatest.Client(t, kgo.SeedBrokers(cfg.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range int32(before) {
		r := rig.Timer(requests, "out", "wandering", time.Now().Add(time.Hour))
		r.Partition = i
		rig.Send(t, manual, r)
	}
	counted(before - 1)
	stop(in)
	in = serve()
	counted(before - 1)
	for i := range int32(before) {
		rig.Send(t, manual, &kgo.Record{Topic: requests, Partition: i, Key: []byte("wandering")})
	}
	counted(0)

	kafkatest.GrowTopics(t, kadm.NewClient(cl), now, requests)
	report := func(o commands.RepartitionOptions) string {
		t.Helper()
		var out strings.Builder
		if err := commands.Repartition(t.Context(), cfg, o, &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if said := report(commands.RepartitionOptions{DryRun: true}); !strings.Contains(
		said, fmt.Sprintf("timers to be moved: %d,", moves)) {
		t.Errorf("%d timers are to be moved: %s", moves, said)
	}
	stop(in)
	if said := report(commands.RepartitionOptions{}); !strings.Contains(said, fmt.Sprintf("timers moved: %d,", moves)) {
		t.Errorf("%d timers move: %s", moves, said)
	}
	in = rig.Serve(t, cfg, often)
	in.Ready(now, limit)
	counted(0)
	in.Balanced(timers)
}

// A directory whose misplaced timers were not counted, or for another number of partitions, is wiped at the
// next start, and at no later one. So is one that an older build has written.
func TestUncountedDirectoryIsWipedOnce(t *testing.T) {
	t.Parallel()
	const before, now, timers = 2, 3, 60
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(before, requests))
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	start := func(when string, check config.Check, partitions int, wipes bool) {
		t.Helper()
		cfg.PartitionerCheck = check
		in, log := rig.ServeLogged(t, cfg, node.Options{})
		in.Ready(partitions, limit)
		if when == "first" {
			for i := range timers {
				rig.Send(t, cl, rig.Timer(requests, "out", fmt.Sprint("id", i), time.Now().Add(time.Hour)))
			}
		}
		in.Balanced(timers)
		if n := len(log.Lines("wiping the local view")); (n > 0) != wipes || n > partitions {
			t.Errorf("%s: %d views were wiped, wanted any: %v", when, n, wipes)
		}
		if err := in.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	start("first", config.CheckOff, before, false)
	start("still uncounted", config.CheckOff, before, false)
	start("counted", config.CheckWarn, before, true)
	start("counted before", config.CheckWarn, before, false)
	kafkatest.GrowTopics(t, kadm.NewClient(cl), now, requests)
	if err := commands.Repartition(t.Context(), cfg, commands.RepartitionOptions{}, io.Discard); err != nil {
		t.Fatal(err)
	}
	start("grown", config.CheckWarn, now, true)
	start("grown before", config.CheckWarn, now, false)
	start("uncounted again", config.CheckOff, now, false)
	start("counted again", config.CheckWarn, now, true)
	start("counted for good", config.CheckWarn, now, false)
}

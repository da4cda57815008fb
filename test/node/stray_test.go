package node_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/test/rig"
)

// A timer that its producer has put on another partition: dev warns of it too, the API finds it,
// and a cancel that names the partition reaches it, as one by the ID does not.
func TestTimerOffItsPartition(t *testing.T) {
	t.Parallel()
	c := fake(t, "stray")
	cfg, o := rig.Config(t, c.ListenAddrs(), requests), node.Options{Shown: true}
	get := withAPI(t, cfg, &o)
	in, log := rig.ServeLogged(t, cfg, o)
	in.Ready(2, limit)
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	rec := rig.Timer(requests, target, "a1", time.Now().Add(time.Hour))
	rec.Partition = 1 - intake.Murmur2Partition([]byte("a1"), 2)
	rig.Send(t, cl, rec)
	await.Until(t, limit, "the log says it",
		func() bool { return len(log.Lines("a producer uses another partitioner")) == 1 })
	var is api.Timer
	await.Until(t, limit, "the API finds it",
		func() bool { return get("/v1/topics/"+requests+"/timers/a1", &is) == 200 })
	if is.Partition != rec.Partition || is.Note == "" {
		t.Errorf("%+v", is)
	}
	for _, x := range []struct {
		partition *int32
		want      waterclock.EventType
	}{{nil, commands.NothingDone}, {&rec.Partition, waterclock.EventCancelled}} {
		sent, err := commands.Send(t.Context(), cfg,
			commands.Request{Topic: requests, ID: "a1", Action: commands.Cancel, Partition: x.partition, Wait: limit})
		if err != nil || sent.Outcome == nil || sent.Outcome.Type != x.want {
			t.Errorf("%+v, %+v, %v; want %s", sent, sent.Outcome, err, x.want)
		}
	}
}

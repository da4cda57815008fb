package node_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// A request topic may take larger records than a broker takes requests. The API's producer is not told of that
// limit, because kgo makes no client with it.
func TestAPIOfATopicWithAHugeLimit(t *testing.T) {
	t.Parallel()
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, requests))
	huge := "209715200"
	if _, err := kadm.NewClient(cl).AlterTopicConfigs(
		t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &huge}},
		requests); err != nil {
		t.Fatal(err)
	}
	cfg, o := rig.Config(t, c.ListenAddrs(), requests), node.Options{}
	withAPI(t, cfg, &o)
	in := rig.Serve(t, cfg, o)
	in.Ready(1, limit)
}

// Package sick tests what happens while a target can not be written to: its
// timers wait, nobody else's do.
package sick

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// onBroker creates a topic whose one partition has one replica, on a broker.
func onBroker(t *testing.T, c *kafkatest.Cluster, topic string, broker int32) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	a.Replicas = []int32{broker}
	rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	cfg := kmsg.NewCreateTopicsRequestTopicConfig()
	cfg.Name, cfg.Value = "min.insync.replicas", kmsg.StringPtr("1")
	rt.Configs = append(rt.Configs, cfg)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), c.Client(t))
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("create %s: %v %v", topic, err, resp)
	}
}

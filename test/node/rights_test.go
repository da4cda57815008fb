package node_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// The committed offset waits for the slow end of a transaction, and whoever acquires the
// partition may not look at Kafka's own topic: it asks once, and waits.
func TestAcquisitionWaitsWithoutTheRightToRepair(t *testing.T) {
	const offsets = "__consumer_offsets"
	c := fake(t, "c")
	var unstable atomic.Bool
	var asked atomic.Int32
	unstable.Store(true)
	c.ControlKey(kmsg.OffsetFetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.OffsetFetchRequest)
		if !unstable.Load() || !req.RequireStable || len(req.Groups) != 1 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		g := kmsg.NewOffsetFetchResponseGroup()
		g.Group = req.Groups[0].Group
		for _, rt := range req.Groups[0].Topics {
			x := kmsg.NewOffsetFetchResponseGroupTopic()
			x.Topic, x.TopicID = rt.Topic, rt.TopicID
			for _, p := range rt.Partitions {
				y := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				y.Partition, y.Offset, y.ErrorCode = p, -1, kerr.UnstableOffsetCommit.Code
				x.Partitions = append(x.Partitions, y)
			}
			g.Topics = append(g.Topics, x)
		}
		resp.Groups = append(resp.Groups, g)
		return resp, nil, true
	})
	c.ControlKey(kmsg.Metadata.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.MetadataRequest)
		if len(req.Topics) != 1 || req.Topics[0].Topic == nil || *req.Topics[0].Topic != offsets {
			return nil, nil, false
		}
		asked.Add(1)
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.ErrorCode = req.Topics[0].Topic, kerr.TopicAuthorizationFailed.Code
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	in, log := rig.ServeLogged(t, rig.Config(t, c.ListenAddrs(), requests), node.Options{})
	await.Until(t, limit, "a look at the group's offsets", func() bool { return asked.Load() > 0 })
	await.For(t, time.Second) // it would look five times
	unstable.Store(false)
	in.Ready(2, limit)
	if n := asked.Load(); n > 4 { // both partitions may ask at the same moment, and a client again
		t.Errorf("asked %d times", n)
	}
	if again := log.Lines("acquiring the partition again"); len(again) > 0 {
		t.Errorf("began again: %s", again)
	}
}

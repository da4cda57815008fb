package dev

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// afterMax is Kafka's default of message.timestamp.after.max.ms.
const afterMax = time.Hour

// refuseFuture makes the embedded broker reject batches with a timestamp too far in the future, as Kafka does
// (KIP-937). kfake takes any, so a producer that sets a due time as the timestamp would learn of it only from a real
// broker.
func refuseFuture(cluster *kfake.Cluster) {
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		produce, ok := req.(*kmsg.ProduceRequest)
		if !ok {
			return nil, nil, false
		}
		for _, t := range produce.Topics {
			for _, p := range t.Partitions {
				var b kmsg.RecordBatch
				ahead := time.Duration(0)
				if b.ReadFrom(p.Records) == nil { // otherwise kfake rejects it
					ahead = time.Until(time.UnixMilli(b.MaxTimestamp))
				}
				if ahead > 0 && ahead > mayBeAhead(cluster, &t) {
					cluster.Fault(kfake.Fault{
						Keys: []kmsg.Key{kmsg.Produce}, Topic: t.Topic, TopicID: t.TopicID,
						Partitions: []int32{p.Partition},
						Err:        kerr.InvalidTimestamp, When: func(now kmsg.Request) bool { return now == req },
					})
				}
			}
		}
		return nil, nil, false
	})
}

// mayBeAhead returns how far in the future a timestamp may be in a topic.
func mayBeAhead(cluster *kfake.Cluster, t *kmsg.ProduceRequestTopic) time.Duration {
	const forever = time.Duration(1<<63 - 1)
	info := cluster.TopicInfo(t.Topic)
	if t.Topic == "" {
		info = cluster.TopicIDInfo(t.TopicID)
	}
	if info == nil {
		return forever // kfake rejects it
	}
	setting := func(name string) string {
		if v := info.Configs[name]; v != nil {
			return *v
		}
		return ""
	}
	if setting("message.timestamp.type") == "LogAppendTime" {
		return forever // the broker's own timestamp takes its place
	}
	if ms, err := strconv.ParseInt(setting("message.timestamp.after.max.ms"), 10, 64); err == nil {
		return min(time.Duration(ms), forever/time.Millisecond) * time.Millisecond
	}
	return afterMax
}

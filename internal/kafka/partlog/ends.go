package partlog

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/timer"
)

// Ends has the ends of a log for readers of committed and of all records.
//
// Invariant: Stable <= End. If Stable < End, the record at Stable belongs to a transaction that
// was open between the two questions, and no read_committed reader gets past it.
type Ends struct {
	Stable int64 // the last stable offset
	End    int64 // the high watermark
}

// Held reports whether an open transaction keeps records from being read.
func (e Ends) Held() bool { return e.Stable < e.End }

// EndsOf asks the leader of many logs for their ends, with two successive requests. Each may take limit. The result
// lacks logs that the broker does not lead, or for which it did not answer in time. With [NoLeader] the client looks
// the leaders up, asks all of them together, and waits for the slowest. Topics go by name.
func EndsOf(ctx context.Context, cl *kgo.Client, leader int32, logs []timer.TopicPartition,
	limit time.Duration) map[timer.TopicPartition]Ends {
	if len(logs) == 0 {
		return nil
	}
	// Ask for the high watermark first. Asked for second, it would include records written in
	// between, and every busy log would look as if a transaction were open.
	ends := latestOf(ctx, cl, leader, logs, readUncommitted, limit)
	edges := make(map[timer.TopicPartition]Ends, len(logs))
	for l, stable := range latestOf(ctx, cl, leader, logs, readCommitted, limit) {
		if end, both := ends[l]; both {
			edges[l] = Ends{Stable: stable, End: max(end, stable)}
		}
	}
	return edges
}

// leadersAge is how old cached metadata may be.
const leadersAge = time.Second

// Leaders returns the node IDs of the leaders of the logs of some topics. Logs without a known leader are left out. It
// returns an error if no broker answered within limit.
func Leaders(ctx context.Context, cl *kgo.Client, topics []string,
	limit time.Duration) (map[timer.TopicPartition]int32, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := cl.RequestCachedMetadata(ctx, metadataRequest(topics...), leadersAge)
	if err != nil {
		return nil, fmt.Errorf("look up leaders: %w", err)
	}
	leaders := make(map[timer.TopicPartition]int32)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if t.Topic != nil && p.Leader >= 0 {
				leaders[timer.TopicPartition{Topic: *t.Topic, Partition: p.Partition}] = p.Leader
			}
		}
	}
	return leaders, nil
}

func latestOf(ctx context.Context, cl *kgo.Client, leader int32, logs []timer.TopicPartition, isolation int8,
	limit time.Duration) map[timer.TopicPartition]int64 {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	topics := make(map[string][]kmsg.ListOffsetsRequestTopicPartition)
	for _, l := range logs {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = l.Partition, latest
		topics[l.Topic] = append(topics[l.Topic], p)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = NoLeader, isolation
	for topic, partitions := range topics {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	var shards []kgo.ResponseShard
	if leader == NoLeader {
		shards = cl.RequestSharded(ctx, req)
	} else { // without metadata, for which the client may ask a silent broker
		resp, err := cl.Broker(int(leader)).Request(ctx, req)
		shards = append(shards, kgo.ResponseShard{Resp: resp, Err: err})
	}
	found := make(map[timer.TopicPartition]int64, len(logs))
	for _, shard := range shards {
		resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
		if shard.Err != nil || !ok {
			continue
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 {
					found[timer.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.Offset
				}
			}
		}
	}
	return found
}

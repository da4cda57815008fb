package partlog

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Edge is where a log ends for the two kinds of readers.
//
// Invariant: Stable <= End. If Stable < End, the record at Stable belongs to a transaction that
// was open between the two questions, and no read_committed reader gets past it.
type Edge struct {
	Stable int64 // the last stable offset
	End    int64 // the high watermark
}

// Held reports whether an open transaction keeps records from being read.
func (e Edge) Held() bool { return e.Stable < e.End }

// NoLeader stands for leaders that are not known.
const NoLeader = noBroker

// Edges asks the leader of many logs where they end, with two successive requests. Each may take limit. Logs that it
// does not lead, or has not told of in time, are left out. With [NoLeader] the client looks up leaders and asks
// them at once, and the slowest of them is waited for. Topics go by name.
func Edges(ctx context.Context, cl *kgo.Client, leader int32, logs []Log, limit time.Duration) map[Log]Edge {
	if len(logs) == 0 {
		return nil
	}
	// Ask for the high watermark first. Asked for second, it would include records written in
	// between, and every busy log would look as if a transaction were open.
	ends := latestOf(ctx, cl, leader, logs, readUncommitted, limit)
	stables := latestOf(ctx, cl, leader, logs, readCommitted, limit)
	edges := make(map[Log]Edge, len(logs))
	for _, l := range logs {
		end, some := ends[place{l.Topic, l.Partition}]
		if stable, both := stables[place{l.Topic, l.Partition}]; some && both {
			edges[l] = Edge{Stable: stable, End: max(end, stable)}
		}
	}
	return edges
}

// leadersAge is how old what is known of leaders may be.
const leadersAge = time.Second

// Leaders returns the node IDs of the leaders of logs. Logs without a leader, or of which none is known, are left
// out. Topics go by name. The error says that no broker has told within limit.
func Leaders(ctx context.Context, cl *kgo.Client, logs []Log, limit time.Duration) (map[Log]int32, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	asked := make(map[place]Log, len(logs))
	topics := make(map[string]bool)
	for _, l := range logs {
		asked[place{l.Topic, l.Partition}] = l
		if !topics[l.Topic] {
			topics[l.Topic] = true
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(l.Topic)
			req.Topics = append(req.Topics, t)
		}
	}
	resp, err := cl.RequestCachedMetadata(ctx, req, leadersAge)
	if err != nil {
		return nil, fmt.Errorf("look up leaders: %w", err)
	}
	leaders := make(map[Log]int32, len(logs))
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if t.Topic == nil || p.Leader < 0 {
				continue
			}
			if l, some := asked[place{*t.Topic, p.Partition}]; some {
				leaders[l] = p.Leader
			}
		}
	}
	return leaders, nil
}

type place struct {
	topic     string
	partition int32
}

func latestOf(ctx context.Context, cl *kgo.Client, leader int32, logs []Log, isolation int8, limit time.Duration) map[place]int64 {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	topics := make(map[string][]kmsg.ListOffsetsRequestTopicPartition)
	for _, l := range logs {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = l.Partition, latest
		topics[l.Topic] = append(topics[l.Topic], p)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = noBroker, isolation
	for topic, partitions := range topics {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	var shards []kgo.ResponseShard
	if leader == NoLeader {
		shards = cl.RequestSharded(ctx, req)
	} else { // without a look at metadata, which the client may ask a silent broker for
		resp, err := cl.Broker(int(leader)).Request(ctx, req)
		shards = append(shards, kgo.ResponseShard{Resp: resp, Err: err})
	}
	found := make(map[place]int64, len(logs))
	for _, shard := range shards {
		resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
		if shard.Err != nil || !ok {
			continue
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 {
					found[place{t.Topic, p.Partition}] = p.Offset
				}
			}
		}
	}
	return found
}

package partlog

import (
	"context"
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

// Edges asks where many logs end, with two successive requests to each broker that
// leads some of them. Each request may take limit. Logs whose leaders do not answer in time are left out.
// Topics go by name.
func Edges(ctx context.Context, cl *kgo.Client, logs []Log, limit time.Duration) map[Log]Edge {
	if len(logs) == 0 {
		return nil
	}
	// Ask for the high watermark first. Asked for second, it would include records written in
	// between, and every busy log would look as if a transaction were open.
	ends := latestOf(ctx, cl, logs, readUncommitted, limit)
	stables := latestOf(ctx, cl, logs, readCommitted, limit)
	edges := make(map[Log]Edge, len(logs))
	for _, l := range logs {
		end, some := ends[place{l.Topic, l.Partition}]
		if stable, both := stables[place{l.Topic, l.Partition}]; some && both {
			edges[l] = Edge{Stable: stable, End: max(end, stable)}
		}
	}
	return edges
}

type place struct {
	topic     string
	partition int32
}

func latestOf(ctx context.Context, cl *kgo.Client, logs []Log, isolation int8, limit time.Duration) map[place]int64 {
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
	found := make(map[place]int64, len(logs))
	for _, shard := range cl.RequestSharded(ctx, req) {
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

package emitter

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetch asks for metadata, and for the size limit of topics seen first.
func (t *Targets) fetch(ctx context.Context, names []string) error {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = t.autoCreate
	for _, n := range names {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, t.client)
	if err != nil {
		return fmt.Errorf("look up target topics: %w", err)
	}
	var usable []string
	var moved []TargetPartition
	now := time.Now()
	t.mu.Lock()
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		if rt.Topic == nil {
			continue
		}
		e := t.topics[*rt.Topic]
		if e == nil {
			e = &target{used: now}
			t.topics[*rt.Topic] = e
		}
		got := Target{Err: kerr.ErrorForCode(rt.ErrorCode), Leader: make([]bool, len(rt.Partitions))}
		epochs := make([]int32, len(rt.Partitions))
		for _, p := range rt.Partitions {
			if int(p.Partition) < len(got.Leader) {
				got.Leader[p.Partition], epochs[p.Partition] = p.Leader >= 0, p.LeaderEpoch
			}
		}
		if got.Err != nil && !refusedForGood(got.Err) {
			if len(e.Leader) > 0 {
				continue // passing trouble: what was known stays
			}
		}
		if e.id != rt.TopicID || len(e.Leader) != len(got.Leader) {
			t.moved(e)
		}
		got.Compacted = e.Compacted && e.id == rt.TopicID
		if e.id == rt.TopicID {
			for p := range min(len(e.epochs), len(epochs)) {
				if e.epochs[p] != epochs[p] || e.Leader[p] && !got.Leader[p] {
					moved = append(moved, TargetPartition{*rt.Topic, int32(p)})
				}
			}
		}
		e.Target, e.id, e.epochs, e.fetched = got, rt.TopicID, epochs, now
		if got.Err == nil {
			usable = append(usable, *rt.Topic)
		}
	}
	t.mu.Unlock()
	if t.moves != nil {
		for _, p := range moved {
			t.moves(p)
		}
	}
	if len(usable) > 0 {
		t.fetchLimits(ctx, usable)
	}
	return nil
}

// fetchLimits reads max.message.bytes and cleanup.policy. A service that may not
// describe a target goes by Kafka's defaults.
func (t *Targets) fetchLimits(ctx context.Context, names []string) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, n := range names {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, n, []string{"max.message.bytes", "cleanup.policy"}
		req.Resources = append(req.Resources, r)
	}
	limits, compacted := make(map[string]int32), make(map[string]bool)
	if resp, err := req.RequestWith(ctx, t.client); err == nil {
		for _, r := range resp.Resources {
			for _, c := range r.Configs {
				switch {
				case c.Value == nil:
				case c.Name == "max.message.bytes":
					if n, err := strconv.ParseInt(*c.Value, 10, 32); err == nil {
						limits[r.ResourceName] = int32(n)
					}
				case c.Name == "cleanup.policy":
					compacted[r.ResourceName] = strings.Contains(*c.Value, "compact")
				}
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range names {
		e := t.topics[n]
		if e == nil {
			continue
		}
		was := e.maxBytes
		if limit := limits[n]; limit > 0 {
			e.maxBytes = limit
		} else if e.maxBytes <= 0 {
			e.maxBytes = defaultBatchMaxBytes
		}
		if e.maxBytes != was {
			t.moved(e)
		}
		if policy, ok := compacted[n]; ok {
			e.Compacted = policy
		}
	}
}

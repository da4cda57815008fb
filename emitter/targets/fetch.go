package targets

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// maxOthers bounds the brokers that are asked about a topic after one of them did not know it. The first one may be
	// among them again.
	maxOthers = 4
	// otherTimeout bounds the request to one of them.
	otherTimeout = time.Second
)

// Run refreshes the topics in use until ctx ends.
func (m *Metadata) Run(ctx context.Context) error {
	next := time.NewTimer(targetRefresh)
	defer next.Stop()
	for {
		names, all, pause := []string(nil), true, false
		select {
		case <-ctx.Done():
			return nil
		case <-m.wanted.wake:
			m.mu.Lock()
			names, all = m.wanted.take()
			pause = m.examined >= maxExamined/2 // newcomers that do not exist are not kept
			m.mu.Unlock()
		case <-next.C:
		}
		if all {
			m.mu.Lock()
			names = append(names, m.inUse(m.o.Now())...)
			m.mu.Unlock()
		}
		if len(names) > 0 {
			_ = m.Refresh(ctx, names...) // on failure the known metadata stays; producing will show errors
		}
		if all {
			if !m.Leaders.AllReachable() {
				m.o.Changed()
			}
			next.Reset(m.Leaders.refreshEvery())
		}
		if pause {
			beats.Sleep(ctx, newcomersPause)
		}
	}
}

// ReachabilityChanged makes Run look up leaders immediately, and often while a leader is unreachable.
func (m *Metadata) ReachabilityChanged() {
	m.Leaders.hurry()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted.addAll()
}

// Refresh looks up metadata and size limits of topics, in batches small enough for a quick answer: requests can name
// very many topics, even nonexistent ones.
func (m *Metadata) Refresh(ctx context.Context, names ...string) error {
	for some := range slices.Chunk(names, maxWanted) {
		if err := m.refresh(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func (m *Metadata) refresh(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	began := m.o.Now()
	answers, brokers, err := ask(ctx, m.client, names, m.AutoCreate)
	if err != nil {
		return fmt.Errorf("look up target topics: %w", err)
	}
	m.Leaders.setBrokers(brokers)
	unknown := make(map[string]*kmsg.MetadataResponseTopic)
	for name, a := range answers {
		if Gone(kerr.ErrorForCode(a.ErrorCode)) {
			unknown[name] = a
			delete(answers, name)
		}
	}
	m.learn(ctx, answers, began)
	if len(unknown) > 0 {
		askOthers(ctx, m.client, unknown)
		m.learn(ctx, unknown, began)
	}
	return nil
}

// learn applies the answers to a request that began at a moment.
func (m *Metadata) learn(ctx context.Context, answers map[string]*kmsg.MetadataResponseTopic, began time.Time) {
	var usable []string
	var moved []timer.TopicPartition
	m.mu.Lock()
	for name, answer := range answers {
		e := m.topics[name]
		if e == nil {
			if answer.ErrorCode != 0 {
				if m.examined >= maxExamined/2 {
					continue
				}
				m.examined++
			}
			e = &cachedTopic{used: began}
			m.topics[name] = e
		}
		if began.Before(e.refutedAt) {
			continue // the answer is older than the error that refuted it
		}
		moved = append(moved, m.apply(e, answer, began)...)
		if e.Err == nil {
			usable = append(usable, name)
		}
	}
	if m.Leaders.pressing() { // leaders are urgent, known limits are not
		usable = slices.DeleteFunc(usable, func(name string) bool { return m.topics[name].maxBytes > 0 })
	}
	m.publish()
	m.mu.Unlock()
	if m.Moved != nil {
		for _, p := range moved {
			m.Moved(p)
		}
	}
	if len(usable) > 0 {
		m.fetchLimits(ctx, usable, began)
	}
	if m.answered != nil {
		m.answered()
	}
}

// ask returns a broker's answer about topics. A client as the broker means any broker.
func ask(ctx context.Context, broker kmsg.Requestor, names []string,
	create bool) (map[string]*kmsg.MetadataResponseTopic, []kmsg.MetadataResponseBroker, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = create
	for _, n := range names {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := Within(ctx, func() (*kmsg.MetadataResponse, error) { return req.RequestWith(ctx, broker) })
	if err != nil {
		return nil, nil, err
	}
	answers := make(map[string]*kmsg.MetadataResponseTopic, len(resp.Topics))
	for i := range resp.Topics {
		if rt := &resp.Topics[i]; rt.Topic != nil {
			answers[*rt.Topic] = rt
		}
	}
	return answers, resp.Brokers, nil
}

// askOthers asks other brokers about topics that one broker does not know, and replaces its answers. If another broker
// knows a topic, or returns another error, that counts: only UNKNOWN_TOPIC from all means that it does not exist.
func askOthers(ctx context.Context, client Brokers, answers map[string]*kmsg.MetadataResponseTopic) {
	others := client.DiscoveredBrokers()
	if len(others) < 2 {
		return
	}
	unknown := slices.Collect(maps.Keys(answers))
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	ctx, cancel := context.WithTimeout(ctx, otherTimeout)
	defer cancel()
	all := make(chan map[string]*kmsg.MetadataResponseTopic)
	n := min(len(others), maxOthers)
	for _, b := range others[:n] {
		go func() {
			known, _, _ := ask(ctx, b, unknown, false) // an unresponsive broker does not count
			all <- known
		}()
	}
	for range n {
		for name, a := range <-all {
			if err := kerr.ErrorForCode(a.ErrorCode); answers[name] != nil && !Gone(err) &&
				answers[name].ErrorCode != 0 {
				answers[name] = a
			}
		}
	}
}

// apply applies the answer about one topic, to a request that began at a moment. It returns the partitions whose leader
// changed. The lock is held.
func (m *Metadata) apply(e *cachedTopic, rt *kmsg.MetadataResponseTopic,
	began time.Time) (moved []timer.TopicPartition) {
	got := TopicInfo{Err: kerr.ErrorForCode(rt.ErrorCode), Leader: make([]bool, len(rt.Partitions))}
	leaders := make([]partitionLeader, len(rt.Partitions))
	for _, p := range rt.Partitions {
		if int(p.Partition) < len(got.Leader) {
			got.Leader[p.Partition] = p.Leader >= 0
			leaders[p.Partition] = partitionLeader{node: p.Leader, epoch: partlog.EpochOf(p.LeaderEpoch), isr: p.ISR}
		}
	}
	same := e.id == rt.TopicID
	switch {
	case got.Err != nil && !RefusedForGood(got.Err) && len(e.Leader) > 0:
		return nil // a temporary error: the known metadata stays
	case got.Err == nil && same && len(got.Leader) < len(e.Leader):
		return nil // a topic never loses partitions: the broker is behind
	case !Gone(got.Err):
		e.missing = time.Time{}
	case e.missing.IsZero():
		e.missing = began
	}
	if !same || len(e.Leader) != len(got.Leader) {
		m.versions++
		e.version = m.versions
		e.beyond = time.Time{}
	}
	got.Compacted = e.Compacted && same
	before := m.Leaders.learn(*rt.Topic, leaders)
	if same {
		for p := range min(len(before), len(leaders)) {
			if before[p].epoch != leaders[p].epoch || e.Leader[p] && !got.Leader[p] {
				moved = append(moved, timer.TopicPartition{Topic: *rt.Topic, Partition: int32(p)})
			}
		}
	}
	e.TopicInfo, e.id = got, rt.TopicID
	if got.Err != nil || e.maxBytes > 0 {
		e.fetched = began // else fetchLimits sets it
	}
	return moved
}

// fetchLimits reads max.message.bytes and cleanup.policy. If the service may not describe a target, Kafka's defaults
// apply.
func (m *Metadata) fetchLimits(ctx context.Context, names []string, began time.Time) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, n := range names {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, n,
			[]string{"max.message.bytes", "cleanup.policy"}
		req.Resources = append(req.Resources, r)
	}
	resp, err := Within(ctx, func() (*kmsg.DescribeConfigsResponse, error) { return req.RequestWith(ctx, m.client) })
	if err != nil {
		return // a topic without a known limit stays unknown, and is looked up again
	}
	limits, compacted := make(map[string]int32), make(map[string]bool)
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
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.publish()
	for _, n := range names {
		e := m.topics[n]
		if e == nil {
			continue
		}
		was := e.maxBytes
		if !began.Before(e.refutedAt) {
			e.fetched = began
		}
		if limit := limits[n]; limit > 0 {
			e.maxBytes = limit
		} else if e.maxBytes <= 0 {
			e.maxBytes = DefaultBatchMaxBytes
		}
		if e.maxBytes != was {
			m.versions++
			e.version = m.versions
		}
		if policy, ok := compacted[n]; ok {
			e.Compacted = policy
		}
	}
}

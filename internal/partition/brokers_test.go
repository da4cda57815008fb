package partition

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

// brokers simulates the brokers of target topics for a partition: the leaders, and the brokers that answer. A topic
// without an entry does not exist.
type brokers struct {
	leaders      map[string][]int32            // of each partition; -1: none
	unresponsive map[timer.TopicPartition]bool // these have a leader that does not answer
}

func newBrokers() *brokers {
	return &brokers{
		leaders:      map[string][]int32{targetTopic: {0, 0, 0}, otherTopic: {0}},
		unresponsive: map[timer.TopicPartition]bool{},
	}
}

func (b *brokers) DiscoveredBrokers() []*kgo.Broker { return nil }

// Request answers for metadata, and has no limits to report.
func (b *brokers) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	req, ok := r.(*kmsg.MetadataRequest)
	if !ok {
		return r.ResponseKind(), nil // settings are not reported
	}
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	for _, rt := range req.Topics {
		x := kmsg.NewMetadataResponseTopic()
		x.Topic = rt.Topic
		leaders, there := b.leaders[*rt.Topic]
		if !there {
			x.ErrorCode = kerr.UnknownTopicOrPartition.Code
		}
		for i, leader := range leaders {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader = int32(i), leader
			x.Partitions = append(x.Partitions, p)
		}
		resp.Topics = append(resp.Topics, x)
	}
	return resp, nil
}

// takes returns a partition's answer to a record.
func (b *brokers) takes(p timer.TopicPartition) error {
	switch leaders := b.leaders[p.Topic]; {
	case int(p.Partition) >= len(leaders):
		return kerr.UnknownTopicOrPartition
	case leaders[p.Partition] < 0:
		return kerr.LeaderNotAvailable
	case b.unresponsive[p]:
		return context.DeadlineExceeded
	}
	return nil
}

// probe is the Probe of Health.
func (c *core) probe(_ context.Context, p timer.TopicPartition) error {
	err := c.brokers.takes(p)
	known, _ := c.o.Targets.Cached(p.Topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) && !targets.UnknownTopic(known.Err) && !c.o.Targets.Lacks(p) {
		return errors.New("nobody is known to lead it")
	}
	return err
}

// look simulates the background work: metadata is looked up, unhealthy targets are probed, and time passes for both,
// whatever the wall clock says.
func (c *core) look(after time.Duration) {
	if c.mono = c.mono.Add(after); c.o.Limiter != nil {
		c.o.Limiter.Round()
	}
	c.ok(c.o.Targets.Refresh(context.Background(), targetTopics...))
	c.o.Health.Round(context.Background(), func(probe func()) { probe() })
}

// park runs the part of the partition's loop that parks and unparks.
func (c *core) park() {
	if c.s.checkpoints.writing {
		return
	}
	c.ok(c.s.keeper.parking.parkAll())
	c.ok(c.s.keeper.parking.unpark())
	c.ok(c.s.keeper.parking.undefer())
}

// vanish removes a topic, and appear brings it back.
func (c *core) vanish(topic string) { delete(c.brokers.leaders, topic) }

func (c *core) appear(topic string, partitions int) {
	c.brokers.leaders[topic] = make([]int32, partitions)
}

// heal makes every partition answer.
func (c *core) heal() {
	clear(c.brokers.unresponsive)
	for _, leaders := range c.brokers.leaders {
		clear(leaders)
	}
}

// refused simulates the lane when a target does not accept an emission of a step: breakers trip, or metadata is
// refuted, and the step is aborted. It reports whether there was such an emission.
func (c *core) refused() bool {
	tripped := map[timer.TopicPartition]error{}
	gone := map[string]bool{}
	for i := range c.share.Emissions {
		to := c.share.Emissions[i].To()
		switch err := c.brokers.takes(to); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			gone[to.Topic] = true
		case err != nil:
			tripped[to] = err
		}
	}
	if len(tripped)+len(gone) == 0 {
		return false
	}
	for topic := range gone {
		c.o.Targets.Refuted(topic)
	}
	if len(tripped) > 0 {
		c.o.Health.Trip(tripped)
	}
	for i := range c.share.Emissions {
		e := &c.share.Emissions[i]
		if len(tripped) > 0 && !c.o.Health.Allow(e.To(), e.Permit) {
			e.Err = emitter.ErrUnhealthy
		}
	}
	c.abort()
	return true
}

// passing checks that a step has nothing for an unhealthy target except admitted timers.
func (c *core) passing() {
	c.t.Helper()
	for i := range c.share.Emissions {
		e := &c.share.Emissions[i]
		if to := e.To(); !c.o.Health.Allow(to, e.Permit) {
			c.t.Fatalf("an emission to %v is sealed, which is unhealthy", to)
		}
	}
}

// passed tells Health the committed emissions.
func (c *core) passed() {
	pass := map[timer.TopicPartition]int{}
	for i := range c.share.Emissions {
		pass[c.share.Emissions[i].To()]++
	}
	for to, n := range pass {
		c.o.Health.Committed(to, n)
	}
}

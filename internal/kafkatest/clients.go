package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	topicTimeout = 30 * time.Second
	// maxTopicStem leaves room for the unique part and for the suffixes of the
	// service's own topics within Kafka's 249 characters.
	maxTopicStem = 150
)

// Client returns a client of the cluster that is closed when the test ends.
func (c *Cluster) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return Client(t, append([]kgo.Opt{
		kgo.SeedBrokers(c.Seeds()...),
		kgo.MetadataMinAge(250 * time.Millisecond),
	}, opts...)...)
}

// Admin returns an administration client that is closed when the test ends.
func (c *Cluster) Admin(t testing.TB) *kadm.Client {
	t.Helper()
	return kadm.NewClient(c.Client(t))
}

// CreateTopic creates a topic with three replicas, or one on a single broker,
// and returns its name when every running broker knows the leader of every
// partition. Without a name it is called Topic(t).
func (c *Cluster) CreateTopic(t testing.TB, partitions int32, configs map[string]*string, name ...string) string {
	t.Helper()
	topic := strings.Join(name, "")
	if topic == "" {
		topic = Topic(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), topicTimeout)
	defer cancel()
	cl := c.Client(t)
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, int16(len(c.Brokers)), configs, topic); err != nil {
		t.Fatalf("kafkatest: create topic %s: %v", topic, err)
	}
	if err := c.awaitTopic(ctx, cl, topic, partitions); err != nil {
		t.Fatalf("kafkatest: wait for topic %s: %v", topic, err)
	}
	return topic
}

// awaitTopic asks each broker, because each learns of a topic separately.
func (c *Cluster) awaitTopic(ctx context.Context, cl *kgo.Client, topic string, partitions int32) error {
	for _, b := range c.Brokers {
		for b.Running() && !knowsTopic(ctx, cl.Broker(b.ID()), topic, partitions) {
			if !beats.Sleep(ctx, pollInterval) {
				return fmt.Errorf("broker %d: %w", b.ID(), ctx.Err())
			}
		}
	}
	return nil
}

// knowsTopic reports whether the broker names a leader for every partition.
func knowsTopic(ctx context.Context, broker kmsg.Requestor, topic string, partitions int32) bool {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, broker)
	if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != int(partitions) {
		return false
	}
	for _, p := range resp.Topics[0].Partitions {
		if p.ErrorCode != 0 || p.Leader < 0 {
			return false
		}
	}
	return true
}

// Topic returns a topic name that no other test has, made from the test's name.
func Topic(t testing.TB) string {
	stem := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, t.Name())
	var unique [6]byte
	_, _ = rand.Read(unique[:]) // never fails
	return stem[:min(len(stem), maxTopicStem)] + "-" + hex.EncodeToString(unique[:])
}

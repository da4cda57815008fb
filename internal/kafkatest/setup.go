package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

// setupLimit bounds every wait of a test with a Setup.
const setupLimit = time.Minute

// Setup is a cluster, fake or real, with helpers for tests of packages below the service.
type Setup struct {
	T     testing.TB
	Ctx   context.Context // ends after setupLimit, or with the test
	Fake  *kfake.Cluster  // nil if the brokers are real
	Seeds []string
	Adm   *kadm.Client
	Topic string // a name that no other test has, of a topic that does not exist yet
}

// OnFake returns the Setup of the given number of fake brokers.
func OnFake(t testing.TB, brokers int) *Setup {
	t.Helper()
	c, _ := Fake(t, kfake.NumBrokers(brokers))
	return newSetup(t, c, c.ListenAddrs())
}

// OnBoth runs f against a fake broker and against a real one: the result holds for Kafka, and the fake gives it on
// machines without Kafka.
func OnBoth(t *testing.T, f func(t *testing.T, s *Setup)) {
	t.Run("kfake", func(t *testing.T) { f(t, OnFake(t, 1)) })
	t.Run("kafka", func(t *testing.T) { f(t, OnShared(t)) })
}

// OnShared returns a Setup of the shared broker.
func OnShared(t testing.TB) *Setup {
	t.Helper()
	return newSetup(t, nil, Shared(t).Seeds())
}

func newSetup(t testing.TB, fake *kfake.Cluster, seeds []string) *Setup {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupLimit)
	t.Cleanup(cancel)
	s := &Setup{T: t, Ctx: ctx, Fake: fake, Seeds: seeds, Topic: Topic(t)}
	s.Adm = kadm.NewClient(s.Client())
	return s
}

// Client returns a client that writes to the partitions that records name. It is closed when the test ends.
func (s *Setup) Client(opts ...kgo.Opt) *kgo.Client {
	s.T.Helper()
	return Client(s.T, append([]kgo.Opt{
		kgo.SeedBrokers(s.Seeds...),
		kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
	}, opts...)...)
}

// Create makes a topic and waits until it is there.
func (s *Setup) Create(topic string, partitions int32, configs map[string]string) {
	s.T.Helper()
	ptrs := make(map[string]*string)
	for k, c := range configs {
		ptrs[k] = kadm.StringPtr(c)
	}
	_, err := s.Adm.CreateTopic(s.Ctx, partitions, 1, ptrs, topic)
	must(s.T, err)
	// The controller has the topic; the next broker that is asked may not know it yet.
	await.Until(s.T, setupLimit, "topic "+topic+", which was created, is there", func() bool {
		found, err := s.Adm.ListTopics(kadm.WithAuthorizedOps(s.Ctx), topic)
		return err == nil && found[topic].Err == nil && len(found[topic].Partitions) == int(partitions)
	})
}

// Fake returns brokers within this process, and a client of theirs, for tests that do not need real ones. Both end with
// the test.
func Fake(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	must(t, err)
	t.Cleanup(c.Close)
	return c, Client(t, kgo.SeedBrokers(c.ListenAddrs()...))
}

// Client returns a client that is closed when the test ends.
func Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(opts...)
	must(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("kafkatest: %v", err)
	}
}

const (
	topicTimeout = 30 * time.Second
	// maxTopicStem leaves room for the unique part and for the suffixes of the service's own topics within Kafka's 249
	// characters.
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

// CreateTopic creates a topic with three replicas, or one on a single broker, and returns its name when every running
// broker knows the leader of every partition. Without a name it is called Topic(t).
func (c *Cluster) CreateTopic(t testing.TB, partitions int32, configs map[string]*string, name ...string) string {
	t.Helper()
	topic := strings.Join(name, "")
	if topic == "" {
		topic = Topic(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), topicTimeout)
	defer cancel()
	cl := c.Client(t)
	_, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, int16(len(c.Brokers)), configs, topic)
	must(t, err)
	must(t, c.awaitTopic(ctx, cl, topic, partitions))
	return topic
}

// awaitTopic asks each broker, because each learns of a topic separately.
func (c *Cluster) awaitTopic(ctx context.Context, cl *kgo.Client, topic string, partitions int32) error {
	for _, b := range c.Brokers {
		for b.Running() && !knowsTopic(ctx, cl.Broker(b.ID()), topic, partitions) {
			if !beats.Sleep(ctx, pollInterval) {
				return fmt.Errorf("wait for topic %s on broker %d: %w", topic, b.ID(), ctx.Err())
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

// SetTopic changes one setting of a topic. Brokers learn of it in their own time.
func SetTopic(t testing.TB, adm *kadm.Client, topic, setting, value string) {
	t.Helper()
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: setting, Value: &value}}
	resp, err := adm.AlterTopicConfigs(t.Context(), set, topic)
	if err == nil {
		_, err = resp.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	must(t, err)
}

// DeleteTopics deletes topics and waits until a broker no longer knows any of them.
func DeleteTopics(t testing.TB, adm *kadm.Client, topics ...string) {
	t.Helper()
	fresh := kadm.WithAuthorizedOps(t.Context()) // not from a cache
	were, err := adm.ListTopics(fresh, topics...)
	must(t, err)
	resp, err := adm.DeleteTopics(t.Context(), topics...)
	must(t, errors.Join(err, resp.Error()))
	// Brokers hear of it some time after the answer; another client may have created them
	// again.
	await.Until(t, 10*time.Second, fmt.Sprintf("kafkatest: %v, which were deleted, are gone", topics), func() bool {
		are, err := adm.ListTopics(fresh, topics...)
		return err == nil && !slices.ContainsFunc(topics,
			func(topic string) bool { return are[topic].Err == nil && are[topic].ID == were[topic].ID })
	})
}

// GrowTopics adds partitions until each topic has that many.
func GrowTopics(t testing.TB, adm *kadm.Client, partitions int, topics ...string) {
	t.Helper()
	resp, err := adm.UpdatePartitions(t.Context(), partitions, topics...)
	must(t, errors.Join(err, resp.Error()))
}

// AssignFirst puts the first partition of topics on these brokers. The first broker leads it. The move is still in
// progress when it returns.
func AssignFirst(t testing.TB, adm *kadm.Client, brokers []int32, topics ...string) {
	t.Helper()
	var req kadm.AlterPartitionAssignmentsReq
	for _, topic := range topics {
		req.Assign(topic, 0, brokers)
	}
	resp, err := adm.AlterPartitionAssignments(t.Context(), req)
	must(t, errors.Join(err, resp.Error()))
}

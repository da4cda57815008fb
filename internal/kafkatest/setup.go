package kafkatest

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// setupLimit bounds every wait of a test with a Setup.
const setupLimit = time.Minute

// Setup is a cluster, fake or real, and what tests of packages below the service need from it.
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

// OnBoth runs f against a fake broker and against a real one: what f shows holds for Kafka, and the fake
// shows it on machines without Kafka.
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
	if _, err := s.Adm.CreateTopic(s.Ctx, partitions, 1, ptrs, topic); err != nil {
		s.T.Fatalf("kafkatest: create topic %s: %v", topic, err)
	}
	// The controller has the topic; the next broker that is asked may not know it yet.
	await.Until(s.T, setupLimit, "topic "+topic+", which was created, is there", func() bool {
		found, err := s.Adm.ListTopics(kadm.WithAuthorizedOps(s.Ctx), topic)
		return err == nil && found[topic].Err == nil && len(found[topic].Partitions) == int(partitions)
	})
}

package replay

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const testTimeout = 60 * time.Second

// venue is a broker, and a topic name of the test's own.
type venue struct {
	ctx     context.Context
	seeds   []string
	real    bool // not kfake
	adm     *kadm.Client
	request string
}

// onBoth runs f against kfake and against a real Kafka.
func onBoth(t *testing.T, f func(t *testing.T, v venue)) {
	t.Run("kfake", func(t *testing.T) { f(t, newVenue(t, fake(t, 1).ListenAddrs())) })
	t.Run("kafka", func(t *testing.T) {
		v := newVenue(t, kafkatest.Shared(t).Seeds())
		v.real = true
		f(t, v)
	})
}

func fake(t testing.TB, n int) *kfake.Cluster {
	t.Helper()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(n))
	return c
}

func newVenue(t testing.TB, seeds []string) venue {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	v := venue{ctx: ctx, seeds: seeds, request: kafkatest.Topic(t)}
	v.adm = kadm.NewClient(v.client(t))
	return v
}

func (v venue) client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(v.seeds...),
		kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// create makes a topic by hand.
func (v venue) create(t testing.TB, name string, partitions int32, configs map[string]string) {
	t.Helper()
	ptrs := make(map[string]*string)
	for k, c := range configs {
		ptrs[k] = kadm.StringPtr(c)
	}
	if _, err := v.adm.CreateTopic(v.ctx, partitions, 1, ptrs, name); err != nil {
		t.Fatal(err)
	}
	// The controller has it; the broker that is asked next may not have heard yet.
	await.Until(t, 20*time.Second, "topic "+name+", which was created, is there", func() bool {
		found, err := v.adm.ListTopics(kadm.WithAuthorizedOps(v.ctx), name)
		return err == nil && found[name].Err == nil && len(found[name].Partitions) == int(partitions)
	})
}

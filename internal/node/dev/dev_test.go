package dev

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// The embedded broker tells clients an address that they can reach, whatever it listens on.
func TestEmbeddedBrokerAdvertisesWhatWorks(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "0.0.0.0", "", "::", "localhost"} {
		cluster, addr, err := embeddedBroker(net.JoinHostPort(host, "0"), t.TempDir())
		if err != nil {
			t.Errorf("%q: %v", host, err)
			continue
		}
		t.Cleanup(cluster.Close)
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		cl := kafkatest.Client(t, kgo.SeedBrokers(net.JoinHostPort("127.0.0.1", port)))
		meta, err := kadm.NewClient(cl).BrokerMetadata(t.Context())
		if err != nil {
			t.Fatalf("%q: %v", host, err)
		}
		for _, b := range meta.Brokers {
			if ip := net.ParseIP(b.Host); ip == nil || ip.IsUnspecified() {
				t.Errorf("%q: clients are told %s", host, b.Host)
			}
		}
		cl.ForceMetadataRefresh()
		// This request goes to the broker at the address that it advertises.
		if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "made"); err != nil {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// dev creates topics that pass its own checks without a warning.
func TestTopicsThatDevMakesAreAsTheyShouldBe(t *testing.T) {
	cluster, addr, err := embeddedBroker("127.0.0.1:0", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cfg := config.Default()
	cfg.Brokers, cfg.Requests, cfg.ReplicationFactor = []string{addr}, []string{"timers"}, 1
	cfg.Delay = []config.DelayTopic{{Topic: "retry", Delay: time.Second, Target: "orders"}}
	if err := devTopics(t.Context(), &cfg); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := commands.Topics(t.Context(), &cfg, true, &out); err != nil || strings.Contains(out.String(), "warning") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// A timestamp more than an hour in the future is rejected as Kafka rejects it, without the rest of the request, unless
// the broker sets timestamps itself.
func TestTimestampsOfTheFuture(t *testing.T) {
	cluster, addr, err := embeddedBroker("127.0.0.1:0", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	logAppend, day := "LogAppendTime", "86400000"
	for topic, configs := range map[string]map[string]string{
		"plain": nil, "own": {"message.timestamp.type": logAppend}, "day": {"message.timestamp.after.max.ms": day},
	} {
		if err := cluster.CreateTopic(topic, 2, configs); err != nil {
			t.Fatal(err)
		}
	}
	cl := kafkatest.Client(t, kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(50*time.Millisecond))
	at := func(topic string, partition int32, ahead time.Duration) *kgo.Record {
		return &kgo.Record{Topic: topic, Partition: partition, Timestamp: time.Now().Add(ahead)}
	}
	records := []*kgo.Record{
		at("plain", 0, 2*time.Hour), at("plain", 1, 30*time.Minute), at("own", 0, 2*time.Hour),
		at("day", 0, 2*time.Hour), at("day", 1, 25*time.Hour),
	}
	for _, res := range cl.ProduceSync(t.Context(), records...) {
		r := res.Record
		want := r.Topic == "plain" && r.Partition == 0 || r.Topic == "day" && r.Partition == 1
		if got := errors.Is(res.Err, kerr.InvalidTimestamp); got != want || res.Err != nil && !got {
			t.Errorf("%s/%d: %v", r.Topic, r.Partition, res.Err)
		}
	}
	if res := cl.ProduceSync(t.Context(), at("plain", 0, 0)); res.FirstErr() != nil { // rejected records do no harm
		t.Error(res.FirstErr())
	}
}

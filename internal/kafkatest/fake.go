package kafkatest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Fake returns brokers within this process, and a client of theirs, for tests that
// need no real ones. Both end with the test.
func Fake(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatalf("kafkatest: start fake brokers: %v", err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatalf("kafkatest: make a client: %v", err)
	}
	t.Cleanup(cl.Close)
	return c, cl
}

// OnBoth runs f against a broker within this process and against a real one: what
// f shows holds for Kafka, and the fake shows it where there is none. opts are the
// fake's.
func OnBoth(t *testing.T, f func(t *testing.T, seeds []string), opts ...kfake.Opt) {
	t.Run("kfake", func(t *testing.T) {
		c, _ := Fake(t, append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
		f(t, c.ListenAddrs())
	})
	t.Run("kafka", func(t *testing.T) { f(t, Shared(t).Seeds()) })
}

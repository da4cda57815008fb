package kafkatest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Fake returns brokers within this process, and a client of theirs, for tests that do
// not need real ones. Both end with the test.
func Fake(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatalf("kafkatest: start fake brokers: %v", err)
	}
	t.Cleanup(c.Close)
	return c, Client(t, kgo.SeedBrokers(c.ListenAddrs()...))
}

// Client returns a client that is closed when the test ends.
func Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatalf("kafkatest: make a client: %v", err)
	}
	t.Cleanup(cl.Close)
	return cl
}

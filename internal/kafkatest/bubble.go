package kafkatest

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// cableTakes is how long a request takes on the network. In a bubble, no time would otherwise pass
// for a client that always has something to send. With a smaller value the processor has many
// requests to handle.
const cableTakes = 10 * time.Millisecond

// bubbleEnd is how long kgo's goroutines may take to end by themselves after Close.
const bubbleEnd = time.Minute

// cable is a network within the process, so that tests can run in a bubble of testing/synctest,
// where their times hold on a machine of any speed.
type cable struct{ kfake.VirtualNetwork }

func (c *cable) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := c.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return cabled{conn}, nil
}

type cabled struct{ net.Conn }

// Write implements net.Conn.
func (c cabled) Write(b []byte) (int, error) {
	time.Sleep(cableTakes)
	return c.Conn.Write(b)
}

// Bubble returns fake brokers with topics of one partition each, the options for their clients, and
// a client. The test must be in a bubble of testing/synctest.
func Bubble(t *testing.T, brokers int, topics ...string) (*kfake.Cluster, []kgo.Opt, *kgo.Client) {
	t.Helper()
	var network cable
	ports := make([]int, brokers)
	for i := range ports {
		ports[i] = 9092 + i
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(brokers), kfake.SeedTopics(1, topics...), kfake.Ports(ports...),
		kfake.ListenFn(network.Listen))
	must(t, err)
	t.Cleanup(func() {
		synctest.Wait() // kfake may end while holding its lock, and would never end while a sleeper wakes up
		c.Close()
		time.Sleep(bubbleEnd)
	})
	opts := []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(network.dial)}
	return c, opts, Client(t, opts...)
}

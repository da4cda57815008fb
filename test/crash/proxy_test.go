package crash

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
	"github.com/waterclock/waterclock/test/rig"
)

// withProxy gives every broker a listener that clients in other processes reach through a wire: see proxied. n numbers
// such listeners, from 0.
func withProxy(n int) kafkatest.Option {
	return localkafka.WithProxiedListener(proxyName(n), proxyHost(n))
}

func proxyName(n int) string { return fmt.Sprint("PROXIED", n) }

// proxyHost is another loopback address for each listener, so that proxy and broker can have the same port.
func proxyHost(n int) string { return fmt.Sprint("127.0.0.", 2+n) }

// proxied makes connections to listener n of the brokers go through a wire, until the test ends. It returns the
// addresses of the brokers for clients.
func proxied(t testing.TB, w *kafkatest.Wire, c *kafkatest.Cluster, n int) (seeds []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var proxies sync.WaitGroup
	t.Cleanup(func() { cancel(); proxies.Wait() }) // runs before the wire's own cleanup
	for _, broker := range c.Listener(proxyName(n)) {
		_, port, err := net.SplitHostPort(broker)
		if err != nil {
			t.Fatal(err)
		}
		addr := net.JoinHostPort(proxyHost(n), port)
		proxies.Go(func() {
			for ctx.Err() == nil {
				proxy(ctx, w, addr, broker)
			}
		})
		seeds = append(seeds, addr)
	}
	return seeds
}

// proxy accepts connections as long as the broker does. A dead broker refuses them, so the proxy must too.
func proxy(ctx context.Context, w *kafkatest.Wire, addr, broker string) {
	for !accepts(broker) {
		if !beats.Sleep(ctx, 20*time.Millisecond) {
			return
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer func() { _ = l.Close() }()
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", broker)
		if err != nil {
			_ = client.Close()
			return
		}
		w.Join(client, conn)
	}
}

// Requests to a proxied listener go through the wire, and are refused when the broker is dead.
func TestProxy(t *testing.T) {
	c := kafkatest.Start(t, 1, withProxy(0))
	topic := c.CreateTopic(t, 1, nil)
	w := kafkatest.NewWire()
	t.Cleanup(w.Close)
	seeds := proxied(t, w, c, 0)
	await.Until(t, rig.Patience, "the proxy listens", func() bool { return accepts(seeds[0]) })
	cl := kafkatest.Client(t, kgo.SeedBrokers(seeds...))
	produce := func(value string) {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce("first")
	w.Cut()
	produce("second")
	if n := w.Requests(kmsg.Produce.Int16()); n != 2 {
		t.Errorf("%d requests to produce went through the wire, want 2", n)
	}
	c.Kill(0)
	await.Until(t, rig.Patience, "connections are refused", func() bool { return !accepts(seeds[0]) })
}

func accepts(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

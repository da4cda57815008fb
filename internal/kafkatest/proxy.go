package kafkatest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
)

// WithProxy gives every broker a listener that clients in other processes reach through a wire: see [Wire.Listen]. n
// numbers such listeners, from 0.
func WithProxy(n int) Option { return localkafka.WithProxiedListener(proxyName(n), proxyHost(n)) }

func proxyName(n int) string { return fmt.Sprint("PROXIED", n) }

// proxyHost is another loopback address for each listener, so that proxy and broker can have the same port.
func proxyHost(n int) string { return fmt.Sprint("127.0.0.", 2+n) }

// Listen makes connections to listener n of the brokers go through the wire, until the test ends. It returns the
// addresses of the brokers for clients.
func (w *Wire) Listen(t testing.TB, c *Cluster, n int) (seeds []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var proxies sync.WaitGroup
	t.Cleanup(func() { cancel(); proxies.Wait() }) // runs before the wire's own cleanup
	for _, broker := range c.Listener(proxyName(n)) {
		_, port, err := net.SplitHostPort(broker)
		must(t, err)
		addr := net.JoinHostPort(proxyHost(n), port)
		proxies.Go(func() {
			for ctx.Err() == nil {
				w.proxy(ctx, addr, broker)
			}
		})
		seeds = append(seeds, addr)
	}
	return seeds
}

// proxy accepts connections as long as the broker does. A dead broker refuses them, so the proxy must too.
func (w *Wire) proxy(ctx context.Context, addr, broker string) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", broker)
		if err == nil {
			_ = conn.Close()
			break
		}
		if !beats.Sleep(ctx, pollInterval) {
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
		conn, err := w.dial(ctx, "tcp", broker)
		if err != nil {
			_ = client.Close()
			return
		}
		if k := newLink(w, client, conn); !w.add(k) {
			k.close()
		}
	}
}

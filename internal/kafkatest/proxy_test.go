package kafkatest

import (
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// Requests to a proxied listener go through the wire, and are refused when the broker is dead.
func TestProxy(t *testing.T) {
	c := Start(t, 1, WithProxy(0))
	topic := c.CreateTopic(t, 1, nil)
	w := NewWire()
	t.Cleanup(w.Close)
	seeds := w.Listen(t, c, 0)
	await.Until(t, waitLimit, "the proxy listens", func() bool { return accepts(seeds[0]) })
	cl := Client(t, kgo.SeedBrokers(seeds...))
	produce(t, cl, topic, "first")
	w.Cut()
	produce(t, cl, topic, "second")
	if n := w.Requests(kmsg.Produce.Int16()); n != 2 {
		t.Errorf("%d requests to produce went through the wire, want 2", n)
	}
	c.Kill(0)
	await.Until(t, waitLimit, "connections are refused", func() bool { return !accepts(seeds[0]) })
}

func accepts(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

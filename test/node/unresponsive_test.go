package node_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// gate is a way to the brokers that can be shut: connections end, and none can be
// opened. mu guards what follows it.
type gate struct {
	mu    sync.Mutex
	shut  bool
	conns []net.Conn
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		addr = "127.0.0.1:1" // refuses, as does the machine of a broker that is gone
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		g.conns = append(g.conns, c)
	}
	return c, err
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut = shut; shut {
		for _, c := range g.conns {
			c.Close()
		}
		g.conns = nil
	}
}

// When the only broker dies the instance is not ready once the session timeout is
// over, and says why; when the broker is back it is ready by itself.
func TestNotReadyWhenNoBrokerAnswers(t *testing.T) {
	cfg := rig.Config(t, fake(t, "one").ListenAddrs(), requests)
	cfg.SessionTimeout = 2 * time.Second
	g := &gate{}
	in, log := rig.ServeLogged(t, cfg, node.Options{Dial: g.dial})
	in.Ready(2, limit)
	g.set(true)
	took := await.Until(t, limit, "not ready", func() bool {
		status, _ := in.Readyz()
		return status == http.StatusServiceUnavailable
	})
	if took > 2*cfg.SessionTimeout {
		t.Errorf("not ready after %s only", took)
	}
	if _, body := in.Readyz(); !strings.Contains(body, "no broker has answered for group "+cfg.Group) {
		t.Errorf("no reason: %s", body)
	}
	await.Until(t, limit, "the log says it",
		func() bool { return len(log.Lines("not ready: no broker has answered")) == 1 })
	g.set(false)
	in.Ready(2, limit)
	await.Until(t, limit, "the log says it", func() bool { return len(log.Lines("the brokers answer again")) == 1 })
	for words, most := range map[string]int{"a broker is down": 1, "cannot check for hanging transactions": 0,
		"group manage loop errored": 0} {
		if n := len(log.Lines(words)); n > most {
			t.Errorf("%q is said %d times for one loss", words, n)
		}
	}
}

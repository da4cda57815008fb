package node_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// deaf is a way to brokers. Once it is shut they take connections, and whatever is sent, and answer nothing.
type deaf struct{ shut atomic.Bool }

func (d *deaf) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return deafConn{c, d}, nil
}

type deafConn struct {
	net.Conn
	d *deaf
}

// Write implements net.Conn.
func (d deafConn) Write(b []byte) (int, error) {
	if d.d.shut.Load() {
		return len(b), nil
	}
	return d.Conn.Write(b)
}

// An instance ends soon although no broker answers any more and timers fall due. Until then /readyz says what it does.
func TestStopWhileNoBrokerAnswers(t *testing.T) {
	t.Parallel()
	cfg, d := rig.Config(t, fake(t, "one").ListenAddrs(), requests), &deaf{}
	o := node.Options{Dial: d.dial}
	withAPI(t, cfg, &o)
	in := rig.Serve(t, cfg, o)
	in.Ready(2, limit)
	schedule(t, cfg, 200, time.Second)
	await.Until(t, limit, "timers are taken in",
		func() bool { return in.Metric("waterclock_outcomes_total", "outcome", "scheduled") == 200 })
	d.shut.Store(true)
	start := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- in.Stop() }()
	await.Until(t, limit, "it says that it is stopping",
		func() bool { _, r := readyz(t, in); return r.Phase == "stopping" })
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	// Leaving the group, the API's calls and aborts beside the lanes have a few seconds each.
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

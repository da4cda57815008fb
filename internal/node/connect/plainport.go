package connect

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/node/dialer"
)

const (
	// plainAfter is how long a TLS handshake may take before the port is asked whether it speaks Kafka without TLS.
	plainAfter = time.Second
	// plainTimeout limits that question.
	plainTimeout = time.Second
)

// plainPortError says that a broker speaks Kafka without TLS on a port that was dialed with TLS.
type plainPortError struct{ addr string }

func (p *plainPortError) Error() string { return p.addr + " does not speak TLS" }

// dialTLS opens a TLS connection. A port without TLS may wait for the rest of an apparently long request, and never
// answer. So if a handshake takes long, dialTLS asks on another connection whether the port speaks Kafka without TLS.
// That tells the port only that a Kafka client is there.
func dialTLS(ctx context.Context, network, addr string, tc *tls.Config) (net.Conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	shaking, cancel := context.WithCancel(ctx)
	defer cancel()
	var plain atomic.Bool
	ask := time.AfterFunc(plainAfter, func() {
		if speaksPlain(shaking, network, addr) {
			plain.Store(true)
			cancel()
		}
	})
	defer ask.Stop()
	c := tls.Client(raw, tc)
	if err := c.HandshakeContext(shaking); err != nil {
		raw.Close()
		if plain.Load() {
			return nil, &plainPortError{addr}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("TLS handshake with %s: %w", addr, ctx.Err())
		}
		return nil, err
	}
	return c, nil
}

// speaksPlain reports whether a port answers a request of Kafka without TLS.
func speaksPlain(ctx context.Context, network, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, plainTimeout)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return false
	}
	defer c.Close()
	return dialer.Ask(ctx, c, plainTimeout) == nil
}

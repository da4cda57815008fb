package connect

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

const (
	// plainAfter is how long a TLS handshake may take before the port is asked whether it speaks Kafka without TLS.
	plainAfter = time.Second
	// plainTimeout limits that question.
	plainTimeout = time.Second
	// maxPlainAnswer limits the length in bytes that the answer may declare.
	maxPlainAnswer = 1 << 20
)

// apiVersions is an ApiVersions request, version 0, with its length before it: no client ID, correlation 0. Every
// broker answers it, before any login (KIP-152).
var apiVersions = []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 0, 0xff, 0xff}

// plainPortError says that a broker speaks Kafka without TLS on a port that was dialed with TLS.
type plainPortError struct{ addr string }

func (p *plainPortError) Error() string { return p.addr + " does not speak TLS" }

// dialTLS opens a TLS connection. A port without TLS may wait for the rest of what it takes for a long request, and
// answer nothing. So if a handshake takes long, dialTLS asks on another connection whether the port speaks Kafka
// without TLS. That tells the port no more than that a Kafka client is there.
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
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if _, err := c.Write(apiVersions); err != nil {
		return false
	}
	var head [8]byte // length and correlation
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return false
	}
	length := binary.BigEndian.Uint32(head[:4])
	return length >= 4 && length <= maxPlainAnswer && binary.BigEndian.Uint32(head[4:]) == 0
}

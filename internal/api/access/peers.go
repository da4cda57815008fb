package access

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Limits of calls to other instances, in addition to those of their context.
const (
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 5 * time.Second
)

// Peers returns the transport for calls to other instances, in the name of the caller of a request's context: over
// HTTP/2, signed, and with TLS if this instance has a certificate. It returns nil if there is no key.
// Make one and keep it, because it has the connections.
//
// A request that changes something is signed once. If the connection breaks and the transport sends it again by itself,
// which it does with an Idempotency-Key, it is rejected the second time, and the outcome of the first is not known.
func (g *Guard) Peers() http.RoundTripper {
	if g.forward == nil {
		return nil
	}
	return &signer{keys: g.forward.keys, next: g.transport(), peers: g.options.Peers}
}

// Scheme returns the scheme of this instance's address, which is also that of the others: http or https.
func (g *Guard) Scheme() string {
	if g.tls != nil {
		return "https"
	}
	return "http"
}

func (g *Guard) transport() *http.Transport {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     idleTimeout / 2, // before the other side closes it
		Protocols:           new(http.Protocols),
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DisableCompression:  true,
	}
	t.Protocols.SetHTTP2(g.tls != nil)
	t.Protocols.SetUnencryptedHTTP2(g.tls == nil)
	if g.tls != nil {
		t.DialTLSContext = g.dialTLS
	}
	return t
}

// dialTLS connects to another instance. It trusts the system's authorities, those of
// clients, and the certificates in this instance's own file, because instances often have the same one. All
// are read again when they change. It shows no certificate: the signature identifies the caller, and a
// certificate that is not of the clients' authority would end the handshake.
func (g *Guard) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial instance %s: %w", address, err)
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		ServerName: host,
		RootCAs:    g.tls.get().roots,
	}}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout+handshakeTimeout)
	defer cancel()
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		// A failed handshake counts as dialing too: the caller learns that nothing was sent.
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return conn, nil
}

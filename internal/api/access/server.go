package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of the server. Requests are short, and so are responses except for streams. A client that sends or reads
// slowly is broken or hostile.
const (
	headerTimeout  = 10 * time.Second
	readTimeout    = time.Minute // a whole request
	writeTimeout   = 2 * time.Minute
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 128 << 10 // a timer's headers may take 64 KiB, before they are escaped
	// headerSlack is the number of further bytes of headers that are read, so that the response is a problem like any
	// other. Beyond that net/http responds by itself, with the same status, and reads no more.
	headerSlack = 64 << 10
	// maxConnections leaves file descriptors for the store and for Kafka's connections.
	maxConnections = 4096
	// maxFromAddress is how many of them one address may have (IPv6: a /64). All callers behind a proxy have the
	// proxy's address. Further ones are closed immediately.
	maxFromAddress = maxConnections / 2
	maxStreams     = 250 // of an HTTP/2 connection
	pingAfter      = 30 * time.Second
	pingTimeout    = 15 * time.Second
)

// Server returns the server of the API, with limits on time and size. It speaks HTTP/1 and HTTP/2. If there is a
// certificate it speaks TLS 1.2 or later; HTTP/2 in plain text is for the calls of other instances. h is the result
// of [Guard.Wrap].
func (g *Guard) Server(h http.Handler) *http.Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes + headerSlack,
		Protocols:         g.protocols(true),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter,
			PingTimeout: pingTimeout},
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	if g.tls != nil {
		s.TLSConfig = &tls.Config{
			MinVersion: tls.VersionTLS12,
			NextProtos: []string{"h2", "http/1.1"},
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				return g.tls.get().server, nil
			},
		}
	}
	return s
}

func (g *Guard) protocols(http1 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetHTTP2(g.tls != nil)
	p.SetUnencryptedHTTP2(g.tls == nil)
	return p
}

// Serve makes a server of [Guard.Server] serve a listener, until its Shutdown or Close. It returns the error of
// http.Server.Serve.
func (g *Guard) Serve(s *http.Server, l net.Listener) error {
	l = netutil.LimitListener(&perAddress{Listener: l, most: maxFromAddress}, maxConnections)
	if s.TLSConfig != nil {
		return s.ServeTLS(l, "", "")
	}
	return s.Serve(l)
}

// perAddress is a listener that closes new connections of an address that has too many. mu guards byNet, the number of
// connections by address.
type perAddress struct {
	net.Listener
	most int

	mu    sync.Mutex
	byNet map[netip.Prefix]int
}

var _ net.Listener = (*perAddress)(nil)

// Accept implements net.Listener.
func (p *perAddress) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := netOf(c.RemoteAddr().String())
		if p.add(from, 1) {
			return &counted{Conn: c, end: sync.OnceFunc(func() { p.add(from, -1) })}, nil
		}
		_ = c.Close()
	}
}

// add adds n to the number of connections of an address, unless that would be too many. It reports whether it did.
func (p *perAddress) add(from netip.Prefix, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byNet == nil {
		p.byNet = make(map[netip.Prefix]int)
	}
	if p.byNet[from]+n > p.most {
		return false
	}
	if p.byNet[from] += n; p.byNet[from] == 0 {
		delete(p.byNet, from)
	}
	return true
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.end()
	return c.Conn.Close()
}

// Stream lifts the time limit of a response that has no end, such as server-sent events. It returns an error if w
// cannot do that. (net/http itself lifts the limit on reading once the body has been read.)
//
// A stream must write something now and then, so that a dead connection is found. [StreamWrite] limits the time of
// each write.
func Stream(w http.ResponseWriter) error {
	return http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

// CutOff ends the writing of a response immediately, even if the caller reads slowly.
func CutOff(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) // if that fails, it ends by itself, later
}

// StreamWrite writes a part of a response for which [Stream] was called, and sends it. A caller that does not take it
// within the limit is cut off.
func StreamWrite(w http.ResponseWriter, part []byte) error {
	c := http.NewResponseController(w)
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := w.Write(part); err != nil {
		return err
	}
	return errors.Join(c.Flush(), c.SetWriteDeadline(time.Time{}))
}

// secure sets the headers that forbid browsers to do anything with a response. Handlers may change them for single
// pages.
//
// The policy for referrers is not no-referrer: with it, forms of our own pages would come with "Origin: null". Over
// plain HTTP, for which browsers do not send Sec-Fetch-Site, they would then be taken for another site's.
// Strict-Transport-Security is not set: it would apply to all ports of the host.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
		"font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

// certificates holds the TLS settings of the files, for callers and for other instances.
type certificates struct {
	server *tls.Config
	roots  *x509.CertPool // authorities that may have issued the certificates of other instances
}

func (g *Guard) watchTLS() (err error) {
	if g.options.TLSCert == "" {
		return nil
	}
	public := []string{g.options.TLSCert}
	if g.options.ClientCA != "" {
		public = append(public, g.options.ClientCA)
	}
	parse := func(texts [][]byte) (*certificates, error) {
		c, err := parseCertificates(texts)
		if err == nil {
			sayValidity(g.log, g.options.TLSCert, &c.server.Certificates[0], time.Now())
		}
		return c, err
	}
	g.tls, err = watch("certificate of the API", g.log, parse, []string{g.options.TLSKey}, public...)
	return err
}

// soon is how long before a certificate expires the log begins to warn.
const soon = 14 * 24 * time.Hour

// sayValidity logs that a certificate has expired, is not valid yet, or will expire soon.
func sayValidity(log *slog.Logger, path string, c *tls.Certificate, now time.Time) {
	if c.Leaf == nil {
		return
	}
	attrs := []any{"file", path, "from", c.Leaf.NotBefore.UTC(), "until", c.Leaf.NotAfter.UTC()}
	switch {
	case now.After(c.Leaf.NotAfter):
		log.Error("API certificate expired, clients and other instances reject it: renew it, the "+
			"file is reloaded", attrs...)
	case now.Before(c.Leaf.NotBefore):
		log.Error("API certificate not valid yet, clients and other instances reject it: check the "+
			"file and this machine's clock", attrs...)
	case now.Add(soon).After(c.Leaf.NotAfter):
		log.Warn("API certificate expires soon: renew it, the file is reloaded", attrs...)
	}
}

// parseCertificates reads key, certificate and, if there is one, the file of the authorities of clients.
//
// If clients have certificates, sessions are not resumed: the certificate of a resumed session was checked against
// older files.
func parseCertificates(texts [][]byte) (*certificates, error) {
	own, err := tls.X509KeyPair(texts[1], texts[0])
	if err != nil {
		return nil, err
	}
	c := &certificates{server: &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{own},
	}}
	if c.roots, err = x509.SystemCertPool(); err != nil {
		c.roots = x509.NewCertPool() // the machine has no authorities
	}
	c.roots.AppendCertsFromPEM(texts[1])
	if len(texts) < 3 {
		return c, nil
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(texts[2]) {
		return nil, errors.New("api-client-ca has no certificate in PEM form")
	}
	c.roots.AppendCertsFromPEM(texts[2])
	c.server.ClientCAs, c.server.ClientAuth = clients, tls.VerifyClientCertIfGiven
	c.server.SessionTicketsDisabled = true
	return c, nil
}

// Limits of calls to other instances, in addition to those of their context.
const (
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 5 * time.Second
)

// Peers returns the transport for calls to other instances, in the name of the caller of a request's context: over
// HTTP/2, signed, and with TLS if this instance has a certificate. It returns nil if there is no key. Make one and
// keep it, because it has the connections.
//
// A request that changes something is signed once. If the connection breaks and the transport retries by itself,
// which it does with an Idempotency-Key, the retry is rejected, and the outcome of the first attempt is not known.
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
		Protocols:           g.protocols(false),
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DisableCompression:  true,
	}
	if g.tls != nil {
		t.DialTLSContext = g.dialTLS
	}
	return t
}

// dialTLS connects to another instance. It trusts the system's authorities, those of clients, and the certificates in
// this instance's own file, because instances often have the same one. All are reloaded when they change. It presents
// no certificate: the signature identifies the caller, and a certificate of another authority than the clients' would
// end the handshake.
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

package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newKeyPair(t testing.TB, template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		parent, by = template, key
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<60))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	key, der := newKeyPair(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// issue returns certificate and key in PEM form.
func (a *authority) issue(t testing.TB, template *x509.Certificate) (cert, key string) {
	t.Helper()
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	k, der := newKeyPair(t, template, a.cert, a.key)
	b, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: b}))
}

func (a *authority) pair(t testing.TB, template *x509.Certificate) tls.Certificate {
	t.Helper()
	cert, key := a.issue(t, template)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// served makes a guard serve on a port of the loopback interface.
func served(t testing.TB, g *Guard, h http.Handler, change func(*http.Server)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := g.Server(g.Wrap(h))
	if change != nil {
		change(s)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(s, l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serving ended with %v", err)
		}
	})
	return l.Addr().String()
}

// get makes a call over TLS, on a new connection. It shows its certificate whatever authorities
// the server names.
func get(t testing.TB, address string, roots *authority, certs []tls.Certificate, headers ...string) (*answer, error) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(roots.cert)
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(certs) == 0 {
				return new(tls.Certificate), nil
			}
			return &certs[0], nil
		},
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}}
	t.Cleanup(tr.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	a, err := tr.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return answerOf(a), nil
}

// secureOptions returns the options of an API with TLS and client certificates.
func secureOptions(t testing.TB, server, clients *authority) Options {
	o := options(t)
	o.Address = "127.0.0.1:0"
	dir := t.TempDir()
	cert, key := server.issue(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	o.TLSCert = writeFile(t, filepath.Join(dir, "cert"), cert)
	o.TLSKey = writeFile(t, filepath.Join(dir, "key"), key)
	o.ClientCA = writeFile(t, filepath.Join(dir, "ca"), clients.pem)
	return o
}

func TestCertificates(t *testing.T) {
	server, clients, others := newAuthority(t, "server"), newAuthority(t, "clients"), newAuthority(t, "others")
	o := secureOptions(t, server, clients)
	writeFile(t, o.Users, usersFile()+`
  by-subject:
    certificates: ['subject:CN=x\, y,O=Example']
    grants: [{role: read, topic: '*'}]
  by-uri:
    certificates: ['uri:spiffe://example.org/billing']
    grants: [{role: read, topic: '*'}]
`)
	g, _ := guard(t, o)
	address := served(t, g, http.HandlerFunc(echo), nil)
	spiffe, _ := url.Parse("spiffe://example.org/billing")
	for _, c := range []struct {
		name   string
		cert   *x509.Certificate
		by     *authority
		header string
		want   string // caller; empty: 401; -: no connection
	}{
		{"none", nil, nil, "", ""},
		{"none, but a token", nil, nil, bearer("reader"), "reader"},
		{"by DNS name", &x509.Certificate{DNSNames: []string{"a", "ops.example.org"}}, clients, "", "ops"},
		{"by subject", &x509.Certificate{Subject: pkix.Name{CommonName: "x, y", Organization: []string{"Example"}}},
			clients, "", "by-subject"},
		{"by URI", &x509.Certificate{URIs: []*url.URL{spiffe}}, clients, "", "by-uri"},
		{"a DNS name as subject", &x509.Certificate{Subject: pkix.Name{CommonName: "ops.example.org"}},
			clients, "", ""},
		{"a subject within another",
			&x509.Certificate{Subject: pkix.Name{CommonName: "x, y", Organization: []string{"Example", "z"}}},
			clients, "", ""},
		{"of two callers", &x509.Certificate{DNSNames: []string{"ops.example.org"}, URIs: []*url.URL{spiffe}},
			clients, "", ""},
		{"of nobody", &x509.Certificate{DNSNames: []string{"nobody"}}, clients, "", ""},
		{"and a token: the token counts", &x509.Certificate{DNSNames: []string{"ops.example.org"}}, clients,
			bearer("reader"), "reader"},
		{"and a wrong token", &x509.Certificate{DNSNames: []string{"ops.example.org"}}, clients, bearer("nobody"), ""},
		{"of another authority", &x509.Certificate{DNSNames: []string{"ops.example.org"}}, others, "", "-"},
		{"of the server's authority", &x509.Certificate{DNSNames: []string{"ops.example.org"}}, server, "", "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var certs []tls.Certificate
			var headers []string
			if c.cert != nil {
				certs = append(certs, c.by.pair(t, c.cert))
			}
			if c.header != "" {
				headers = append(headers, c.header)
			}
			a, err := get(t, address, server, certs, headers...)
			switch {
			case c.want == "-" && err == nil:
				t.Errorf("answer %d", a.StatusCode)
			case c.want == "-":
			case err != nil:
				t.Error(err)
			case c.want == "":
				wantProblem(t, a, http.StatusUnauthorized, ReasonUnauthenticated)
			default:
				wantOK(t, a, c.want)
				if a.ProtoMajor != 2 {
					t.Errorf("it came by HTTP/%d", a.ProtoMajor)
				}
			}
		})
	}
}

// Certificates, keys and authorities change while the server runs. A pair that does not match
// changes nothing.
func TestCertificatesChange(t *testing.T) {
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	o := secureOptions(t, first, first)
	g, log := guard(t, o)
	address := served(t, g, http.HandlerFunc(echo), nil)
	ops := func(a *authority) []tls.Certificate {
		return []tls.Certificate{a.pair(t, &x509.Certificate{DNSNames: []string{"ops.example.org"}})}
	}
	old := ops(first)
	a, err := get(t, address, first, old)
	if err != nil {
		t.Fatal(err)
	}
	wantOK(t, a, "ops")

	cert, key := second.issue(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	writeFile(t, o.TLSCert, cert) // but not the key yet
	g.tls.next.Store(0)
	if _, err := get(t, address, first, old); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "cannot reload file") {
		t.Errorf("log: %s", log)
	}
	writeFile(t, o.TLSKey, key)
	writeFile(t, o.ClientCA, second.pem)
	g.tls.next.Store(0)
	if a, err = get(t, address, second, ops(second)); err != nil {
		t.Fatal(err)
	}
	wantOK(t, a, "ops")
	if _, err := get(t, address, first, nil); err == nil {
		t.Error("the old certificate is shown")
	}
	if a, err := get(t, address, second, old); err == nil && a.StatusCode == http.StatusOK {
		t.Error("a certificate of the old authority counts")
	}
}

// A client with a certificate is checked at each connection, by the current content of the
// files.
func TestSessionsAreNotResumed(t *testing.T) {
	ca := newAuthority(t, "ca")
	with := secureOptions(t, ca, ca)
	without := with
	without.ClientCA = ""
	for resumes, o := range map[bool]Options{false: with, true: without} {
		g, _ := guard(t, o)
		address := served(t, g, http.HandlerFunc(echo), nil)
		pool := x509.NewCertPool()
		pool.AddCert(ca.cert)
		tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			RootCAs: pool, ClientSessionCache: tls.NewLRUClientSessionCache(1),
			Certificates: []tls.Certificate{ca.pair(t, &x509.Certificate{DNSNames: []string{"ops.example.org"}})},
		}}
		resumed := false
		for range 3 {
			r, _ := http.NewRequestWithContext(t.Context(), "GET", "https://"+address, nil)
			a, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resumed = resumed || a.TLS.DidResume
			a.Body.Close()
		}
		if resumed != resumes {
			t.Errorf("with authorities of clients %v, resumed %v", o.ClientCA != "", resumed)
		}
	}
}

// Instances call each other at the addresses that they advertise, with and without TLS, over
// HTTP/2. No instance accepts the certificate of another host.
func TestPeers(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	key := keysFile(t, newKey)
	plain := options(t)
	plain.KeyFile = key
	encrypted := secureOptions(t, ca, ca)
	encrypted.KeyFile = key
	foreign := secureOptions(t, other, other)
	foreign.KeyFile = key
	ask := func(from, to Options) (*answer, error) {
		t.Helper()
		here, _ := guard(t, from)
		there, _ := guard(t, to)
		address := served(t, there, http.HandlerFunc(echo), nil)
		ctx := WithCaller(t.Context(), Caller{Name: "shop"})
		r, err := http.NewRequestWithContext(ctx, "POST", here.Scheme()+"://"+address+"//a%2Fb?x",
			strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("timer-after", "10s")
		peers := here.Peers()
		t.Cleanup(peers.(*signer).next.(*http.Transport).CloseIdleConnections)
		a, err := peers.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		return answerOf(a), nil
	}
	for name, o := range map[string]Options{"plain": plain, "TLS": encrypted} {
		a, err := ask(o, o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantForwarded(t, a, "shop")
		if a.ProtoMajor != 2 {
			t.Errorf("%s: it came by HTTP/%d", name, a.ProtoMajor)
		}
	}
	if _, err := ask(encrypted, foreign); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("an instance with a certificate of another authority: %v", err)
	}
	// A certificate of the right authority, but for another host.
	elsewhere := encrypted
	cert, k := ca.issue(t, &x509.Certificate{DNSNames: []string{"elsewhere.example.org"}})
	elsewhere.TLSCert = writeFile(t, filepath.Join(t.TempDir(), "cert"), cert)
	elsewhere.TLSKey = writeFile(t, filepath.Join(t.TempDir(), "key"), k)
	_, err := ask(encrypted, elsewhere)
	if dial, ok := errors.AsType[*net.OpError](err); !ok || dial.Op != "dial" {
		t.Errorf("an instance with a certificate of another host: %v, want a failure to dial", err)
	}
}

// A stream outlives the time limits, on HTTP/1 and on HTTP/2; other answers do not.
func TestStreamsOutliveTimeouts(t *testing.T) {
	const limit = 300 * time.Millisecond
	g, _ := guard(t, Options{Address: "127.0.0.1:0", BodyLimit: 1000, AtOnce: 10})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		if r.URL.Path == "/stream" {
			if err := Stream(w); err != nil {
				t.Error(err)
			}
		}
		for range 6 {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(limit / 3):
			}
			if err := writePart(w, r.URL.Path == "/stream"); err != nil {
				return
			}
		}
	})
	address := served(t, g, h, func(s *http.Server) { s.ReadTimeout, s.WriteTimeout = limit, limit })
	for _, proto := range []string{"HTTP/1", "HTTP/2"} {
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetHTTP1(proto == "HTTP/1")
		tr.Protocols.SetUnencryptedHTTP2(proto == "HTTP/2")
		for path, want := range map[string]bool{"/stream": true, "/other": false} {
			r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+path, nil)
			a, err := tr.RoundTrip(r)
			if err != nil {
				if want {
					t.Errorf("%s %s: %v", proto, path, err)
				}
				continue
			}
			body, err := io.ReadAll(a.Body)
			a.Body.Close()
			if whole := len(body) == 6 && err == nil; whole != want {
				t.Errorf("%s %s: %q, %v", proto, path, body, err)
			}
		}
		tr.CloseIdleConnections()
	}
}

// writePart writes like a stream, or like other answers.
func writePart(w http.ResponseWriter, stream bool) error {
	if stream {
		return StreamWrite(w, []byte("x"))
	}
	if _, err := w.Write([]byte("x")); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// A client that sends a header or a body too slowly is cut off.
func TestSlowClients(t *testing.T) {
	const limit = 200 * time.Millisecond
	g, _ := guard(t, Options{Address: "127.0.0.1:0", BodyLimit: 1000, AtOnce: 10})
	read := make(chan error, 1)
	address := served(t, g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		if p := bodyProblem(err); p != nil {
			err = p
		}
		read <- err
	}), func(s *http.Server) { s.ReadHeaderTimeout, s.ReadTimeout = limit, 2*limit })
	for _, begin := range []string{"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ",
		"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nx"} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, begin)
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("the connection is not ended: %v", err)
		}
	}
	var p *Problem
	if err := <-read; !errors.As(err, &p) || p.Reason != ReasonBodyTimeout {
		t.Errorf("reading the body: %v", err)
	}
}

// Headers are limited in bytes, with room for those of a timer. Beyond the limit the answer is
// a problem.
func TestHeaderBytes(t *testing.T) {
	g, _ := guard(t, Options{Address: "127.0.0.1:0", BodyLimit: 1000, AtOnce: 10})
	address := served(t, g, http.HandlerFunc(echo), nil)
	for n, want := range map[int]int{
		100_000: http.StatusOK, maxHeaderBytes: http.StatusOK, maxHeaderBytes + 1: 431,
		maxHeaderBytes + headerSlack/2: 431, 2 * maxHeaderBytes: 431,
	} {
		r, _ := http.NewRequestWithContext(context.Background(), "GET", "http://"+address, nil)
		r.Header.Set("User-Agent", "x")
		r.Header.Set("Accept-Encoding", "x")
		r.Header.Set("Connection", "close")
		n -= len("User-Agent: x\r\nAccept-Encoding: x\r\nConnection: close\r\n")
		for i := range 100 {
			each := n / 100
			if i == 0 {
				each += n % 100
			}
			r.Header.Set(fmt.Sprintf("X-%02d", i), strings.Repeat("x", each-len("X-00: \r\n")))
		}
		tr := &http.Transport{DisableKeepAlives: true}
		a, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		got := answerOf(a)
		if got.StatusCode != want {
			t.Errorf("%d bytes: %d, want %d", n, got.StatusCode, want)
		}
		if want == 431 && n < maxHeaderBytes+headerSlack {
			wantProblem(t, got, 431, ReasonTooManyHeaders)
		}
	}
}

// A body that ends early, or is not well-formed, is the caller's fault.
func TestBrokenBodies(t *testing.T) {
	g, _ := guard(t, Options{Address: "127.0.0.1:0", BodyLimit: 1000, AtOnce: 10})
	problems := make(chan *Problem, 1)
	address := served(t, g, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		problems <- BodyProblem(r.Context())
	}), nil)
	for _, sent := range []string{"Transfer-Encoding: chunked\r\n\r\nzz\r\nxx",
		"Transfer-Encoding: chunked\r\n\r\n5\r\nxx", "Content-Length: 10\r\n\r\nx"} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "PUT / HTTP/1.1\r\nHost: localhost\r\n%s", sent)
		_ = c.(*net.TCPConn).CloseWrite()
		if p := <-problems; p == nil || p.Status != http.StatusBadRequest || p.Reason != ReasonBadRequest {
			t.Errorf("%q: %+v", sent, p)
		}
		c.Close()
	}
}

// One address cannot take all connections, and gets new ones when it closes some.
func TestConnectionsOfAnAddress(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &perAddress{Listener: inner, most: 3}
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range 3 {
		dial()
	}
	first := <-accepted
	fourth := dial()
	_ = fourth.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := fourth.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the fourth connection is not closed: %v", err)
	}
	first.Close()
	first.Close()
	fifth := dial()
	<-accepted
	<-accepted
	c := <-accepted
	if c.RemoteAddr().String() != fifth.LocalAddr().String() {
		t.Errorf("accepted %v, want %v", c.RemoteAddr(), fifth.LocalAddr())
	}
	inner.Close()
	for range accepted {
	}
}

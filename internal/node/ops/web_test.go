package ops

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"
)

// webConfig writes a web configuration with a certificate of its own and one user, and returns its path and the
// certificates that a client must trust.
func webConfig(t *testing.T, user, password string) (path string, trusted *x509.CertPool) {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ops"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	trusted = x509.NewCertPool()
	trusted.AppendCertsFromPEM(cert)
	write(t, filepath.Join(dir, "cert.pem"), cert)
	write(t, filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
	path = filepath.Join(dir, "web.yaml")
	setUser(t, path, user, password)
	return path, trusted
}

func setUser(t *testing.T, path, user, password string) {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, fmt.Appendf(nil,
		"tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\nbasic_auth_users:\n  %s: %s\n", user, hash))
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWebConfiguration: with TLS and users, a client without the password, or without TLS, gets nothing, and a changed
// password counts from the next request on.
func TestWebConfiguration(t *testing.T) {
	path, trusted := webConfig(t, "scraper", "first")
	s := NewServer("127.0.0.1:0", prometheus.NewRegistry(), fakeReady{true, nil}, slog.New(slog.DiscardHandler))
	s.Secure(path)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	cl := &http.Client{Transport: transport}
	status := func(scheme, path, user, password string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+s.Addr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			req.SetBasicAuth(user, password)
		}
		resp, err := cl.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	check := func(want int, scheme, path, user, password string) {
		t.Helper()
		if got := status(scheme, path, user, password); got != want {
			t.Errorf("%s %s as %q with %q: %d, want %d", scheme, path, user, password, got, want)
		}
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		check(200, "https", path, "scraper", "first")
		check(401, "https", path, "", "")
		check(401, "https", path, "scraper", "second")
		check(401, "https", path, "other", "first")
		check(400, "http", path, "scraper", "first")
	}
	setUser(t, path, "scraper", "second")
	check(200, "https", "/metrics", "scraper", "second")
	check(401, "https", "/metrics", "scraper", "first")
}

// TestWrongWebConfiguration is refused before the port is bound.
func TestWrongWebConfiguration(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a key that is not there", "tls_server_config:\n  cert_file: none.pem\n  key_file: none.pem\n", "none.pem"},
		{"a password that is not hashed", "basic_auth_users:\n  scraper: secret\n", "bcrypt"},
		{"an unknown key", "tls_config: {}\n", "tls_config"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "web.yaml")
			write(t, path, []byte(c.text))
			s := NewServer("127.0.0.1:0", prometheus.NewRegistry(), fakeReady{}, slog.New(slog.DiscardHandler))
			s.Secure(path)
			err := s.Listen()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("err = %v, want the path and %q", err, c.want)
			}
			if s.listener != nil {
				t.Error("it listens")
			}
		})
	}
}

// TestProfiler: profiles are only at their own address, not on the server of the metrics, and the profiler serves
// nothing else.
func TestProfiler(t *testing.T) {
	s := NewProfiler("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	metrics, stop := start(t, prometheus.NewRegistry(), fakeReady{true, nil})
	for url, want := range map[string]int{
		s.Addr() + "/debug/pprof/":                  200,
		s.Addr() + "/debug/pprof/heap?debug=1":      200,
		s.Addr() + "/debug/pprof/profile?seconds=1": 200,
		s.Addr() + "/metrics":                       404,
		metrics + "/debug/pprof/":                   404,
		metrics + "/debug/pprof/heap":               404,
	} {
		if got, body := get(t, "http://"+url); got != want {
			t.Errorf("%s: %d, want %d: %.200s", url, got, want, body)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestProfilerPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = NewProfiler(l.Addr().String(), slog.New(slog.DiscardHandler)).Listen()
	if err == nil || !strings.Contains(err.Error(), "--pprof") {
		t.Errorf("err = %v", err)
	}
}

package api

import (
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/test/rig"
)

// A client certificate that is not valid now is said before a broker is asked: under TLS 1.3 it would refuse only after
// the handshake, without a word. Once the file is replaced, the same settings connect.
func TestExpiredClientCertificate(t *testing.T) {
	authority, _ := rig.Secured(t, nil)
	end := time.Now().Add(-time.Minute).Truncate(time.Second)
	cfg := config.Default()
	cfg.Brokers, cfg.TLS, cfg.TLSCA = []string{"127.0.0.1:1"}, true, authority.CA
	cfg.TLSCert, cfg.TLSKey = authority.Certificate(t, "client", end)
	refusal := func() string {
		t.Helper()
		c, err := connect.Dial(&cfg)(t.Context(), "tcp", cfg.Brokers[0])
		if err == nil {
			c.Close()
			t.Fatal("port 1 takes connections")
		}
		return connect.Refusal(&cfg, err)
	}
	got := refusal()
	for _, want := range []string{"the client certificate " + cfg.TLSCert + " is valid from ",
		" to " + end.UTC().Format(time.RFC3339) + " and now is ", "replace it; it is read again at each connection"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	authority.Certificate(t, "client", time.Now().Add(time.Hour))
	if got := refusal(); got != "" {
		t.Errorf("replaced: %q, want only that nobody listens", got)
	}
	if got := connect.Principal(&cfg); got != "User:CN=client" {
		t.Errorf("the principal is %s", got)
	}
}

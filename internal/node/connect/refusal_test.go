package connect

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/node/config"
)

// Settings for one kind of port and a broker's port of another: the sentence names the setting to change. (That brokers
// answer so is seen by the tests of package secure.)
func TestRefusalOfTheWrongPort(t *testing.T) {
	for _, c := range []struct {
		name string
		tls  bool
		sasl config.SASL
		err  error
		want string
	}{
		{"a login where none is wanted", false, config.SASLPlain, fmt.Errorf("handshake: %w", kerr.IllegalSaslState),
			"leave out --sasl-mechanism"},
		{"TLS where it is not spoken", true, config.SASLNone, &kgo.ErrFirstReadEOF{}, "leave out --tls"},
		{"TLS where a broker closes at once", true, config.SASLNone, fmt.Errorf("unable to dial: %w", io.EOF),
			"leave out --tls"},
		{"TLS where a broker resets", true, config.SASLNone, fmt.Errorf("unable to dial: %w", syscall.ECONNRESET),
			"leave out --tls"},
		{"no TLS where it is spoken", false, config.SASLNone, errors.New("is this a " + wantsTLS + "?"), "add --tls"},
		{"nothing where TLS or a login is wanted", false, config.SASLNone, &kgo.ErrFirstReadEOF{},
			"wants TLS (--tls) or a login (--sasl-mechanism)"},
	} {
		cfg := &config.Config{Brokers: []string{"a:1"}, TLS: c.tls, SASLMechanism: c.sasl}
		if got := Refusal(cfg, c.err); !strings.Contains(got, "the brokers at a:1") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A certificate of a trusted authority that is for another name: the sentence says for which.
func TestRefusalOfAnotherName(t *testing.T) {
	s := httptest.NewTLSServer(nil) // for 127.0.0.1 and example.com
	t.Cleanup(s.Close)
	cfg := &config.Config{TLS: true, TLSCA: filepath.Join(t.TempDir(), "ca.pem")}
	if err := os.WriteFile(cfg.TLSCA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Brokers = []string{"localhost:" + port}
	_, err = Dial(cfg)(t.Context(), "tcp", cfg.Brokers[0])
	if got := Refusal(cfg, err); !strings.Contains(got, "at "+cfg.Brokers[0]+
		" is not good: x509: certificate is valid for ") {
		t.Errorf("%q, of %v", got, err)
	}
}

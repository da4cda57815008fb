package connect

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/config"
)

func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestConfigurationTellsNoSecret logs, prints and encodes the whole configuration, and a secret that was read, in every
// way there is.
func TestConfigurationTellsNoSecret(t *testing.T) {
	const secret = "correct-horse-battery"
	cfg := config.Default()
	cfg.Brokers, cfg.Requests, cfg.Targets = []string{"127.0.0.1:9092"}, []string{"timers"}, []string{"*"}
	cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPasswordFile = config.SASLPlain, "waterclock", secretFile(t, secret)
	read, err := config.ReadSecret(cfg.SASLPasswordFile)
	if err != nil || read.Reveal() != secret {
		t.Fatalf("%v", err)
	}
	var out bytes.Buffer
	for _, h := range []slog.Handler{
		slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}),
		slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}),
	} {
		log := slog.New(h)
		log.Info("settings", "config", cfg, "pointer", &cfg, "secret", read, "secrets", []config.Secret{read})
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		fmt.Fprintf(&out, verb+" "+verb+"\n", cfg, read)
	}
	for _, v := range []any{cfg, read, map[string]config.Secret{"a": read}} {
		j, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		y, err := yaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(j)
		out.Write(y)
	}
	opts, err := Options(&cfg, "x", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cl := kafkatest.Client(t, opts...)
	fmt.Fprintf(&out, "%+v", cl.Opts())
	for _, hidden := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)),
		fmt.Sprintf("%x", secret)} {
		if strings.Contains(out.String(), hidden) {
			t.Errorf("%s shows", hidden)
		}
	}
	if !strings.Contains(out.String(), "****") || !strings.Contains(out.String(), cfg.SASLPasswordFile) {
		t.Error("nothing was printed")
	}
}

// TestPrincipal: the principal of the ACLs, if the configuration shows it.
func TestPrincipal(t *testing.T) {
	jwt := func(claims string) string {
		return secretFile(t, "e30."+base64.RawURLEncoding.EncodeToString([]byte(claims))+".x")
	}
	for _, c := range []struct {
		name string
		cfg  config.Config
		want string
	}{
		{"nobody", config.Config{}, "User:ANONYMOUS"},
		{"encrypted", config.Config{TLS: true}, "User:ANONYMOUS"},
		{"password", config.Config{SASLMechanism: config.SASLScram256, SASLUsername: "a b"}, "User:a b"},
		{"token", config.Config{SASLMechanism: config.SASLOAuth, SASLTokenFile: jwt(`{"sub":"wc"}`)}, "User:wc"},
		{"token without a subject", config.Config{SASLMechanism: config.SASLOAuth, SASLTokenFile: jwt(`{}`)},
			unknownPrincipal},
		{"opaque token", config.Config{SASLMechanism: config.SASLOAuth, SASLTokenFile: secretFile(t, "opaque")},
			unknownPrincipal},
		{"AWS", config.Config{SASLMechanism: config.SASLAWS, SASLUsername: "AKIA"}, unknownPrincipal},
		{"certificate that is not there", config.Config{TLS: true, TLSCert: "/none.pem"}, unknownPrincipal},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Principal(&c.cfg); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestRefusal: a known refusal has a sentence with the fix; an error that may come from an unreachable broker has none.
func TestRefusal(t *testing.T) {
	password := config.Config{Brokers: []string{"k:1"}, SASLMechanism: config.SASLPlain, SASLUsername: "wc",
		SASLPasswordFile: "/run/pw"}
	token := config.Config{Brokers: []string{"k:1"}, SASLMechanism: config.SASLOAuth, SASLTokenFile: "/run/token"}
	cert := config.Config{Brokers: []string{"k:1"}, TLS: true, TLSCert: "/run/cert.pem"}
	for _, c := range []struct {
		name string
		cfg  config.Config
		err  error
		want string
	}{
		{"password", password, kerr.SaslAuthenticationFailed,
			"the brokers refuse user wc (PLAIN): there is no such user, or the password in /run/pw is wrong"},
		{"token", token, kerr.SaslAuthenticationFailed, "the brokers refuse the token in /run/token"},
		{"AWS", config.Config{SASLMechanism: config.SASLAWS}, kerr.SaslAuthenticationFailed, "kafka-cluster:Connect"},
		{"mechanism", password, kerr.UnsupportedSaslMechanism, "the brokers at k:1 do not offer PLAIN"},
		{"secret", password, &localError{errors.New("read secret: gone")}, "read secret: gone"},
		{"authority", cert, x509.UnknownAuthorityError{}, "--tls-ca"},
		{"plain text", cert, tls.RecordHeaderError{Msg: "first record"}, "do not speak TLS on that port"},
		{"alert", cert, errors.New("read: remote error: tls: bad certificate"),
			"refuse the client certificate /run/cert.pem (bad certificate)"},
		{"away", password, errors.New("connection refused"), ""},
		{"not yet", password, kerr.CoordinatorNotAvailable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Refusal(&c.cfg, fmt.Errorf("wrapped: %w", c.err))
			if !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestSecretsAreReadAgain: a file that is replaced, or goes away, counts at the next login.
func TestSecretsAreReadAgain(t *testing.T) {
	for _, m := range []config.SASL{config.SASLPlain, config.SASLScram256, config.SASLScram512, config.SASLOAuth,
		config.SASLAWS} {
		t.Run(string(m), func(t *testing.T) {
			cfg := config.Config{SASLMechanism: m, SASLUsername: "u", SASLPasswordFile: secretFile(t, "first"),
				SASLTokenFile: secretFile(t, "first")}
			mech, err := mechanism(&cfg)
			if err != nil {
				t.Fatal(err)
			}
			first := login(t, mech, "first")
			for _, path := range []string{cfg.SASLPasswordFile, cfg.SASLTokenFile} {
				if err := os.WriteFile(path, []byte("second"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if second := login(t, mech, "second"); first != "" && second == first {
				t.Errorf("the same login again: %q", second)
			}
			for _, path := range []string{cfg.SASLPasswordFile, cfg.SASLTokenFile} {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			var gone *localError
			if _, _, err := mech.Authenticate(t.Context(), "host:1"); !errors.As(err, &gone) {
				t.Errorf("without the file: %v", err)
			}
			if _, err := mechanism(&cfg); err == nil {
				t.Error("a file that is missing at the start is no error")
			}
		})
	}
}

// login returns the client's first message, if it depends on the secret alone: SCRAM and AWS begin with a nonce and a
// time.
func login(t *testing.T, mech sasl.Mechanism, secret string) string {
	t.Helper()
	_, message, err := mech.Authenticate(t.Context(), "b-1.cluster.kafka.eu-west-1.amazonaws.com:9098")
	if err != nil {
		t.Fatal(err)
	}
	if name := mech.Name(); name == "PLAIN" || name == "OAUTHBEARER" {
		if !strings.Contains(string(message), secret) {
			t.Errorf("%q is not in the login", secret)
		}
		return string(message)
	}
	return ""
}

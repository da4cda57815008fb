package connect

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/config"
)

// wantsTLS is part of kgo's error for an answer that looks like TLS.
const wantsTLS = "plaintext connection speaking to a tls endpoint"

// dialFailed is the beginning of kgo's error for a connection that could not be opened. TLS handshakes are included.
const dialFailed = "unable to dial"

// oauthRefused is kgo's error for the broker's answer to a bad token.
const oauthRefused = "unexpected data in oauth response"

// Refusal returns a sentence that says why brokers refuse this client; "" if err is nil or has another cause, such as
// brokers that are away.
func Refusal(cfg *config.Config, err error) string {
	var (
		invalid   x509.CertificateInvalidError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		header    tls.RecordHeaderError
		closed    *kgo.ErrFirstReadEOF
		expired   *expiredError
		secret    *secretError
	)
	brokers := strings.Join(cfg.Brokers, ", ")
	switch {
	case err == nil:
		return ""
	case errors.As(err, &expired):
		return expired.Error()
	case errors.As(err, &secret):
		return secret.Error()
	case cfg.SASLMechanism == config.SASLOAuth && (errors.Is(err, kerr.SaslAuthenticationFailed) || strings.Contains(err.Error(), oauthRefused)):
		return fmt.Sprintf("the brokers refuse the token in %s (OAUTHBEARER): it is wrong, expired or not for them", cfg.SASLTokenFile)
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return fmt.Sprintf("the brokers refuse user %s (%s): there is no such user, or the password in %s is wrong", cfg.SASLUsername, cfg.SASLMechanism, cfg.SASLPasswordFile)
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fmt.Sprintf("the brokers at %s do not offer %s: choose another --sasl-mechanism, or another port of theirs", brokers, cfg.SASLMechanism)
	case errors.Is(err, kerr.IllegalSaslState):
		return fmt.Sprintf("the brokers at %s want no login on that port: leave out --sasl-mechanism, or name their port with SASL", brokers)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the certificate of a broker at %s is valid from %s to %s and now is %s: have it renewed, or set this machine's clock",
			brokers, invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
	case errors.As(err, &authority):
		return fmt.Sprintf("the certificate of a broker at %s is signed by an authority that is not trusted here: name the authority's certificate with --tls-ca", brokers)
	case errors.As(err, &invalid), errors.As(err, &host):
		return fmt.Sprintf("the certificate of a broker at %s is not good: %v", brokers, rootCause(err))
	case errors.As(err, &header):
		return notTLS(brokers)
	case strings.Contains(err.Error(), "remote error: tls: "):
		_, alert, _ := strings.Cut(err.Error(), "remote error: tls: ")
		if cfg.TLSCert == "" {
			return fmt.Sprintf("the brokers at %s refuse this client, which shows no certificate (%s): name one with --tls-cert and --tls-key", brokers, alert)
		}
		return fmt.Sprintf("the brokers at %s refuse the client certificate %s (%s)", brokers, cfg.TLSCert, alert)
	case strings.Contains(err.Error(), wantsTLS):
		return fmt.Sprintf("the brokers at %s speak TLS on that port: add --tls, or name their plain port", brokers)
	case errors.As(err, &closed) && cfg.TLS:
		return notTLS(brokers)
	case errors.As(err, &closed) && cfg.SASLMechanism == config.SASLNone:
		return fmt.Sprintf("the brokers at %s close the connection at once: that port wants TLS (--tls) or a login (--sasl-mechanism), or they are starting or stopping", brokers)
	case errors.As(err, &closed):
		return fmt.Sprintf("the brokers at %s close the connection at once: %v", brokers, closed)
	case cfg.TLS && strings.Contains(err.Error(), dialFailed) && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Sprintf("the brokers at %s close the connection while TLS begins: name their TLS port, or leave out --tls; or they are starting or stopping", brokers)
	}
	return ""
}

func notTLS(brokers string) string {
	return fmt.Sprintf("the brokers at %s do not speak TLS on that port: name their TLS port, or leave out --tls", brokers)
}

// rootCause returns the innermost error.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// secretError says that the file of a secret cannot be read.
type secretError struct{ err error }

func (e *secretError) Error() string { return e.err.Error() }
func (e *secretError) Unwrap() error { return e.err }

// expiredError says that a client certificate is not valid now, so every broker would refuse it.
type expiredError struct {
	path      string
	from, end time.Time
}

func (e *expiredError) Error() string {
	return fmt.Sprintf("the client certificate %s is valid from %s to %s and now is %s: replace it; it is read again at each connection", e.path,
		e.from.UTC().Format(time.RFC3339), e.end.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
}

// checkValidity returns an error if a client certificate is not valid now. Brokers would refuse it too, but under TLS 1.3 only
// after the handshake, and without saying why.
func checkValidity(path string, tc *tls.Config) error {
	for _, pair := range tc.Certificates {
		leaf := pair.Leaf
		if now := time.Now(); leaf != nil && (now.Before(leaf.NotBefore) || now.After(leaf.NotAfter)) {
			return &expiredError{path, leaf.NotBefore, leaf.NotAfter}
		}
	}
	return nil
}

// unknownPrincipal is the placeholder for a principal that the configuration does not show.
const unknownPrincipal = "User:NAME"

// Principal returns the name by which ACLs know a client with these settings. Brokers derive it in the same way, unless they
// are configured otherwise.
func Principal(cfg *config.Config) string {
	switch {
	case cfg.SASLMechanism == config.SASLOAuth:
		return tokenPrincipal(cfg.SASLTokenFile)
	case cfg.SASLMechanism == config.SASLAWS:
		return unknownPrincipal
	case cfg.SASLMechanism != config.SASLNone:
		return "User:" + cfg.SASLUsername
	case cfg.TLS && cfg.TLSCert != "":
		return certificatePrincipal(cfg.TLSCert)
	}
	return "User:ANONYMOUS"
}

// tokenPrincipal returns the principal of the subject of the token, or unknownPrincipal if the token is not a JWT.
func tokenPrincipal(path string) string {
	var claims struct {
		Subject string `json:"sub"`
	}
	token, err := config.ReadSecret(path)
	if err != nil {
		return unknownPrincipal
	}
	_, rest, _ := strings.Cut(token.Reveal(), ".")
	body, _, _ := strings.Cut(rest, ".")
	data, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(data, &claims) != nil || claims.Subject == "" {
		return unknownPrincipal
	}
	return "User:" + claims.Subject
}

// certificatePrincipal returns the subject of the client certificate, as Java writes it (RFC 2253).
func certificatePrincipal(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return unknownPrincipal
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return unknownPrincipal
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return unknownPrincipal
	}
	return "User:" + cert.Subject.String()
}

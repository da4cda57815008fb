package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/node/config"
)

// wantsTLS is part of kgo's error for an answer that looks like TLS.
const wantsTLS = "plaintext connection speaking to a tls endpoint"

// dialFailed is the beginning of kgo's error for a connection that could not be opened. TLS handshakes are included.
const dialFailed = "unable to dial"

// oauthRefused is kgo's error for the broker's answer to a bad token.
const oauthRefused = "unexpected data in oauth response"

// Refusal returns a sentence that says why brokers reject this client; "" if err is nil or has another cause, such as
// unreachable brokers.
func Refusal(cfg *config.Config, err error) string {
	var (
		invalid   x509.CertificateInvalidError
		authority x509.UnknownAuthorityError
		unfit     *tls.CertificateVerificationError
		header    tls.RecordHeaderError
		closed    *kgo.ErrFirstReadEOF
		here      *localError
		plain     *plainPortError
	)
	brokers := strings.Join(cfg.Brokers, ", ")
	switch {
	case err == nil:
		return ""
	case errors.As(err, &here):
		return here.Error()
	case cfg.SASLMechanism == config.SASLOAuth &&
		(errors.Is(err, kerr.SaslAuthenticationFailed) || strings.Contains(err.Error(), oauthRefused)):
		return fmt.Sprintf("the brokers refuse the token in %s (OAUTHBEARER): it is wrong, expired or not for them",
			cfg.SASLTokenFile)
	case cfg.SASLMechanism == config.SASLAWS && errors.Is(err, kerr.SaslAuthenticationFailed):
		return "the brokers refuse the AWS credentials (AWS_MSK_IAM): they are wrong or expired, or their policy " +
			"does not allow kafka-cluster:Connect on this cluster"
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return fmt.Sprintf("the brokers refuse user %s (%s): there is no such user, or the password in %s is wrong",
			cfg.SASLUsername, cfg.SASLMechanism, cfg.SASLPasswordFile)
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fmt.Sprintf(
			"the brokers at %s do not offer %s: choose another --sasl-mechanism, or another port of theirs", brokers,
			cfg.SASLMechanism)
	case errors.Is(err, kerr.IllegalSaslState):
		return fmt.Sprintf("the brokers at %s want no login on that port: leave out --sasl-mechanism, or name their "+
			"port with SASL", brokers)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the certificate of a broker at %s is valid from %s to %s and now is %s: have it "+
			"renewed, or set this machine's clock",
			brokers, invalid.Cert.NotBefore.UTC().Format(time.RFC3339),
			invalid.Cert.NotAfter.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
	case errors.As(err, &authority):
		return fmt.Sprintf("the certificate of a broker at %s is signed by an authority that is not trusted here: "+
			"name the authority's certificate with --tls-ca", brokers)
	case errors.As(err, &unfit):
		return fmt.Sprintf("the certificate of a broker at %s is not good: %v", brokers, unfit.Err)
	case errors.As(err, &header), errors.As(err, &plain):
		return notTLS(brokers)
	case strings.Contains(err.Error(), "remote error: tls: "):
		_, alert, _ := strings.Cut(err.Error(), "remote error: tls: ")
		if cfg.TLSCert == "" {
			return fmt.Sprintf("the brokers at %s refuse this client, which shows no certificate (%s): name one "+
				"with --tls-cert and --tls-key", brokers, alert)
		}
		return fmt.Sprintf("the brokers at %s refuse the client certificate %s (%s)", brokers, cfg.TLSCert, alert)
	case strings.Contains(err.Error(), wantsTLS):
		return fmt.Sprintf("the brokers at %s speak TLS on that port: add --tls, or name their plain port", brokers)
	case errors.As(err, &closed) && cfg.TLS:
		return notTLS(brokers)
	case errors.As(err, &closed) && cfg.SASLMechanism == config.SASLNone:
		return fmt.Sprintf("the brokers at %s close the connection at once: that port wants TLS (--tls) or a login "+
			"(--sasl-mechanism), or they are starting or stopping", brokers)
	case errors.As(err, &closed):
		return fmt.Sprintf("the brokers at %s close the connection at once: %v", brokers, closed)
	case cfg.TLS && strings.Contains(err.Error(), dialFailed) &&
		(errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Sprintf("the brokers at %s close the connection while TLS begins: name their TLS port, or leave "+
			"out --tls; or they are starting or stopping", brokers)
	}
	return ""
}

func notTLS(brokers string) string {
	return fmt.Sprintf("the brokers at %s do not speak TLS on that port: name their TLS port, or leave out --tls",
		brokers)
}

// localError is a fault of a file of this machine: a secret that cannot be read, or a client certificate that is not
// valid now, so that every broker would refuse it.
type localError struct{ error }

// checkValidity returns an error if a client certificate is not valid now. Brokers would refuse it too, but under TLS
// 1.3 only after the handshake, and without saying why.
func checkValidity(path string, tc *tls.Config) error {
	for _, pair := range tc.Certificates {
		leaf := pair.Leaf
		if now := time.Now(); leaf != nil && (now.Before(leaf.NotBefore) || now.After(leaf.NotAfter)) {
			return &localError{fmt.Errorf("the client certificate %s is valid from %s to %s and now is %s: replace "+
				"it; it is read again at each connection", path,
				leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339),
				now.UTC().Format(time.RFC3339))}
		}
	}
	return nil
}

// unknownPrincipal is the placeholder for a principal that the configuration does not show.
const unknownPrincipal = "User:NAME"

// Principal returns the name by which ACLs know a client with these settings. Brokers derive it in the same way, unless
// they are configured otherwise.
func Principal(cfg *config.Config) string {
	switch {
	case cfg.SASLMechanism == config.SASLOAuth:
		return tokenPrincipal(cfg.SASLTokenFile)
	case cfg.SASLMechanism == config.SASLAWS:
		return unknownPrincipal
	case cfg.SASLMechanism != config.SASLNone:
		return "User:" + cfg.SASLUsername
	case cfg.TLS && cfg.TLSCert != "":
		return certificatePrincipal(cfg)
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
func certificatePrincipal(cfg *config.Config) string {
	tc, err := cfg.TLSConfig()
	if err != nil || tc.Certificates[0].Leaf == nil {
		return unknownPrincipal
	}
	return "User:" + tc.Certificates[0].Leaf.Subject.String()
}

// looksHTTP is part of kgo's error for an answer that is one of HTTP.
const looksHTTP = "beginning of an HTTP response"

// Words returns the text of an error for people: the meaning of a broker's code in place of the code, and the cause of
// a network error in place of the calls that it went through.
func Words(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	leaves(err, func(leaf error, words string) { text = strings.ReplaceAll(text, leaf.Error(), words) })
	return strings.ReplaceAll(text, dialFailed+": ", "")
}

// leaves calls fn for the parts of an error that have other words. The outermost part counts.
func leaves(err error, fn func(leaf error, words string)) {
	if err == nil {
		return
	}
	if words := plainWords(err); words != "" {
		fn(err, words)
		return
	}
	switch e := err.(type) { //nolint:errorlint // this link of the chain
	case interface{ Unwrap() error }:
		leaves(e.Unwrap(), fn)
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			leaves(part, fn)
		}
	}
}

// plainWords returns the words for one error, not for what it wraps; "" if its own text is good.
func plainWords(err error) string {
	switch e := err.(type) { //nolint:errorlint // this link of the chain
	case *kerr.Error:
		return sentence(e.Description)
	case *net.DNSError:
		if e.IsNotFound {
			return "there is no host " + e.Name
		}
		return "the name " + e.Name + " cannot be looked up: " + e.Err
	case *net.OpError:
		if inner := plainWords(e.Err); inner != "" {
			return inner
		}
		if call, ok := e.Err.(*os.SyscallError); ok { //nolint:errorlint // this link of the chain
			return call.Err.Error()
		}
		if e.Timeout() {
			return "no answer in time"
		}
		return e.Err.Error()
	case syscall.Errno:
		return ""
	}
	switch {
	//nolint:errorlint // this link of the chain
	case err == context.DeadlineExceeded, err == os.ErrDeadlineExceeded, err == kgo.ErrRecordTimeout:
		return "no answer in time"
	case strings.Contains(err.Error(), looksHTTP) && errors.Unwrap(err) == nil:
		return "that port speaks HTTP, not Kafka"
	}
	return ""
}

// sentence returns a broker's description as a part of a sentence.
func sentence(description string) string {
	text := strings.TrimSuffix(strings.TrimSpace(description), ".")
	first, size := utf8.DecodeRuneInString(text)
	second, _ := utf8.DecodeRuneInString(text[size:])
	if unicode.IsUpper(first) && !unicode.IsUpper(second) {
		return string(unicode.ToLower(first)) + text[size:]
	}
	return text
}

package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
)

// maxSecretBytes bounds the size of a secret's file.
const maxSecretBytes = 64 * 1024

const redacted = "****"

// Secret is a text that is never shown: every way of printing or encoding it writes ****. The zero value is not a
// secret.
type Secret struct{ text string }

// Reveal returns the text itself.
func (s Secret) Reveal() string { return s.text }

// Format implements fmt.Formatter, for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler, and so covers JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// ReadSecret reads a secret from a file, without a line end behind it. A file that is empty or larger than 64 KiB is an
// error. Files are replaced when secrets are rotated, so read them when they are needed.
func ReadSecret(path string) (Secret, error) {
	f, err := os.Open(path)
	if err != nil {
		return Secret{}, fmt.Errorf("read secret: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err != nil {
		return Secret{}, fmt.Errorf("read secret: %w", err)
	}
	if len(data) > maxSecretBytes {
		return Secret{}, fmt.Errorf("read secret: %s has more than %d bytes", path, maxSecretBytes)
	}
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(data) == 0 {
		return Secret{}, fmt.Errorf("read secret: %s is empty", path)
	}
	return Secret{string(data)}, nil
}

// TLSConfig returns the settings of TLS to the brokers, or nil if it is off.
func (c *Config) TLSConfig() (*tls.Config, error) {
	if !c.TLS {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLSCA != "" {
		pool, err := readCA(c.TLSCA)
		if err != nil {
			return nil, err
		}
		out.RootCAs = pool
	}
	if c.TLSCert != "" || c.TLSKey != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("load client certificate: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

func readCA(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("load authorities: no certificate in PEM form")
	}
	return pool, nil
}

package access

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// When a certificate is read that clients refuse, or soon will, that is logged.
func TestExpiredCertificateIsLogged(t *testing.T) {
	from, until := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &tls.Certificate{Leaf: &x509.Certificate{NotBefore: from, NotAfter: until}}
	for now, want := range map[time.Time]string{
		from.Add(-time.Hour): "not valid yet", from.Add(time.Hour): "", until.Add(-time.Hour): "expires soon",
		until.Add(time.Hour): "certificate expired",
	} {
		var b bytes.Buffer
		sayValidity(slog.New(slog.NewTextHandler(&b, nil)), "cert.pem", c, now)
		if text := b.String(); (text != "") != (want != "") || !strings.Contains(text, want) || want != "" &&
			!strings.Contains(text, "until=2031-01-01T00:00:00.000Z") {
			t.Errorf("at %s: %q, want %q", now, text, want)
		}
	}
}

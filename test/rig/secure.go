package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
)

// The listeners of a secured cluster. The plain one is also open, and clients there may do everything: it is for the
// tests themselves.
const (
	ListenerSASL    = "SECURE"  // SASL_SSL: PLAIN, SCRAM and OAUTHBEARER
	ListenerMutual  = "MUTUAL"  // SSL, asks for a client certificate
	ListenerExpired = "EXPIRED" // SSL, the broker's own certificate has expired
)

// Security is what a locked-down cluster is made of: an authority of its own, users by mechanism, and an authorizer
// that denies whatever is not allowed.
type Security struct {
	CA  string // path of the authority's certificate
	dir string

	authority *x509.Certificate
	key       *ecdsa.PrivateKey
}

// Secured makes an authority, and the options of a cluster with the three listeners above. plain are the passwords by
// user of the mechanism PLAIN. Any unsecured JWT is a good token, as Kafka has it for tests.
func Secured(t testing.TB, plain map[string]string) (*Security, []kafkatest.Option) {
	t.Helper()
	s := &Security{dir: t.TempDir()}
	s.CA = filepath.Join(s.dir, "ca.pem")
	var err error
	s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	s.authority = template("authority", time.Now().Add(time.Hour))
	s.authority.IsCA, s.authority.BasicConstraintsValid, s.authority.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, s.authority, s.authority, &s.key.PublicKey, s.key)
	must(t, err)
	writePEM(t, s.CA, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	good := s.keystore(t, "broker", time.Now().Add(time.Hour))
	old := s.keystore(t, "old-broker", time.Now().Add(-time.Minute))

	opts := []kafkatest.Option{
		localkafka.WithListener(ListenerSASL, "SASL_SSL"), localkafka.WithListener(ListenerMutual, "SSL"),
		localkafka.WithListener(ListenerExpired, "SSL"),
		kafkatest.WithProperty("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
		kafkatest.WithProperty("super.users", "User:ANONYMOUS"), // the plain listener, brokers and controllers
	}
	for _, l := range []struct{ name, keystore string }{{ListenerSASL, good}, {ListenerMutual, good},
		{ListenerExpired, old}} {
		prefix := "listener.name." + strings.ToLower(l.name) + "."
		opts = append(opts,
			kafkatest.WithProperty(prefix+"ssl.keystore.type", "PEM"),
			kafkatest.WithProperty(prefix+"ssl.keystore.location", l.keystore),
			kafkatest.WithProperty(prefix+"ssl.truststore.type", "PEM"),
			kafkatest.WithProperty(prefix+"ssl.truststore.location", s.CA))
	}
	prefix := "listener.name." + strings.ToLower(ListenerSASL) + "."
	var users strings.Builder
	for name, password := range plain {
		fmt.Fprintf(&users, " user_%s=%q", name, password)
	}
	return s, append(opts,
		kafkatest.WithProperty("listener.name."+strings.ToLower(ListenerMutual)+".ssl.client.auth", "required"),
		kafkatest.WithProperty(prefix+"sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"),
		kafkatest.WithProperty(prefix+"plain.sasl.jaas.config",
			"org.apache.kafka.common.security.plain.PlainLoginModule required"+users.String()+";"),
		kafkatest.WithProperty(prefix+"scram-sha-256.sasl.jaas.config",
			"org.apache.kafka.common.security.scram.ScramLoginModule required;"),
		kafkatest.WithProperty(prefix+"scram-sha-512.sasl.jaas.config",
			"org.apache.kafka.common.security.scram.ScramLoginModule required;"),
		kafkatest.WithProperty(prefix+"oauthbearer.sasl.jaas.config",
			`org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`),
	)
}

// Certificate writes a client certificate of the authority and its key.
func (s *Security) Certificate(t testing.TB, name string, until time.Time) (cert, key string) {
	t.Helper()
	c, k := s.issue(t, name, until)
	cert, key = filepath.Join(s.dir, name+".pem"), filepath.Join(s.dir, name+"-key.pem")
	writePEM(t, cert, c)
	writePEM(t, key, k)
	return cert, key
}

// keystore writes key and certificate as Kafka wants them: in one file.
func (s *Security) keystore(t testing.TB, name string, until time.Time) string {
	t.Helper()
	cert, key := s.issue(t, name, until)
	path := filepath.Join(s.dir, name+".pem")
	writePEM(t, path, key, cert)
	return path
}

func (s *Security) issue(t testing.TB, name string, until time.Time) (cert, key *pem.Block) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template(name, until), s.authority, &private.PublicKey, s.key)
	must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	return &pem.Block{Type: "CERTIFICATE", Bytes: der}, &pem.Block{Type: "PRIVATE KEY", Bytes: raw}
}

// template is a certificate for name, and for servers on the loopback interface, that has been valid for two hours.
func template(name string, until time.Time) *x509.Certificate {
	var serial [8]byte
	_, _ = rand.Read(serial[:]) // never fails
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial[:]), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func writePEM(t testing.TB, path string, blocks ...*pem.Block) {
	t.Helper()
	var data []byte
	for _, b := range blocks {
		data = slices.Concat(data, pem.EncodeToMemory(b))
	}
	must(t, os.WriteFile(path, data, 0o600))
}

// SetPassword gives a user a password for both SCRAM mechanisms, a new one too.
// Brokers learn of it a moment later.
func SetPassword(t testing.TB, c *kafkatest.Cluster, user, password string) {
	t.Helper()
	adm := c.Admin(t)
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		set := []kadm.UpsertSCRAM{{User: user, Mechanism: m, Iterations: 4096, Password: password}}
		results, err := adm.AlterUserSCRAMs(t.Context(), nil, set)
		must(t, errors.Join(err, results.Error()))
	}
}

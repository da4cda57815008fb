package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// valid returns settings that serve accepts.
func valid() Config {
	c := Default()
	c.Brokers = []string{"127.0.0.1:9092", "[::1]:9092"}
	c.Requests = []string{"timers", "slow"}
	c.Targets = []string{"orders", "timers:mail.*"}
	return c
}

func TestValid(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"as it is", func(*Config) {}},
		{"no http", func(c *Config) { c.HTTP = "" }},
		{"any port", func(c *Config) { c.HTTP = ":0" }},
		{"profiler", func(c *Config) { c.Pprof = "127.0.0.1:6060" }},
		{"profiler by name", func(c *Config) { c.Pprof = "localhost:6060" }},
		{"profiler, IPv6", func(c *Config) { c.Pprof = "[::1]:6060" }},
		{"API on loopback", func(c *Config) { c.API = "localhost:8681" }},
		{"API behind a proxy", func(c *Config) { c.API, c.APIOpen = ":8681", true }},
		{"stay", func(c *Config) { c.OnStop, c.InstanceID = Stay, "wc-0" }},
		{"default targets", func(c *Config) { c.DefaultTarget = []string{"orders", "timers:mail.out"} }},
		{"scram", func(c *Config) {
			c.SASLMechanism, c.SASLUsername, c.SASLPasswordFile = SASLScram512, "u", secret
		}},
		{"oauth", func(c *Config) { c.SASLMechanism, c.SASLTokenFile = SASLOAuth, secret }},
		{"aws", func(c *Config) {
			c.TLS, c.SASLMechanism, c.SASLUsername, c.SASLPasswordFile = true, SASLAWS, "AKIA", secret
		}},
		{"aws with session", func(c *Config) {
			c.TLS, c.SASLMechanism, c.SASLUsername, c.SASLPasswordFile, c.SASLTokenFile = true, SASLAWS, "AKIA",
				secret, secret
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := valid()
			c.change(&cfg)
			if err := cfg.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		want   string // the message, or its beginning
		change func(*Config)
	}{
		{"brokers needs at least one host:port", func(c *Config) { c.Brokers = nil }},
		{`brokers is "kafka", needs host:port`, func(c *Config) { c.Brokers = []string{"a:1", "kafka"} }},
		{`brokers is "kafka:0", needs host:port`, func(c *Config) { c.Brokers = []string{"kafka:0"} }},
		{`brokers is ":9092", needs host:port`, func(c *Config) { c.Brokers = []string{":9092"} }},
		{"requests needs at least one", func(c *Config) { c.Requests = nil }},
		{`requests is "a b", needs topic names`, func(c *Config) { c.Requests = append(c.Requests, "a b") }},
		{`requests is "..", needs topic names`, func(c *Config) { c.Requests = append(c.Requests, "..") }},
		{`requests is "timers", needs each topic once`, func(c *Config) { c.Requests = append(c.Requests, "timers") }},
		{`requests is "__x", needs topics that neither`, func(c *Config) { c.Requests = append(c.Requests, "__x") }},
		{`requests is "a.waterclock.events", needs topics that neither`,
			func(c *Config) { c.Requests = append(c.Requests, "a.waterclock.events") }},
		{"targets needs at least one glob", func(c *Config) { c.Targets = nil }},
		{`targets is "a[", needs globs`, func(c *Config) { c.Targets = append(c.Targets, "a[") }},
		{`targets is "timers:", needs globs`, func(c *Config) { c.Targets = append(c.Targets, "timers:") }},
		{`targets is "timers", needs topics that neither begin with __`,
			func(c *Config) { c.Targets = append(c.Targets, "timers") }},
		{`targets is "timers:slow", needs topics that neither`,
			func(c *Config) { c.Targets = append(c.Targets, "timers:slow") }},
		{`targets is "__consumer_offsets", needs topics that neither`,
			func(c *Config) { c.Targets = append(c.Targets, "__consumer_offsets") }},
		{`default-target is "slow", needs topics that neither`,
			func(c *Config) { c.Targets, c.DefaultTarget = []string{"*"}, []string{"slow"} }},
		{`targets is "other:x", needs a prefix`, func(c *Config) { c.Targets = append(c.Targets, "other:x") }},
		{`default-target is "mail.x", needs to be one of the targets of slow`,
			func(c *Config) { c.DefaultTarget = []string{"mail.x"} }},
		{`default-target is "a*", needs the name`,
			func(c *Config) { c.DefaultTarget = []string{"timers:orders", "a*"} }},
		{`default-target is "orders", needs one entry`,
			func(c *Config) { c.DefaultTarget = []string{"orders", "orders"} }},
		{"group needs a name", func(c *Config) { c.Group = "" }},
		{`instance-id is "a/b", needs 1 to 249`, func(c *Config) { c.InstanceID = "a/b" }},
		{"data-dir needs a directory", func(c *Config) { c.DataDir = "" }},
		{`http is "8680", needs host:port`, func(c *Config) { c.HTTP = "8680" }},
		{`http-web-config is "/none.yaml", needs a web configuration`,
			func(c *Config) { c.HTTPWebConfig = "/none.yaml" }},
		{`http-web-config is "/none.yaml", needs http to be set`,
			func(c *Config) { c.HTTP, c.HTTPWebConfig = "", "/none.yaml" }},
		{`pprof is "0.0.0.0:6060", needs host:port on the loopback`, func(c *Config) { c.Pprof = "0.0.0.0:6060" }},
		{`pprof is ":6060", needs host:port on the loopback`, func(c *Config) { c.Pprof = ":6060" }},
		{`pprof is "example.org:6060", needs host:port on the loopback`,
			func(c *Config) { c.Pprof = "example.org:6060" }},
		{`pprof is "127.0.0.1", needs host:port on the loopback`, func(c *Config) { c.Pprof = "127.0.0.1" }},
		{`api is "8681", needs host:port`, func(c *Config) { c.API = "8681" }},
		{`api is ":8681", needs api-users with its callers, or api-open`, func(c *Config) { c.API = ":8681" }},
		{`api-open is "true", needs to be false if`,
			func(c *Config) { c.API, c.APIOpen, c.APIUsers = ":1", true, "/none" }},
		{`api-host is "a", needs api-open with it`,
			func(c *Config) { c.API, c.APIHost = "127.0.0.1:1", []string{"a"} }},
		{`api-host is "http://a", needs globs of hosts`, func(c *Config) {
			c.API, c.APIOpen, c.APIHost = ":1", true, []string{"http://a"}
		}},
		{`api-open is "true", needs api to be set`, func(c *Config) { c.APIOpen = true }},
		{`api-users is "/none", needs api to be set`, func(c *Config) { c.APIUsers = "/none" }},
		{`api-tls-cert is "c.pem", needs api-tls-key with it`,
			func(c *Config) { c.API, c.APITLSCert = "127.0.0.1:1", "c.pem" }},
		{`api-tls-key is "k.pem", needs api-tls-cert with it`,
			func(c *Config) { c.API, c.APITLSKey = "127.0.0.1:1", "k.pem" }},
		{`api-client-ca is "ca.pem", needs api-tls-cert with it`,
			func(c *Config) { c.API, c.APIClientCA = "127.0.0.1:1", "ca.pem" }},
		{`api-client-ca is "ca.pem", needs api-users with it`,
			func(c *Config) { c.API, c.APIClientCA = "127.0.0.1:1", "ca.pem" }},
		{`api-key-file is "/none", needs api to be set`, func(c *Config) { c.APIKeyFile = "/none" }},
		{`api-body-limit is "1KiB", needs 64KiB to 1GiB`, func(c *Config) { c.APIBodyLimit = KiB }},
		{`api-rate is "-1", needs 0 to 1000000`, func(c *Config) { c.APIRate = -1 }},
		{`api-concurrent is "0", needs 1 to 100000`, func(c *Config) { c.APIConcurrent = 0 }},
		{`session-timeout is "10ms", needs 1s to 30m`, func(c *Config) { c.SessionTimeout = 10 * time.Millisecond }},
		{`rebalance-timeout is "5s", needs at least session-timeout (10s)`,
			func(c *Config) { c.RebalanceTimeout = 5 * time.Second }},
		{`on-stop is "stay", needs an instance-id`, func(c *Config) { c.OnStop = Stay }},
		{`replication-factor is "0", needs -1 or 1`, func(c *Config) { c.ReplicationFactor = 0 }},
		{`lanes is "257", needs 0 to 256`, func(c *Config) { c.Lanes = 257 }},
		{`sub-partitions is "9", needs 0 to 8`, func(c *Config) { c.SubPartitions = 9 }},
		{`transactional-ids is "1", needs 2 to 4`, func(c *Config) { c.TransactionalIDs = 1 }},
		{`transaction-timeout is "29s", needs 30s to 15m`, func(c *Config) { c.TransactionTimeout = 29 * time.Second }},
		{`topic-check-interval is "0s", needs at least 1s`, func(c *Config) { c.TopicCheckInterval = 0 }},
		{`limit-horizon is "36525d1h", needs 1s to 36525d`,
			func(c *Config) { c.LimitHorizon = MaxHorizon + time.Hour }},
		{`limit-headers is "129", needs 1 to 128`, func(c *Config) { c.LimitHeaders = 129 }},
		{`limit-header-bytes is "1MiB", needs 1 to 64KiB`, func(c *Config) { c.LimitHeaderBytes = MiB }},
		{`memory is "255MiB", needs at least 256MiB, or 0 to have it chosen`, func(c *Config) { c.Memory = 255 * MiB }},
		{`tls-ca is "ca.pem", needs tls to be true`, func(c *Config) { c.TLSCA = "ca.pem" }},
		{`tls-cert is "c.pem", needs tls-key with it`, func(c *Config) { c.TLS, c.TLSCert = true, "c.pem" }},
		{`tls is "true", needs PEM files that can be read: load auth`,
			func(c *Config) { c.TLS, c.TLSCA = true, "/none.pem" }},
		{`tls is "true", needs PEM files that can be read: load client`,
			func(c *Config) { c.TLS, c.TLSCert, c.TLSKey = true, "/none.pem", "/none.pem" }},
		{"sasl-username needs to be set with sasl-mechanism PLAIN", func(c *Config) { c.SASLMechanism = SASLPlain }},
		{`sasl-username is "u", needs to be unset without sasl-mechanism`, func(c *Config) { c.SASLUsername = "u" }},
		{"sasl-token-file needs to be set with sasl-mechanism OAUTHBEARER",
			func(c *Config) { c.SASLMechanism = SASLOAuth }},
		{"sasl-password-file needs to be set with sasl-mechanism AWS_MSK_IAM", func(c *Config) {
			c.TLS, c.SASLMechanism, c.SASLUsername = true, SASLAWS, "AKIA"
		}},
		{`tls is "false", needs to be true with sasl-mechanism AWS_MSK_IAM`,
			func(c *Config) { c.SASLMechanism = SASLAWS }},
		{`sasl-password-file is "/none", needs a file with the secret`, func(c *Config) {
			c.SASLMechanism, c.SASLUsername, c.SASLPasswordFile = SASLPlain, "u", "/none"
		}},
	} {
		t.Run(c.want, func(t *testing.T) {
			cfg := valid()
			c.change(&cfg)
			err := cfg.Validate()
			if err == nil || !errors.Is(err, ErrInvalid) {
				t.Fatalf("err = %v", err)
			}
			if !slices.ContainsFunc(strings.Split(err.Error(), "\n"),
				func(l string) bool { return strings.HasPrefix(l, c.want) }) {
				t.Errorf("got:\n%v", err)
			}
		})
	}
}

func TestACLsNeedNoMore(t *testing.T) {
	cfg := Config{Brokers: []string{"a:1"}, Requests: []string{"timers"}, Targets: []string{"*"}, Group: "g",
		LogFormat: LogText}
	if err := cfg.ValidateACLs(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.Brokers = nil }, func(c *Config) { c.Requests = nil }, func(c *Config) { c.Targets = nil },
		func(c *Config) { c.Group = "" },
	} {
		wrong := cfg
		change(&wrong)
		if err := wrong.ValidateACLs(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	cfg := Config{}
	if n := strings.Count(cfg.Validate().Error(), "\n") + 1; n < 15 {
		t.Errorf("%d problems of a zero Config:\n%v", n, cfg.Validate())
	}
	cfg = Default()
	cfg.Brokers = []string{"a:1"}
	if err := cfg.ValidateClient(); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := cfg.ValidateTopics(); err == nil || !strings.Contains(err.Error(), "requests needs") {
		t.Errorf("topics: %v", err)
	}
}

func TestValidateDev(t *testing.T) {
	for _, c := range []struct {
		want   string // empty: valid
		change func(*Config)
	}{
		{"", func(*Config) {}},
		{"", func(c *Config) { c.Listen = "127.0.0.1:0" }},
		{`listen is "9092", needs host:port`, func(c *Config) { c.Listen = "9092" }},
		{`tls is "true", needs to be unset`, func(c *Config) { c.TLS = true }},
		{`sasl-mechanism is "PLAIN", needs to be unset`, func(c *Config) { c.SASLMechanism = SASLPlain }},
		{"data-dir needs a directory", func(c *Config) { c.DataDir = "" }},
	} {
		cfg := DefaultDev()
		c.change(&cfg)
		err := cfg.ValidateDev()
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

func TestTargets(t *testing.T) {
	c := valid()
	c.DefaultTarget = []string{"timers:mail.out", "orders"}
	for _, r := range []struct {
		topic, globs, target string
	}{
		{"timers", "orders mail.*", "mail.out"},
		{"slow", "orders", "orders"},
	} {
		if got := strings.Join(c.TargetsOf(r.topic), " "); got != r.globs {
			t.Errorf("targets of %s: %q, want %q", r.topic, got, r.globs)
		}
		if got := c.PolicyOf(r.topic).DefaultTarget; got != r.target {
			t.Errorf("default target of %s: %q, want %q", r.topic, got, r.target)
		}
	}
	c.DefaultTarget = nil
	if got := c.PolicyOf("slow").DefaultTarget; got != "" {
		t.Errorf("no default target: %q", got)
	}
}

func TestTLSConfig(t *testing.T) {
	c := valid()
	if got, err := c.TLSConfig(); got != nil || err != nil {
		t.Fatalf("off: %v, %v", got, err)
	}
	c.TLS = true
	c.TLSCert, c.TLSKey = writePair(t)
	c.TLSCA = c.TLSCert
	got, err := c.TLSConfig()
	if err != nil || len(got.Certificates) != 1 || got.RootCAs == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	c.TLSCA = c.TLSKey
	if _, err := c.TLSConfig(); err == nil {
		t.Error("a key is no authority: no error")
	}
}

// writePair writes a self-signed certificate and its key.
func writePair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, "CERTIFICATE", der), writePEM(t, "EC PRIVATE KEY", keyDER)
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

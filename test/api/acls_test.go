package api

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// look is how often instances under test look at their rights.
	look = 200 * time.Millisecond
	// password is of every user. It must show nowhere.
	password = "correct-horse-battery"
)

// locked is a locked-down cluster.
type locked struct {
	*kafkatest.Cluster
	security *rig.Security
	secret   string // path of the password
}

func newLocked(t *testing.T) *locked {
	t.Helper()
	security, opts := rig.Secured(t, map[string]string{"plain": password})
	l := &locked{kafkatest.Start(t, 1, opts...), security, rig.File(t, "password", password)}
	for _, user := range []string{"waterclock", "shop", "billing", "operator", "scram256"} {
		rig.SetPassword(t, l.Cluster, user, password)
	}
	return l
}

// topics makes a request topic and a target, named and prefixed.
func (l *locked) topics(t *testing.T) (requests, target, mail string) {
	t.Helper()
	requests = l.CreateTopic(t, partitions, nil)
	target = l.CreateTopic(t, partitions, nil, requests+"-out")
	mail = l.CreateTopic(t, partitions, nil, requests+"-mail.welcome")
	return requests, target, mail
}

// config is that of an instance that logs in by SCRAM-SHA-512.
func (l *locked) config(t *testing.T, requests string) *config.Config {
	t.Helper()
	cfg := rig.Config(t, l.Listener(rig.ListenerSASL), requests)
	cfg.Targets = []string{requests + "-out", requests + "-mail.*"}
	cfg.TLS, cfg.TLSCA = true, l.security.CA
	cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPasswordFile = config.SASLScram512, "waterclock", l.secret
	cfg.SessionTimeout = 6 * time.Second
	return cfg
}

// client is a user's, as the service builds its own.
func (l *locked) client(t *testing.T, cfg *config.Config, user string) []kgo.Opt {
	t.Helper()
	as := *cfg
	as.SASLUsername = user
	opts, err := connect.Options(&as, "client-of-"+user, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return opts
}

// rule is one ACL: one operation of one principal.
type rule struct {
	principal, kind, name, operation string
	prefixed                         bool
}

func (r rule) String() string {
	return fmt.Sprintf("%s %s of %s %s (prefixed: %t)", r.principal, r.operation, r.kind, r.name, r.prefixed)
}

// printed runs `topics acls` and reads its commands as kafka-acls.sh would. An option that kafka-acls.sh does not have
// fails the test.
func printed(t *testing.T, cfg *config.Config, o commands.ACLOptions) (rules []rule) {
	t.Helper()
	var out bytes.Buffer
	if err := commands.ACLs(cfg, o, &out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			rules = append(rules, parseCommand(t, line)...)
		}
	}
	if len(rules) < 5 {
		t.Fatalf("%d rules in\n%s", len(rules), out.String())
	}
	return rules
}

func parseCommand(t *testing.T, line string) (rules []rule) {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(line, "'", ""))
	if words[0] != "kafka-acls.sh" {
		t.Fatalf("no command: %s", line)
	}
	var principals, operations []string
	var r rule
	for words = words[1:]; len(words) > 0; {
		option, value := words[0], ""
		if option == "--add" {
			words = words[1:]
			continue
		}
		if len(words) < 2 {
			t.Fatalf("%s lacks a value: %s", option, line)
		}
		value, words = words[1], words[2:]
		switch option {
		case "--bootstrap-server", "--command-config":
		case "--allow-principal":
			principals = append(principals, value)
		case "--operation":
			operations = append(operations, value)
		case "--topic", "--group", "--transactional-id":
			r.kind, r.name = option, value
		case "--resource-pattern-type":
			r.prefixed = value == "prefixed"
		default:
			t.Fatalf("kafka-acls.sh has no option %s: %s", option, line)
		}
	}
	for _, p := range principals {
		for _, op := range operations {
			rules = append(rules, rule{p, r.kind, r.name, op, r.prefixed})
		}
	}
	return rules
}

func (r rule) acl(t *testing.T) *kadm.ACLBuilder {
	t.Helper()
	op, ok := map[string]kadm.ACLOperation{
		"Read": kadm.OpRead, "Write": kadm.OpWrite, "Create": kadm.OpCreate, "DescribeConfigs": kadm.OpDescribeConfigs,
	}[r.operation]
	if !ok {
		t.Fatalf("operation %s", r.operation)
	}
	b := kadm.NewACLs().Allow(r.principal).AllowHosts("*").Operations(op)
	if r.prefixed {
		b = b.ResourcePatternType(kadm.ACLPatternPrefixed)
	} else {
		b = b.ResourcePatternType(kadm.ACLPatternLiteral)
	}
	switch r.kind {
	case "--topic":
		return b.Topics(r.name)
	case "--group":
		return b.Groups(r.name)
	}
	return b.TransactionalIDs(r.name)
}

func (l *locked) grant(t *testing.T, rules ...rule) {
	t.Helper()
	for _, r := range rules {
		results, err := l.Admin(t).CreateACLs(t.Context(), r.acl(t))
		for _, res := range results {
			if err == nil {
				err = res.Err
			}
		}
		if err != nil {
			t.Fatalf("grant %s: %v", r, err)
		}
	}
}

// take takes a right away.
func (l *locked) take(t *testing.T, r rule) {
	t.Helper()
	results, err := l.Admin(t).DeleteACLs(t.Context(), r.acl(t))
	n := 0
	for _, res := range results {
		if err == nil {
			err = res.Err
		}
		n += len(res.Deleted)
	}
	if err != nil || n != 1 {
		t.Fatalf("take %s away: %d deleted, %v", r, n, err)
	}
}

// logs waits until the log has a sentence with all the words.
func logs(t *testing.T, log *rig.Log, words ...string) {
	t.Helper()
	await.Until(t, limit, fmt.Sprintf("the log has %q", words), func() bool {
		return slices.ContainsFunc(log.Lines(words[0]), func(line string) bool { return hasAll(line, words) })
	})
}

// says waits until the instance is not ready, and /readyz and the log have one sentence with all the words.
func says(t *testing.T, in *rig.Instance, log *rig.Log, words ...string) {
	t.Helper()
	await.Until(t, limit, fmt.Sprintf("it says %q", words), func() bool {
		status, body := in.Readyz()
		return status == http.StatusServiceUnavailable && hasAll(body, words)
	})
	logs(t, log, append([]string{"missing Kafka permissions"}, words...)...)
}

func hasAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// token is a JWT without a signature, which Kafka takes if nothing else is configured.
func token(subject string, until time.Time) string {
	enc := base64.RawURLEncoding.EncodeToString
	now := time.Now().Add(-time.Minute).Unix()
	return enc([]byte(`{"alg":"none"}`)) + "." +
		enc(fmt.Appendf(nil, `{"sub":%q,"iat":%d,"exp":%d}`, subject, now, until.Unix())) + "."
}

// deadLetters is the name of a topic.
func deadLetters(requests string) string { return topics.DeadLetters(requests) }

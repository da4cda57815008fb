package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// TestLockedDownCluster: what `topics acls` prints is enough, and no more than that.
// The parts share one broker, at the same time.
func TestLockedDownCluster(t *testing.T) {
	l := newLocked(t)
	t.Run("what acls prints is enough for firing, restart and takeover after a kill", l.enough)
	t.Run("each right taken away has its sentence", l.eachRight)
	t.Run("with no right at all every sentence comes at once", l.nothing)
	t.Run("wrong password", l.wrongPassword)
	t.Run("wrong port", l.wrongPort)
	t.Run("expired certificates", l.expired)
	t.Run("every mechanism", l.mechanisms)
}

// enough runs two processes as a user that has what acls prints and nothing else; producers, consumers and who looks
// after dead letters likewise.
func (l *locked) enough(t *testing.T) {
	t.Parallel()
	requests, target, mail := l.topics(t)
	cfg := l.config(t, requests)
	l.grant(t, printed(t, cfg, commands.ACLOptions{
		Producers: []string{"User:shop"}, Consumers: []string{"User:billing"},
		DeadLetterReaders: []string{"User:operator"}, ConsumerGroup: "billing-" + requests,
	})...)
	collect := func(user, group string, topics ...string) *kafkatest.Collector {
		return kafkatest.CollectAs(t, l.Cluster, append(l.client(t, cfg, user), kgo.ConsumerGroup(group)), topics...)
	}
	serve := func(dir string) *rig.Process {
		return rig.Start(t, "serve", "--brokers", cfg.Brokers[0], "--requests", requests, "--targets",
			strings.Join(cfg.Targets, ","),
			"--group", cfg.Group, "--data-dir", dir, "--session-timeout", "6s",
			"--tls", "--tls-ca", cfg.TLSCA, "--sasl-mechanism", "SCRAM-SHA-512", "--sasl-username", "waterclock",
			"--sasl-password-file", l.secret)
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	a := serve(dirs[0])
	a.Ready(partitions, limit)
	b := serve(dirs[1])
	a.Ready(partitions/2, limit)
	b.Ready(partitions/2, limit)
	out := collect("billing", "billing-"+requests, target, mail)
	dead := collect("operator", "billing-"+requests+"-dead-letters", deadLetters(requests))

	// A step is nearly always under way, at the kill too.
	producer := l.Client(t, l.client(t, cfg, "shop")...)
	var ids []string
	burst := func(name string, from, length time.Duration, n int) {
		t.Helper()
		var recs []*kgo.Record
		start := time.Now().Add(from)
		for i := range n {
			id := fmt.Sprintf("%s-%d", name, i)
			to := target
			if i%2 == 1 {
				to = mail
			}
			recs = append(recs, rig.Timer(requests, to, id, start.Add(length*time.Duration(i)/time.Duration(n))))
			ids = append(ids, id)
		}
		rig.Send(t, producer, recs...)
	}
	burst("killed", 300*time.Millisecond, 3*time.Second, 3000)
	out.WaitFor(500, limit)
	a.Kill()
	b.Ready(partitions, limit)
	out.WaitFor(len(ids), limit)
	burst("stopped", 300*time.Millisecond, 2*time.Second, 1000)
	a = serve(dirs[0])
	a.Ready(partitions/2, limit)
	b.Term()
	if code := b.Exit(limit); code != 0 {
		t.Errorf("exit code %d", code)
	}
	a.Ready(partitions, limit)
	// Own topics, Kafka's and what no glob allows are refused, whatever rights there are; a topic that a glob allows
	// and no rule does is refused by Kafka.
	refused := map[string]string{"__consumer_offsets": "target-not-allowed", deadLetters(
		requests): "target-not-allowed", requests: "target-not-allowed", requests + "-elsewhere": "target-not-allowed"}
	for to := range refused {
		rig.Send(t, producer, rig.Timer(requests, to, "to-"+to, time.Now()))
	}
	out.WaitFor(len(ids), limit)
	for _, d := range dead.WaitFor(len(refused), limit) {
		to := strings.TrimPrefix(string(d.Key), "to-")
		if got := d.Header("waterclock-reason"); got != refused[to] || !strings.HasPrefix(refused[to], "target-") {
			t.Errorf("dead letter of %s: %s, want %q", d.Key, got, refused[to])
		}
		delete(refused, to)
	}
	out.Quiet(time.Second)
	rig.ExactlyIDs(t, out.Records(), ids)
	for name, p := range map[string]*rig.Process{"killed and restarted": a, "stopped": b} {
		if log := withoutOffsets(p.Output()); strings.Contains(p.Output(), password) ||
			strings.Contains(log, "AUTHORIZATION_FAILED") || strings.Contains(log, "do not let") {
			t.Errorf("the one that was %s complains, or tells the password:\n%s", name, log)
		}
	}
	t.Logf("%d timers fired once; ended of former owners: %v", len(ids),
		a.Metric("waterclock_hanging_transactions_ended_total"))
}

// eachRight takes away one right after another of a running service. Timers that fall due meanwhile fire afterwards,
// but for those whose target may not be written to: they are dead letters.
func (l *locked) eachRight(t *testing.T) {
	t.Parallel()
	requests, target, mail := l.topics(t)
	cfg := l.config(t, requests)
	cfg.API = "127.0.0.1:0"
	rules := printed(t, cfg, commands.ACLOptions{Producers: []string{"User:shop"}, Consumers: []string{"User:billing"},
		DeadLetterReaders: []string{"User:operator"}, ConsumerGroup: "each"})
	l.grant(t, rules...)
	in, log := rig.ServeLogged(t, cfg, node.Options{AccessInterval: look})
	in.Ready(partitions, limit)
	api, reviewed := in.API(), "/v1/topics/"+requests+"/dead-letters/reviewed"
	out, dead := kafkatest.Collect(t, l.Cluster, target, mail), kafkatest.Collect(t, l.Cluster, deadLetters(requests))
	producer := l.Client(t)
	var ids []string
	refused, taken := 0, 0
	for n, r := range rules {
		if r.principal != "User:waterclock" || r.operation == "Create" {
			continue
		}
		taken++
		begin := time.Now()
		l.take(t, r)
		toTarget := r.name == target || r.prefixed && r.kind == "--topic"
		sentence := []string{"User:waterclock is missing permission " + r.operation, r.name,
			"--allow-principal User:waterclock --operation " + r.operation}
		switch ofReviewed := r.name == topics.Reviewed(cfg.Group); {
		case toTarget && r.prefixed: // nothing can ask for it: dead letters tell
		case toTarget, ofReviewed: // timers of other targets fire without it
			logs(t, log, sentence...)
			if status, body := in.Readyz(); status != http.StatusOK {
				t.Errorf("without %s: not ready, although timers fire: %s", r, body)
			}
			if ofReviewed {
				api.Get(reviewed).Is(http.StatusServiceUnavailable, "").Has(r.name)
			}
		default:
			says(t, in, log, sentence...)
			if in.Metric("waterclock_access_problems") == 0 {
				t.Errorf("without %s: waterclock_access_problems is 0", r)
			}
		}
		said := time.Since(begin)
		id, to := fmt.Sprintf("without-%d", n), target
		if toTarget && r.prefixed {
			to = mail
		}
		due := time.Now().Add(100 * time.Millisecond)
		if toTarget && r.operation != "Write" {
			// A recent refusal of a target is remembered for up to three seconds.
			due = due.Add(3500 * time.Millisecond)
		}
		rig.Send(t, producer, rig.Timer(requests, to, id, due))
		if toTarget && r.operation == "Write" {
			refused++
			letters := dead.WaitFor(refused, limit)
			last := letters[len(letters)-1]
			if reason, detail := last.Header("waterclock-reason"),
				last.Header("waterclock-detail"); reason != "target-not-authorized" || string(last.Key) != id ||
				!strings.Contains(detail, to) || !strings.Contains(detail, "kafka-acls.sh") {
				t.Errorf("without %s: dead letter of %s: %s: %s", r, last.Key, reason, detail)
			}
		} else {
			ids = append(ids, id)
		}
		l.grant(t, r)
		in.Ready(partitions, limit)
		await.Until(t, limit, "no problem is left", func() bool { return in.Metric("waterclock_access_problems") == 0 })
		out.WaitFor(len(ids), limit)
		t.Logf("without %s: said after %v, works again after %v", r, said.Round(time.Millisecond),
			time.Since(begin).Round(time.Millisecond))
	}
	if taken < 11 || refused != 2 {
		t.Errorf("%d rights taken away, %d of targets", taken, refused)
	}
	api.Get(reviewed).Is(http.StatusOK, "")
	out.Quiet(500 * time.Millisecond)
	rig.ExactlyIDs(t, out.Records(), ids)
	if n := len(dead.Records()); n != refused {
		t.Errorf("%d dead letters, want %d", n, refused)
	}
}

// nothing starts a service that nobody has given a right, which waits for them.
func (l *locked) nothing(t *testing.T) {
	t.Parallel()
	requests, target, _ := l.topics(t)
	cfg := l.config(t, requests)
	in, log := rig.ServeLogged(t, cfg, node.Options{AccessInterval: look})
	rules := printed(t, cfg, commands.ACLOptions{})
	for _, r := range rules {
		if r.principal == "User:waterclock" && r.name != target && !(r.prefixed && r.kind == "--topic") {
			says(t, in, log, r.operation, r.name)
		}
	}
	if err := commands.Topics(t.Context(), cfg, true, new(strings.Builder)); err == nil ||
		strings.Count(err.Error(), "User:waterclock is missing permission ") != 4 {
		t.Errorf("topics: %v", err)
	}
	timer := commands.Request{Topic: requests, ID: "a",
		Options: []waterclock.Option{waterclock.After(0), waterclock.To(target)}}
	if _, err := commands.Send(t.Context(), cfg, timer); err == nil ||
		!strings.Contains(err.Error(), "User:waterclock is missing permission Write on topic "+requests+
			"; grant it with: kafka-acls.sh") {
		t.Errorf("schedule: %v", err)
	}
	timer.Wait = limit
	if sent, err := commands.Send(t.Context(), cfg, timer); err == nil || sent.Topic != "" ||
		!strings.Contains(err.Error(), "--wait: User:waterclock is missing permission Read on topic "+
			deadLetters(requests)) {
		t.Errorf("schedule --wait: %+v, %v", sent, err)
	}
	// Without Create alone there is nothing to create the topics with.
	for _, r := range rules {
		if r.operation != "Create" {
			l.grant(t, r)
		}
	}
	await.Until(t, limit, "three rights are missing",
		func() bool { return in.Metric("waterclock_access_problems") == 3 })
	says(t, in, log, "is missing permission Create on topic "+deadLetters(requests))
	for _, r := range rules {
		if r.operation == "Create" {
			l.grant(t, r)
		}
	}
	in.Ready(partitions, limit)
}

// wrongPassword: the sentence names user and file, the instance goes on trying, and the right password in the file is
// all it needs.
func (l *locked) wrongPassword(t *testing.T) {
	t.Parallel()
	requests, _, _ := l.topics(t)
	cfg := l.config(t, requests)
	l.grant(t, printed(t, cfg, commands.ACLOptions{})...)
	cfg.SASLPasswordFile = rig.File(t, "password", "wrong-horse")
	in, log := rig.ServeLogged(t, cfg, node.Options{AccessInterval: look})
	says(t, in, log, "the brokers refuse user waterclock (SCRAM-SHA-512)", cfg.SASLPasswordFile)
	if _, err := commands.Send(
		t.Context(), cfg, commands.Request{Topic: requests, ID: "a", Action: commands.Cancel}); err == nil ||
		!strings.Contains(err.Error(), "the brokers refuse user waterclock") {
		t.Errorf("cancel: %v", err)
	}
	rig.Put(t, cfg.SASLPasswordFile, password)
	in.Ready(partitions, limit)
	if found := append(log.Lines("wrong-horse"), log.Lines(password)...); len(found) > 0 {
		t.Errorf("a password is in the log: %s", found)
	}
}

// wrongPort: settings for one kind of port and the brokers' port of another. Each sentence names the setting to change.
func (l *locked) wrongPort(t *testing.T) {
	requests, _, _ := l.topics(t)
	for _, c := range []struct {
		name      string
		brokers   []string
		tls, sasl bool
		want      string
	}{
		{"a login where none is wanted", l.Seeds(), false, true, "leave out --sasl-mechanism"},
		{"TLS where it is not spoken", l.Seeds(), true, false, "leave out --tls"},
		{"no TLS where it is spoken", l.Listener(rig.ListenerSASL), false, true, "add --tls"},
	} {
		cfg := l.config(t, requests)
		cfg.Brokers = c.brokers
		if !c.tls {
			cfg.TLS, cfg.TLSCA = false, ""
		}
		if !c.sasl {
			cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPasswordFile = config.SASLNone, "", ""
		}
		if _, err := commands.Send(
			t.Context(), cfg, commands.Request{Topic: requests, ID: "a", Action: commands.Cancel}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// expired: certificates out of their time, the broker's and one's own.
func (l *locked) expired(t *testing.T) {
	t.Parallel()
	requests, _, _ := l.topics(t)
	cfg := l.config(t, requests)
	cfg.Brokers = l.Listener(rig.ListenerExpired)
	cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPasswordFile = config.SASLNone, "", ""
	in, log := rig.ServeLogged(t, cfg, node.Options{AccessInterval: look})
	says(t, in, log, "the certificate of a broker at "+cfg.Brokers[0], "have it renewed")
	if err := in.Stop(); err != nil {
		t.Error(err)
	}

	own := *cfg
	own.Brokers, own.DataDir = l.Listener(rig.ListenerMutual), t.TempDir()
	own.TLSCert, own.TLSKey = l.security.Certificate(t, "renewed", time.Now().Add(-time.Minute))
	l.grant(t, printed(t, &own, commands.ACLOptions{Service: []string{"User:CN=renewed"}})...)
	in, log = rig.ServeLogged(t, &own, node.Options{AccessInterval: look})
	says(t, in, log, "the client certificate "+own.TLSCert, "replace it")
	l.security.Certificate(t, "renewed", time.Now().Add(time.Hour))
	in.Ready(partitions, limit)

	// None at all, and one of an authority that the brokers do not know.
	none := own
	none.DataDir, none.TLSCert, none.TLSKey = t.TempDir(), "", ""
	in, log = rig.ServeLogged(t, &none, node.Options{AccessInterval: look})
	says(t, in, log, "the brokers at "+own.Brokers[0]+" refuse this client", "--tls-cert")
	stranger := own
	stranger.DataDir, stranger.TLSCA = t.TempDir(), ""
	in, log = rig.ServeLogged(t, &stranger, node.Options{AccessInterval: look})
	says(t, in, log, "signed by an authority that is not trusted", "--tls-ca")
}

// mechanisms: an instance for each way to log in fires a timer, and tells no secret in a log of everything.
func (l *locked) mechanisms(t *testing.T) {
	t.Parallel()
	bearer := token("bearer", time.Now().Add(time.Hour))
	for name, login := range map[string]func(*config.Config){
		"plain":    func(c *config.Config) { c.SASLMechanism, c.SASLUsername = config.SASLPlain, "plain" },
		"scram256": func(c *config.Config) { c.SASLMechanism, c.SASLUsername = config.SASLScram256, "scram256" },
		"bearer": func(c *config.Config) {
			c.SASLMechanism, c.SASLUsername, c.SASLPasswordFile, c.SASLTokenFile = config.SASLOAuth, "", "",
				rig.File(t, "token", bearer)
		},
		"CN=mutual": func(c *config.Config) {
			c.Brokers = l.Listener(rig.ListenerMutual)
			c.SASLMechanism, c.SASLUsername, c.SASLPasswordFile = config.SASLNone, "", ""
			c.TLSCert, c.TLSKey = l.security.Certificate(t, "mutual", time.Now().Add(time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests, target, _ := l.topics(t)
			cfg := l.config(t, requests)
			login(cfg)
			cfg.LogLevel = -4 // debug
			rules := printed(t, cfg, commands.ACLOptions{})
			if rules[0].principal != "User:"+name {
				t.Errorf("acls takes the service for %s", rules[0].principal)
			}
			l.grant(t, rules...)
			in, log := rig.ServeLogged(t, cfg, node.Options{AccessInterval: look})
			in.Ready(partitions, limit)
			out := kafkatest.Collect(t, l.Cluster, target)
			rig.Send(t, l.Client(t), rig.Timer(requests, target, "a", time.Now().Add(200*time.Millisecond)))
			out.WaitFor(1, limit)
			in.Settled()
			if err := in.Stop(); err != nil {
				t.Error(err)
			}
			rig.ExactlyIDs(t, out.Records(), []string{"a"})
			if len(log.Lines("level=DEBUG")) == 0 {
				t.Error("nothing is logged at debug level")
			}
			for _, secret := range []string{password, bearer} {
				if found := log.Lines(secret); len(found) > 0 {
					t.Errorf("the log tells a secret: %s", found[0])
				}
			}
		})
	}
	expired := l.config(t, "unused")
	expired.SASLMechanism, expired.SASLUsername, expired.SASLPasswordFile = config.SASLOAuth, "", ""
	expired.SASLTokenFile = rig.File(t, "token", token("bearer", time.Now().Add(-time.Minute)))
	if _, err := commands.Send(
		t.Context(), expired, commands.Request{Topic: "unused", ID: "a", Action: commands.Cancel}); err == nil ||
		!strings.Contains(err.Error(), "the brokers refuse the token in "+expired.SASLTokenFile) {
		t.Errorf("an expired token: %v", err)
	}
}

// withoutOffsets takes the one line out of a log that says, once, that the offsets' own topic may not be looked at: an
// acquisition that waits for a killed owner's transaction would like to.
func withoutOffsets(log string) string {
	var kept strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "missing permission to read __consumer_offsets") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

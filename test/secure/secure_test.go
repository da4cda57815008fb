package secure

import (
	"fmt"
	"io"
	"net/http"
	"slices"
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
	w := newSetup(t)
	t.Run("what acls prints is enough for firing, restart and takeover after a kill", w.enough)
	t.Run("each right taken away has its sentence", w.eachRight)
	t.Run("with no right at all every sentence comes at once", w.nothing)
	t.Run("wrong password", w.wrongPassword)
	t.Run("wrong port", w.wrongPort)
	t.Run("expired certificates", w.expired)
	t.Run("every mechanism", w.mechanisms)
}

// enough runs two processes as a user that has what acls prints and nothing
// else; producers, consumers and who looks after dead letters likewise.
func (s *setup) enough(t *testing.T) {
	t.Parallel()
	requests, target, mail := s.topics(t)
	cfg := s.config(t, requests)
	s.grant(t, printed(t, cfg, commands.ACLOptions{
		Producers: []string{"User:shop"}, Consumers: []string{"User:billing"},
		DeadLetterReaders: []string{"User:operator"}, ConsumerGroup: "billing-" + requests,
	})...)
	collect := func(user, group string, topics ...string) *kafkatest.Collector {
		return kafkatest.CollectAs(t, s.Cluster, append(s.client(t, cfg, user), kgo.ConsumerGroup(group)), topics...)
	}
	serve := func(dir string) *rig.Process {
		return rig.Start(t, "serve", "--brokers", cfg.Brokers[0], "--requests", requests, "--targets",
			strings.Join(cfg.Targets, ","),
			"--group", cfg.Group, "--data-dir", dir, "--session-timeout", "6s",
			"--tls", "--tls-ca", cfg.TLSCA, "--sasl-mechanism", "SCRAM-SHA-512", "--sasl-username", "waterclock",
			"--sasl-password-file", s.secret)
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	a := serve(dirs[0])
	a.Ready(partitions, patience)
	b := serve(dirs[1])
	a.Ready(partitions/2, patience)
	b.Ready(partitions/2, patience)
	out := collect("billing", "billing-"+requests, target, mail)
	dead := collect("operator", "billing-"+requests+"-dead-letters", deadLetters(requests))

	// A step is nearly always under way, at the kill too.
	producer := s.Client(t, s.client(t, cfg, "shop")...)
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
	out.WaitFor(500, patience)
	a.Kill()
	b.Ready(partitions, patience)
	out.WaitFor(len(ids), patience)
	burst("stopped", 300*time.Millisecond, 2*time.Second, 1000)
	a = serve(dirs[0])
	a.Ready(partitions/2, patience)
	b.Term()
	if code := b.Exit(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	a.Ready(partitions, patience)
	// Own topics, Kafka's and what no glob allows are refused, whatever rights
	// there are; a topic that a glob allows and no rule does is refused by Kafka.
	refused := map[string]string{"__consumer_offsets": "target-not-allowed", deadLetters(
		requests): "target-not-allowed", requests: "target-not-allowed", requests + "-elsewhere": "target-not-allowed"}
	for to := range refused {
		rig.Send(t, producer, rig.Timer(requests, to, "to-"+to, time.Now()))
	}
	out.WaitFor(len(ids), patience)
	for _, l := range dead.WaitFor(len(refused), patience) {
		to := strings.TrimPrefix(string(l.Key), "to-")
		if got := l.Header("waterclock-reason"); got != refused[to] || !strings.HasPrefix(refused[to], "target-") {
			t.Errorf("dead letter of %s: %s, want %q", l.Key, got, refused[to])
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
	t.Logf("%d timers fired once; ended of former owners: %v", len(ids), a.Metric(
		"waterclock_hanging_transactions_ended_total"))
}

// eachRight takes away one right after another of a running service. Timers that
// fall due meanwhile fire afterwards, but for those whose target may not be
// written to: they are dead letters.
func (s *setup) eachRight(t *testing.T) {
	t.Parallel()
	requests, target, mail := s.topics(t)
	cfg := s.config(t, requests)
	cfg.API = "127.0.0.1:0"
	rules := printed(t, cfg, commands.ACLOptions{Producers: []string{"User:shop"}, Consumers: []string{"User:billing"},
		DeadLetterReaders: []string{"User:operator"}, ConsumerGroup: "each"})
	s.grant(t, rules...)
	api := make(chan string, 1)
	in, log := rig.ServeLogged(t, cfg, node.Options{AccessInterval: look, StartedAPI: func(url string) { api <- url }})
	in.Ready(partitions, patience)
	reviewed := <-api + "/v1/topics/" + requests + "/dead-letters/reviewed"
	out, dead := kafkatest.Collect(t, s.Cluster, target, mail), kafkatest.Collect(t, s.Cluster, deadLetters(requests))
	producer := s.Client(t)
	var ids []string
	refused, taken := 0, 0
	for n, r := range rules {
		if r.principal != "User:waterclock" || r.operation == "Create" {
			continue
		}
		taken++
		begin := time.Now()
		s.take(t, r)
		toTarget := r.name == target || r.prefixed && r.kind == "--topic"
		sentence := []string{"User:waterclock lacks the right " + r.operation, r.name,
			"--allow-principal User:waterclock --operation " + r.operation}
		switch {
		case r.name == topics.Reviewed(cfg.Group): // timers fire without it
			await.Until(t, patience, "it says what is missing for what is reviewed", func() bool {
				return slices.ContainsFunc(log.Lines(sentence[0]), func(l string) bool {
					return strings.Contains(l, " on group "+r.name) && strings.Contains(l, sentence[2])
				})
			})
			if status, body := in.Readyz(); status != http.StatusOK {
				t.Errorf("without %s: not ready, although timers fire: %s", r, body)
			}
			if status, body := fetch(t, reviewed); status != http.StatusServiceUnavailable ||
				!strings.Contains(body, r.name) {
				t.Errorf("without %s: %d %s", r, status, body)
			}
		case toTarget && r.prefixed: // nothing can ask for it: dead letters tell
		case toTarget:
			await.Until(t, patience, "it says what is missing for the target", func() bool {
				return slices.ContainsFunc(log.Lines(sentence[0]), func(l string) bool {
					return strings.Contains(l, " on topic "+target) && strings.Contains(l, sentence[2])
				})
			})
			if status, body := in.Readyz(); status != http.StatusOK {
				t.Errorf("without %s: not ready, although other targets can be written to: %s", r, body)
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
			// a target's refusal, of just before, is remembered for up to three seconds
			due = due.Add(3500 * time.Millisecond)
		}
		rig.Send(t, producer, rig.Timer(requests, to, id, due))
		if toTarget && r.operation == "Write" {
			refused++
			letters := dead.WaitFor(refused, patience)
			l := letters[len(letters)-1]
			if reason, detail := l.Header("waterclock-reason"),
				l.Header("waterclock-detail"); reason != "target-not-authorized" || string(l.Key) != id ||
				!strings.Contains(detail, to) || !strings.Contains(detail, "kafka-acls.sh") {
				t.Errorf("without %s: dead letter of %s: %s: %s", r, l.Key, reason, detail)
			}
		} else {
			ids = append(ids, id)
		}
		s.grant(t, r)
		in.Ready(partitions, patience)
		await.Until(t, patience, "no problem is left",
			func() bool { return in.Metric("waterclock_access_problems") == 0 })
		out.WaitFor(len(ids), patience)
		t.Logf("without %s: said after %v, works again after %v", r, said.Round(time.Millisecond),
			time.Since(begin).Round(time.Millisecond))
	}
	if taken < 11 || refused != 2 {
		t.Errorf("%d rights taken away, %d of targets", taken, refused)
	}
	if status, body := fetch(t, reviewed); status != http.StatusOK {
		t.Errorf("with all rights: %d %s", status, body)
	}
	out.Quiet(500 * time.Millisecond)
	rig.ExactlyIDs(t, out.Records(), ids)
	if n := len(dead.Records()); n != refused {
		t.Errorf("%d dead letters, want %d", n, refused)
	}
}

// fetch reads from an API.
func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// nothing starts a service that nobody has given a right, which waits for them.
func (s *setup) nothing(t *testing.T) {
	t.Parallel()
	requests, target, _ := s.topics(t)
	cfg := s.config(t, requests)
	in, log := rig.ServeLogged(t, cfg, node.Options{AccessInterval: look})
	rules := printed(t, cfg, commands.ACLOptions{})
	for _, r := range rules {
		if r.principal == "User:waterclock" && r.name != target && !(r.prefixed && r.kind == "--topic") {
			says(t, in, log, r.operation, r.name)
		}
	}
	if err := commands.Topics(t.Context(), cfg, true, new(strings.Builder)); err == nil ||
		strings.Count(err.Error(), "User:waterclock lacks the right ") != 3 {
		t.Errorf("topics: %v", err)
	}
	timer := commands.Request{Topic: requests, ID: "a",
		Options: []waterclock.Option{waterclock.After(0), waterclock.To(target)}}
	if _, err := commands.Send(t.Context(), cfg, timer); err == nil ||
		!strings.Contains(err.Error(), "User:waterclock lacks the right Write on topic "+requests+
			"; grant it with: kafka-acls.sh") {
		t.Errorf("schedule: %v", err)
	}
	timer.Wait = patience
	if sent, err := commands.Send(t.Context(), cfg, timer); err == nil || sent.Topic != "" ||
		!strings.Contains(err.Error(), "--wait: User:waterclock lacks the right Read on topic "+deadLetters(requests)) {
		t.Errorf("schedule --wait: %+v, %v", sent, err)
	}
	// Without Create alone there is nothing to create the topics with.
	for _, r := range rules {
		if r.operation != "Create" {
			s.grant(t, r)
		}
	}
	await.Until(t, patience, "two rights are missing",
		func() bool { return in.Metric("waterclock_access_problems") == 2 })
	says(t, in, log, "lacks the right Create on topic "+deadLetters(requests))
	for _, r := range rules {
		if r.operation == "Create" {
			s.grant(t, r)
		}
	}
	in.Ready(partitions, patience)
}

// wrongPassword: the sentence names user and file, the instance goes on trying,
// and the right password in the file is all it needs.
func (s *setup) wrongPassword(t *testing.T) {
	t.Parallel()
	requests, _, _ := s.topics(t)
	cfg := s.config(t, requests)
	s.grant(t, printed(t, cfg, commands.ACLOptions{})...)
	cfg.SASLPasswordFile = file(t, "password", "wrong-horse")
	in, log := rig.ServeLogged(t, cfg, node.Options{AccessInterval: look})
	says(t, in, log, "the brokers refuse user waterclock (SCRAM-SHA-512)", cfg.SASLPasswordFile)
	if _, err := commands.Send(
		t.Context(), cfg, commands.Request{Topic: requests, ID: "a", Action: commands.Cancel}); err == nil ||
		!strings.Contains(err.Error(), "the brokers refuse user waterclock") {
		t.Errorf("cancel: %v", err)
	}
	put(t, cfg.SASLPasswordFile, password)
	in.Ready(partitions, patience)
	if found := append(log.Lines("wrong-horse"), log.Lines(password)...); len(found) > 0 {
		t.Errorf("a password is in the log: %s", found)
	}
}

// wrongPort: settings for one kind of port and the brokers' port of another. Each
// sentence names the setting to change.
func (s *setup) wrongPort(t *testing.T) {
	requests, _, _ := s.topics(t)
	for _, c := range []struct {
		name      string
		brokers   []string
		tls, sasl bool
		want      string
	}{
		{"a login where none is wanted", s.Seeds(), false, true, "leave out --sasl-mechanism"},
		{"TLS where it is not spoken", s.Seeds(), true, false, "leave out --tls"},
		{"no TLS where it is spoken", s.Listener(rig.ListenerSASL), false, true, "add --tls"},
	} {
		cfg := s.config(t, requests)
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
func (s *setup) expired(t *testing.T) {
	t.Parallel()
	requests, _, _ := s.topics(t)
	cfg := s.config(t, requests)
	cfg.Brokers = s.Listener(rig.ListenerExpired)
	cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPasswordFile = config.SASLNone, "", ""
	in, log := rig.ServeLogged(t, cfg, node.Options{AccessInterval: look})
	says(t, in, log, "the certificate of a broker at "+cfg.Brokers[0], "have it renewed")
	if err := in.Stop(); err != nil {
		t.Error(err)
	}

	own := *cfg
	own.Brokers, own.DataDir = s.Listener(rig.ListenerMutual), t.TempDir()
	own.TLSCert, own.TLSKey = s.security.Certificate(t, "renewed", time.Now().Add(-time.Minute))
	s.grant(t, printed(t, &own, commands.ACLOptions{Service: []string{"User:CN=renewed"}})...)
	in, log = rig.ServeLogged(t, &own, node.Options{AccessInterval: look})
	says(t, in, log, "the client certificate "+own.TLSCert, "replace it")
	s.security.Certificate(t, "renewed", time.Now().Add(time.Hour))
	in.Ready(partitions, patience)

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

// mechanisms: an instance for each way to log in fires a timer, and tells no
// secret in a log of everything.
func (s *setup) mechanisms(t *testing.T) {
	t.Parallel()
	bearer := token("bearer", time.Now().Add(time.Hour))
	for name, login := range map[string]func(*config.Config){
		"plain":    func(c *config.Config) { c.SASLMechanism, c.SASLUsername = config.SASLPlain, "plain" },
		"scram256": func(c *config.Config) { c.SASLMechanism, c.SASLUsername = config.SASLScram256, "scram256" },
		"bearer": func(c *config.Config) {
			c.SASLMechanism, c.SASLUsername, c.SASLPasswordFile, c.SASLTokenFile = config.SASLOAuth, "", "",
				file(t, "token", bearer)
		},
		"CN=mutual": func(c *config.Config) {
			c.Brokers = s.Listener(rig.ListenerMutual)
			c.SASLMechanism, c.SASLUsername, c.SASLPasswordFile = config.SASLNone, "", ""
			c.TLSCert, c.TLSKey = s.security.Certificate(t, "mutual", time.Now().Add(time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests, target, _ := s.topics(t)
			cfg := s.config(t, requests)
			login(cfg)
			cfg.LogLevel = -4 // debug
			rules := printed(t, cfg, commands.ACLOptions{})
			if rules[0].principal != "User:"+name {
				t.Errorf("acls takes the service for %s", rules[0].principal)
			}
			s.grant(t, rules...)
			in, log := rig.ServeLogged(t, cfg, node.Options{AccessInterval: look})
			in.Ready(partitions, patience)
			out := kafkatest.Collect(t, s.Cluster, target)
			rig.Send(t, s.Client(t), rig.Timer(requests, target, "a", time.Now().Add(200*time.Millisecond)))
			out.WaitFor(1, patience)
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
	expired := s.config(t, "unused")
	expired.SASLMechanism, expired.SASLUsername, expired.SASLPasswordFile = config.SASLOAuth, "", ""
	expired.SASLTokenFile = file(t, "token", token("bearer", time.Now().Add(-time.Minute)))
	if _, err := commands.Send(
		t.Context(), expired, commands.Request{Topic: "unused", ID: "a", Action: commands.Cancel}); err == nil ||
		!strings.Contains(err.Error(), "the brokers refuse the token in "+expired.SASLTokenFile) {
		t.Errorf("an expired token: %v", err)
	}
}

// withoutOffsets takes the one line out of a log that says, once, that the offsets'
// own topic may not be looked at: an acquisition that waits for a killed owner's transaction
// would like to.
func withoutOffsets(log string) string {
	var kept strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "cannot be seen without the right to read __consumer_offsets") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

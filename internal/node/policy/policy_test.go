package policy

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/node/config"
)

// tenants returns settings with two request topics: timers, which has a tenant, and slow, which has none.
func tenants() *config.Config {
	cfg := config.Default()
	cfg.Brokers, cfg.Requests, cfg.Targets = []string{"127.0.0.1:9092"}, []string{"timers", "slow"}, []string{"*"}
	p := cfg.PolicyOf("timers")
	p.Targets, p.DefaultTarget, p.DeadLetters = []string{"orders", "mail.*"}, "orders", "failed"
	p.LimitValueBytes, p.LimitRate, p.OverLimit, p.Dialect = 10, 30, config.OverDelay, config.DialectRabbitMQ
	cfg.Tenants = map[string]config.Policy{"timers": p}
	return &cfg
}

// setOf returns a request topic of four partitions.
func setOf(name string) topics.Set {
	return topics.Set{Request: topics.Topic{Name: name, Partitions: 4, MaxMessageBytes: 1 << 20}}
}

// TestRulesOfTenants: each request topic is judged by its own policy.
func TestRulesOfTenants(t *testing.T) {
	cfg := tenants()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, topic string
		value       string
		headers     []string
		target      string
		reason      waterclock.Reason
	}{
		{"the default target and the dialect", "timers", "v", []string{"x-delay", "5"}, "orders", ""},
		{"another tenant's dialect", "slow", "v", []string{"x-delay", "5"}, "", waterclock.ReasonNoDueTime},
		{"no default target", "slow", "v", []string{"timer-after", "1s"}, "", waterclock.ReasonNoTarget},
		{"a target of its own", "timers", "v", []string{"timer-after", "1s", "timer-target-topic", "mail.x"},
			"mail.x", ""},
		{"a target that only others may have", "timers", "v",
			[]string{"timer-after", "1s", "timer-target-topic", "bills"}, "", waterclock.ReasonTargetNotAllowed},
		{"a target of the others", "slow", "v", []string{"timer-after", "1s", "timer-target-topic", "bills"},
			"bills", ""},
		{"a value that is too large for one", "timers", "more than ten", []string{"x-delay", "5"}, "",
			waterclock.ReasonValueTooLarge},
		{"and not for the other", "slow", "more than ten", []string{"timer-after", "1s", "timer-target-topic", "bills"},
			"bills", ""},
		{"dead letters", "slow", "v", []string{"timer-after", "1s", "timer-target-topic", "failed"}, "",
			waterclock.ReasonTargetNotAllowed},
		{"a request topic", "slow", "v", []string{"timer-after", "1s", "timer-target-topic", "timers"}, "",
			waterclock.ReasonTargetNotAllowed},
	} {
		rec := &kgo.Record{Topic: c.topic, Key: []byte("id"), Value: []byte(c.value),
			Timestamp: time.UnixMilli(1_700_000_000_000)}
		rec.Partition = intake.Murmur2Partition(rec.Key, 4)
		for i := 0; i < len(c.headers); i += 2 {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: c.headers[i], Value: []byte(c.headers[i+1])})
		}
		req, _, refusal := Rules(cfg, setOf(c.topic)).Validate(rec, 1_700_000_000_000)
		switch {
		case c.reason != "" && (refusal == nil || refusal.Reason != string(c.reason)):
			t.Errorf("%s: %+v, %+v, want %s", c.name, req.Schedule, refusal, c.reason)
		case c.reason == "" && (refusal != nil || req.Schedule.Target.Topic != c.target):
			t.Errorf("%s: %+v, %+v, want a timer for %s", c.name, req.Schedule, refusal, c.target)
		}
	}
	if got := Quota(cfg, setOf("timers")); got != (intake.Quota{Rate: 7.5, Delay: true}) {
		t.Errorf("quota %+v", got)
	}
	p := cfg.Tenants["timers"]
	p.LimitPending = 9 // which is not valid with a delay, and no matter here
	cfg.Tenants["timers"] = p
	if got := Quota(cfg, setOf("timers")); got.Pending != 3 ||
		Rules(cfg, setOf("timers")).Quota != got {
		t.Errorf("quota of pending timers %+v", got)
	}
	p.LimitPending = math.MaxInt
	cfg.Tenants["timers"] = p
	if got := Quota(cfg, setOf("timers")).Pending; got != math.MaxInt64/4+1 {
		t.Errorf("a share of %d of as many pending timers as can be said", got)
	}
	if got := Quota(cfg, setOf("slow")); got.Rate != 0 {
		t.Errorf("quota of the other %+v", got)
	}
}

// TestDialectsAreThoseOfTheConfiguration: every dialect that can be configured is understood, and the other way round.
func TestDialectsAreThoseOfTheConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "wc.yaml")
	if err := os.WriteFile(file, []byte("tenants: {timers: {dialect: nonsense}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.NewLoader(config.Default()).Load([]string{config.EnvOf("config") + "=" + file})
	_, list, _ := strings.Cut(fmt.Sprint(err), "needs one of ")
	list, _, _ = strings.Cut(list, " (")
	var want []string
	for _, d := range intake.Dialects() {
		want = append(want, string(d))
	}
	if got := strings.Split(list, ", "); !slices.Equal(got, want) {
		t.Errorf("the configuration has %q, intake %q", got, want)
	}
}

// TestTopicsOfTenants: dead letters go to the tenant's topic, for every caller.
func TestTopicsOfTenants(t *testing.T) {
	cfg := tenants()
	a := Access(cfg)
	if a.DeadLetters["timers"] != "failed" || a.DeadLetters["slow"] != "slow.waterclock.dead-letters" ||
		!slices.Equal(a.Targets, []string{"orders", "mail.*", "*"}) {
		t.Errorf("%+v", a)
	}
	for _, grants := range [][]topics.Grant{a.Service(), a.Repair(), a.DeadLetterReaders("g")} {
		found := false
		for _, g := range grants {
			found = found || g.Name == "failed"
			if g.Name == "timers.waterclock.dead-letters" {
				t.Errorf("a right for %s", g.Name)
			}
		}
		if !found {
			t.Errorf("no right for the dead letters in %+v", grants)
		}
	}
	if o := TopicOptions(cfg, "timers", 0, true); o.DeadLetters != "failed" || !o.Create {
		t.Errorf("%+v", o)
	}
}

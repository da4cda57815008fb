package node

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/policy"
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

// TestTakeOver: settings that can change hold from the next request on, for requests and for permissions; others are
// named and stay; and a reload without a change changes nothing.
func TestTakeOver(t *testing.T) {
	cfg := tenants()
	reader, err := intake.NewReader(1<<20, 1<<20, kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); _ = reader.Run(ctx) }() // which closes it
	var log bytes.Buffer
	settings, rejoined := &settingsWatch{}, 0
	settings.set(cfg)
	r := &reloader{
		running: cfg, log: slog.New(slog.NewTextHandler(&log, nil)), reader: reader,
		access:   &access{cfg: cfg, targets: cfg},
		settings: settings, rejoin: func() { rejoined++ },
		topics: newServedTopics(
			map[string]*served{"timers": {set: setOf("timers"),
				rules: policy.Rules(cfg, setOf("timers"))}}),
	}
	judge := r.topics.of("timers").rules.Validate
	allowed := func(target string) bool {
		rec := &kgo.Record{Topic: "timers", Key: []byte("id"), Timestamp: time.UnixMilli(1_700_000_000_000),
			Headers: []kgo.RecordHeader{
				{Key: "timer-after", Value: []byte("1s")}, {Key: "timer-target-topic", Value: []byte(target)},
			}}
		_, _, refusal := judge(rec, 1_700_000_000_000)
		return refusal == nil
	}
	if !allowed("orders") || allowed("bills") {
		t.Fatal("the first rules do not hold")
	}
	next := *cfg
	p := cfg.Tenants["timers"]
	p.Targets, p.DefaultTarget, p.DeadLetters = []string{"bills"}, "bills", "elsewhere"
	next.Tenants, next.Group = map[string]config.Policy{"timers": p}, "another"
	r.takeOver(&next)
	if allowed("orders") || !allowed("bills") {
		t.Error("the new rules do not hold")
	}
	if got := r.access.wanted(); !slices.Equal(got.Targets, []string{"bills", "*"}) || got.Group != cfg.Group ||
		got.DeadLetters["timers"] != "failed" {
		t.Errorf("rights are looked at for %+v", got)
	}
	for _, want := range []string{"need a restart", "group", "tenants.timers.dead-letters",
		"tenants.timers.targets"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
	log.Reset()
	running := r.running
	if r.takeOver(&next); r.running != running || !strings.Contains(log.String(), "nothing changed") {
		t.Errorf("read again: %s", log.String())
	}
	// The group learns the settings in effect, not those that wait for a restart.
	if got := r.running.Digest(); rejoined != 1 || len(got.Differs(settings.digest())) > 0 {
		t.Errorf("joined again %d times, with other settings than those that hold: %v", rejoined,
			got.Differs(settings.digest()))
	}
}

// Targets change for fixed-delay topics too.
func TestTakeOverOfFixedDelayTopics(t *testing.T) {
	d := config.DelayTopic{Topic: "retry", Delay: time.Minute, Target: "orders"}
	settings := config.Default()
	cfg := &settings
	cfg.Delay, cfg.Targets = []config.DelayTopic{d}, []string{"orders"}
	set := setOf("retry")
	set.Delay = d.Delay
	r := &reloader{
		running: cfg, log: slog.New(slog.DiscardHandler), access: &access{cfg: cfg, targets: cfg},
		settings: &settingsWatch{},
		topics:   newServedTopics(map[string]*served{"retry": {set: set, rules: policy.DelayRules(cfg, d, set)}}),
	}
	refused := func() bool {
		_, refusal := r.topics.of("retry").rules.ValidateDelayed(&kgo.Record{Topic: "retry"})
		return refusal != nil
	}
	if refused() {
		t.Fatal("the first rules do not hold")
	}
	next := *cfg
	next.Targets = []string{"mail"}
	r.takeOver(&next)
	if !refused() {
		t.Error("the new rules do not hold")
	}
}

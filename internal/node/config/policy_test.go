package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

const day = 24 * time.Hour

// served are settings that serve accepts, without tenants.
const served = `
brokers: 127.0.0.1:9092
requests: [timers, slow]
targets: [orders, 'timers:mail.*']
default-target: [timers:mail.out]
limit-headers: 64
`

func TestTenants(t *testing.T) {
	cfg, err := load(t, nil, nil, served+`
tenants:
  timers:
    targets: [audit, bills.*]
    default-target: audit
    limit-horizon: 30d
    limit-header-bytes: 16KiB
    limit-value-bytes: 100KiB
    limit-rate: 500
    over-limit: delay
    dead-letters: timers.failed
    dialect: etf1
    events: true
    events-cleanup: compact
`)
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	want := Policy{
		Targets: []string{"audit", "bills.*"}, DefaultTarget: "audit", LimitHorizon: 30 * day, LimitHeaders: 64,
		LimitHeaderBytes: 16 * KiB,
		LimitValueBytes:  100 * KiB, LimitRate: 500, OverLimit: OverDelay, DeadLetters: "timers.failed",
		Dialect: DialectETF1, Events: true, EventsCleanup: CleanupCompact,
	}
	if got := cfg.PolicyOf("timers"); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	want = Policy{Targets: []string{"orders"}, LimitHorizon: MaxHorizon, LimitHeaders: 64,
		LimitHeaderBytes: MaxHeaderBytes, OverLimit: OverDeadLetter, EventsCleanup: CleanupDelete}
	if got := cfg.PolicyOf("slow"); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("without a tenant: got  %+v\nwant %+v", got, want)
	}
	if got := cfg.TargetNames(); !slices.Equal(got, []string{"audit", "orders"}) {
		t.Errorf("targets named in full: %q", got)
	}
}

// TestTenantsNeedNothingForAll: if each request topic has targets of its own, there need be none for all. A setting
// that a tenant leaves out is the one for all, in whatever layer that is.
func TestTenantsNeedNothingForAll(t *testing.T) {
	cfg, err := load(t, []string{"--limit-headers=7"}, []string{"WATERCLOCK_LIMIT_HORIZON=5d"}, `
brokers: a:1
requests: [timers]
tenants: {timers: {targets: '*', limit-headers: 9}}
`)
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if p := cfg.PolicyOf("timers"); p.LimitHeaders != 9 || p.LimitHorizon != 5*day ||
		!slices.Equal(p.Targets, []string{"*"}) {
		t.Errorf("got %+v", p)
	}
}

func TestTenantProblems(t *testing.T) {
	for _, c := range []struct{ name, tenants, want string }{
		{"no mapping", "tenants: timers",
			"tenants needs to be a mapping of request topics, each with settings of its own ("},
		{"a list", "tenants: [timers]", "tenants needs to be a mapping of request topics"},
		{"no value", "tenants:", "tenants needs a value"},
		{"an empty tenant", "tenants:\n  timers:", "tenants.timers needs to be a mapping of settings ("},
		{"unknown key", "tenants:\n  timers:\n    limit-rat: 5",
			"tenants.timers.limit-rat needs to be a known key of a tenant; did you mean limit-rate? (wc.yaml:9)"},
		{"the end of a key", "tenants:\n  timers:\n    max-late: 5s",
			"tenants.timers.max-late needs to be a known key of a tenant; did you mean default-max-late? (wc.yaml:9)"},
		{"a key of the instance", "tenants:\n  timers:\n    group: x",
			"tenants.timers.group needs to be a known key of a tenant"},
		{"no number", "tenants:\n  timers:\n    limit-rate: 5/s",
			`tenants.timers.limit-rate is "5/s", needs a whole number (wc.yaml:9)`},
		{"null", "tenants:\n  timers:\n    limit-rate:", "tenants.timers.limit-rate needs a value"},
		{"a key twice", "tenants:\n  timers: {limit-rate: 1, limit-rate: 2}", "to be given once"},
		{"a tenant twice", "tenants:\n  timers: {limit-rate: 1}\n  timers: {limit-rate: 2}", "to be given once"},
		{"nobody's", "tenants:\n  others: {targets: a}", `tenants is "others", needs one of the request topics`},
		{"a fixed-delay topic", "delay: 'retry:5m:orders'\ntenants:\n  retry: {events: true}",
			`tenants is "retry", needs one of the request topics; a fixed-delay topic has no policy, and no events`},
		{"no targets", "tenants:\n  timers: {targets: []}", "tenants.timers.targets needs at least one glob"},
		{"a bad glob", "tenants:\n  timers: {targets: 'a['}", `tenants.timers.targets is "a[", needs globs`},
		{"a request topic", "tenants:\n  timers: {targets: slow}",
			`tenants.timers.targets is "slow", needs topics that neither`},
		{"a default that is not allowed", "tenants:\n  timers: {targets: a, default-target: b}",
			`tenants.timers.default-target is "b", needs to be one of the targets of timers`},
		{"inherited default that is not allowed any more", "tenants:\n  timers: {targets: a}",
			`tenants.timers.default-target is "mail.out", needs to be one of the targets of timers`},
		{"a default that is no name", "tenants:\n  slow: {targets: '*', default-target: 'a*'}",
			`tenants.slow.default-target is "a*", needs the name of a topic`},
		{"horizon", "tenants:\n  slow: {limit-horizon: 101y}",
			`tenants.slow.limit-horizon is "101y", needs a duration`},
		{"horizon too far", "tenants:\n  slow: {limit-horizon: 40000d}",
			`tenants.slow.limit-horizon is "40000d", needs 1s to 36525d`},
		{"headers", "tenants:\n  slow: {limit-headers: 0}", `tenants.slow.limit-headers is "0", needs 1 to 128`},
		{"header bytes", "tenants:\n  slow: {limit-header-bytes: 1MiB}",
			`tenants.slow.limit-header-bytes is "1MiB", needs 1 to 64KiB`},
		{"value bytes", "tenants:\n  slow: {limit-value-bytes: 2GiB}",
			`tenants.slow.limit-value-bytes is "2GiB", needs 0 to 1GiB`},
		{"rate", "tenants:\n  slow: {limit-rate: -1}", `tenants.slow.limit-rate is "-1", needs 0 to 10000000`},
		{"over-limit", "tenants:\n  slow: {over-limit: drop}",
			`tenants.slow.over-limit is "drop", needs one of dead-letter, delay`},
		{"dialect", "tenants:\n  slow: {dialect: sqs}",
			`tenants.slow.dialect is "sqs", needs one of etf1, sky, sky-json, rabbitmq, nats, pulsar`},
		{"dead letters in a request topic", "tenants:\n  slow: {dead-letters: timers}",
			`tenants.slow.dead-letters is "timers", needs the name of a topic that neither`},
		{"dead letters of the service", "tenants:\n  slow: {dead-letters: x.waterclock.changelog}",
			`tenants.slow.dead-letters is "x.waterclock.changelog", needs the name`},
		{"shared dead letters", "tenants:\n  slow: {dead-letters: d}\n  timers: {targets: '*', dead-letters: d}",
			`tenants.timers.dead-letters is "d", needs a topic of its own: slow has this one`},
		{"dead letters as a target", "tenants:\n  slow: {dead-letters: orders}",
			`targets is "orders", needs topics that neither`},
		{"max late", "tenants:\n  slow: {default-max-late: 40000d}",
			`tenants.slow.default-max-late is "40000d", needs 0s to 36525d`},
		{"interval", "tenants:\n  slow: {limit-interval: 40000d}",
			`tenants.slow.limit-interval is "40000d", needs 0s to 36525d`},
		{"pending", "tenants:\n  slow: {limit-pending: -5}", `tenants.slow.limit-pending is "-5", needs 0 or more`},
		{"pending, delayed", "tenants:\n  slow: {limit-pending: 5, over-limit: delay}",
			`tenants.slow.over-limit is "delay", needs dead-letter if there is a limit-pending`},
		{"events", "tenants:\n  slow: {events: often}", `tenants.slow.events is "often", needs`},
		{"cleanup of events", "tenants:\n  slow: {events-cleanup: both}",
			`tenants.slow.events-cleanup is "both", needs one of delete, compact`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := load(t, nil, nil, served+c.tenants)
			if err == nil {
				err = cfg.Validate()
			}
			text := fmt.Sprint(err)
			text = regexp.MustCompile(`\(\S*wc\.yaml`).ReplaceAllString(text, "(wc.yaml")
			if err == nil || !strings.Contains(text, c.want) || !errors.Is(err, ErrInvalid) {
				t.Errorf("got  %v\nwant %s", text, c.want)
			}
		})
	}
}

// TestLoadAgain: a loader reads the file again each time, and remembers no earlier content.
func TestLoadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wc.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := NewLoader(Default())
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	l.AddFlags(fs, Client, Topics, Instance, Log)
	if err := fs.Parse([]string{"--config", path, "--limit-headers", "9", "--brokers", "a:1,b:2", "--log-level",
		"debug", "--limit-horizon", "1d12h"}); err != nil {
		t.Fatal(err)
	}
	write("group: g\nrequests: [a, b]\nlimit-headers: 5\ntenants: {a: {limit-rate: 3}}")
	first, err := l.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	write("requests: [c]\nfrobnicate: 1")
	if _, err := l.Load(nil); err == nil {
		t.Error("a wrong file is taken")
	}
	write("requests: [c]")
	second, err := l.Load([]string{"WATERCLOCK_TARGETS=x"})
	if err != nil {
		t.Fatal(err)
	}
	if first.Group != "g" || !slices.Equal(first.Requests, []string{"a", "b"}) || first.LimitHeaders != 9 ||
		first.Tenants["a"].LimitRate != 3 {
		t.Errorf("first %+v", first)
	}
	if second.Group != "waterclock" || !slices.Equal(second.Requests, []string{"c"}) || second.LimitHeaders != 9 ||
		second.Tenants != nil ||
		!slices.Equal(second.Targets, []string{"x"}) || !slices.Equal(second.Brokers, []string{"a:1", "b:2"}) ||
		second.LimitHorizon != 36*time.Hour {
		t.Errorf("second %+v", second)
	}
}

// TestYAML: the printed file loads to the same settings.
func TestYAML(t *testing.T) {
	for _, yaml := range []string{
		served, served + "instance-id: 007\nhttp: ''\non-stop: stay\ntenants:\n  slow: {targets: '*', " +
			"default-target: x, dialect: nats, over-limit: delay, limit-rate: 5}\n  timers: {targets: [a, 'b*'], " +
			"default-target: a}\n",
	} {
		before, err := load(t, nil, nil, yaml)
		if err != nil {
			t.Fatal(err)
		}
		text, err := before.YAML()
		if err != nil {
			t.Fatal(err)
		}
		after, err := load(t, nil, nil, string(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if got, want := fmt.Sprintf("%+v", *after), fmt.Sprintf("%+v", *before); got != want {
			t.Errorf("got  %s\nwant %s\n%s", got, want, text)
		}
	}
}

// TestTenantsAreLogged: the log begins with their settings too.
func TestTenantsAreLogged(t *testing.T) {
	cfg, err := load(t, nil, nil, served+"tenants: {slow: {limit-rate: 7, dialect: sky}}")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	slog.New(slog.NewTextHandler(&out, nil)).Info("starting", "settings", cfg)
	for _, want := range []string{"settings.tenants.slow.limit-rate=7", "settings.tenants.slow.dialect=sky",
		"settings.targets=orders,timers:mail.*"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
}

// TestExample: the example is valid as it is, sets only required settings, and has every other setting behind a #.
func TestExample(t *testing.T) {
	text := string(Example())
	cfg, err := load(t, nil, nil, text)
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	want := Default()
	want.Brokers, want.Requests, want.Targets = []string{"127.0.0.1:9092"}, []string{"timers"},
		[]string{"orders", "mail.*"}
	if fmt.Sprintf("%+v", *cfg) != fmt.Sprintf("%+v", want) {
		t.Errorf("got %+v", cfg)
	}
	all := regexp.MustCompile(`(?m)^#((?:  )*[a-z][a-z0-9-]*:)`).ReplaceAllString(text, "$1")
	cfg, err = load(t, nil, nil, all)
	if err != nil {
		t.Fatalf("with all settings: %v\n%s", err, all)
	}
	if err := cfg.Validate(); err != nil {
		t.Errorf("with all settings: %v", err)
	}
	want.Tenants = map[string]Policy{"timers": want.commonPolicy("timers")}
	if fmt.Sprintf("%+v", *cfg) != fmt.Sprintf("%+v", want) {
		t.Errorf("with all settings: got %+v\nwant %+v", cfg, want)
	}
	policy := want.commonPolicy("timers")
	for _, fs := range []*pflag.FlagSet{want.flags(), policy.flags()} {
		fs.VisitAll(func(f *pflag.Flag) {
			if !regexp.MustCompile(`(?m)^ *` + f.Name + `:`).MatchString(all) {
				t.Errorf("%s is missing", f.Name)
			}
		})
	}
}

// TestEventsOfAllTopics: one setting turns them on, a tenant may differ, and fixed-delay topics have none.
func TestEventsOfAllTopics(t *testing.T) {
	cfg, err := load(t, []string{"--events"}, nil, served+`
delay: retry:5m:orders
tenants:
  slow: {events: false}
`)
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]bool{"timers": true, "slow": false, "retry": false} {
		if p := cfg.PolicyOf(topic); p.Events != want {
			t.Errorf("%s: events %v, want %v", topic, p.Events, want)
		}
	}
	if !DefaultDev().Events || Default().Events {
		t.Error("events are on in dev, and off in serve")
	}
}

func TestChanges(t *testing.T) {
	before := valid()
	before.Tenants = map[string]Policy{"timers": before.commonPolicy("timers")}
	for _, c := range []struct {
		name       string
		change     func(c *Config, timers *Policy)
		now, later []string
	}{
		{"nothing", func(*Config, *Policy) {}, nil, nil},
		{"for all", func(c *Config, _ *Policy) { c.Targets = append(slices.Clone(c.Targets), "x"); c.LimitHeaders = 3 },
			[]string{"targets", "limit-headers"}, nil},
		{"events", func(c *Config, _ *Policy) { c.Events = true }, nil, []string{"events"}},
		{"the instance",
			func(c *Config, _ *Policy) { c.Group = "g"; c.Requests = []string{"timers"}; c.LimitHeaders = 3 },
			[]string{"limit-headers"}, []string{"requests", "group"}},
		{"a tenant", func(_ *Config, p *Policy) { p.LimitRate = 5; p.Dialect = DialectNATS; p.DeadLetters = "d" },
			[]string{"tenants.timers.limit-rate", "tenants.timers.dialect"}, []string{"tenants.timers.dead-letters"}},
		{"a tenant that is gone", func(c *Config, _ *Policy) { c.Tenants = nil }, nil, nil},
		{"a new tenant", func(c *Config, _ *Policy) {
			p := c.commonPolicy("slow")
			p.LimitValueBytes = 5
			c.Tenants["slow"] = p
		}, []string{"tenants.slow.limit-value-bytes"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := before
			timers := before.Tenants["timers"]
			after.Tenants = map[string]Policy{}
			c.change(&after, &timers)
			if after.Tenants != nil {
				after.Tenants["timers"] = timers
			}
			now, later := before.Changes(&after)
			if !slices.Equal(now, c.now) || !slices.Equal(later, c.later) {
				t.Errorf("now %q, later %q; want %q, %q", now, later, c.now, c.later)
			}
			running := before.Live(&after)
			if now, still := running.Changes(&after); len(now) > 0 || !slices.Equal(still, c.later) {
				t.Errorf("after it was taken over: now %q, later %q", now, still)
			}
		})
	}
}

// TestEverySettingOfATenantIsDecided: each either takes effect at once or is known to wait.
func TestEverySettingOfATenantIsDecided(t *testing.T) {
	waits := []string{"events", "events-cleanup", "dead-letters"}
	var p Policy
	p.flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(liveOfTenant(), f.Name) == slices.Contains(waits, f.Name) {
			t.Errorf("%s: live %v", f.Name, slices.Contains(liveOfTenant(), f.Name))
		}
	})
}

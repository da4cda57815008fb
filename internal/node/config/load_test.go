package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load runs all layers: arguments, environment, and a YAML file if not empty.
func load(t *testing.T, args, environ []string, yaml string) (*Config, error) {
	t.Helper()
	l := NewLoader(Default())
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	l.AddFlags(fs, Client, Topics, Instance, Log)
	if yaml != "" {
		path := filepath.Join(t.TempDir(), "wc.yaml")
		if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatalf("parse flags: %v", err)
	}
	return l.Load(environ)
}

func TestLayers(t *testing.T) {
	const yaml = "\ufeff" + `# a comment, behind a byte order mark
brokers: [a:1, "b:2"]
requests: timers
targets:
  - orders
  - timers:mail.*
instance-id: 007
session-timeout: 20s
create-topics: false
replication-factor: -1
memory: 300MiB
log-level: debug
on-stop: stay
lanes: 3
`
	for _, c := range []struct {
		name string
		args []string
		env  []string
		want func(*Config) bool
	}{
		{"file over default", nil, nil, func(c *Config) bool {
			return slices.Equal(c.Brokers, []string{"a:1", "b:2"}) && slices.Equal(c.Requests, []string{"timers"}) &&
				c.InstanceID == "007" && c.SessionTimeout == 20*time.Second && !c.CreateTopics &&
				c.Memory == 300*MiB && c.LogLevel == slog.LevelDebug && c.OnStop == Stay &&
				c.ReplicationFactor == -1 && slices.Equal(c.Targets, []string{"orders", "timers:mail.*"})
		}},
		{"default where nothing is said", nil, nil, func(c *Config) bool { return c.Group == "waterclock" }},
		{"environment over file", nil,
			[]string{"WATERCLOCK_BROKERS=x:1, y:2", "WATERCLOCK_SESSION_TIMEOUT=30s", "OTHER=1"},
			func(c *Config) bool {
				return slices.Equal(c.Brokers, []string{"x:1", "y:2"}) && c.SessionTimeout == 30*time.Second
			}},
		{"flag over environment", []string{"--session-timeout=40s", "--brokers=z:1"},
			[]string{"WATERCLOCK_SESSION_TIMEOUT=30s", "WATERCLOCK_BROKERS=x:1"},
			func(c *Config) bool {
				return c.SessionTimeout == 40*time.Second && slices.Equal(c.Brokers, []string{"z:1"})
			}},
		{"flag set to the default over environment", []string{"--group=waterclock"}, []string{"WATERCLOCK_GROUP=other"},
			func(c *Config) bool { return c.Group == "waterclock" }},
		{"the API that commands call", nil, []string{"WATERCLOCK_URL=http://10.0.0.1:8681"},
			func(*Config) bool { return true }},
		{"empty variable", nil, []string{"WATERCLOCK_HTTP=", "WATERCLOCK_REQUESTS="},
			func(c *Config) bool { return c.HTTP == "" && len(c.Requests) == 0 }},
		{"service links of Kubernetes", nil, []string{
			"WATERCLOCK_SERVICE_HOST=10.0.0.1", "WATERCLOCK_PORT=tcp://10.0.0.1:80",
			"WATERCLOCK_SERVICE_PORT_METRICS=80",
			"WATERCLOCK_PORT_80_TCP_ADDR=10.0.0.1", "WATERCLOCK_METRICS_SERVICE_HOST=10.0.0.1",
		}, func(c *Config) bool { return c.Lanes == 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := load(t, c.args, c.env, yaml)
			if err != nil {
				t.Fatal(err)
			}
			if !c.want(cfg) {
				t.Errorf("got %+v", cfg)
			}
		})
	}
}

func TestConfigVariableNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(path, []byte("group: g7"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := load(t, nil, []string{"WATERCLOCK_CONFIG=" + path}, "")
	if err != nil || cfg.Group != "g7" {
		t.Errorf("group = %v, %v", cfg, err)
	}
}

func TestLoadErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		env  []string
		yaml string
		want []string // each a part of the message
	}{
		{"unknown key", nil, "data_dir: x", []string{`data_dir needs to be a known key; did you mean data-dir?`,
			"wc.yaml:1"}},
		{"unknown key, nothing near", nil, "frobnicate-all: x", []string{"frobnicate-all needs to be a known key ("}},
		{"config is no key", nil, "config: x", []string{"config needs to be a known key"}},
		{"unknown variable", []string{"WATERCLOCK_DATADIR=x"}, "",
			[]string{"WATERCLOCK_DATADIR needs", "did you mean WATERCLOCK_DATA_DIR?"}},
		{"lower case variable", []string{"WATERCLOCK_data_dir=x"}, "", []string{"WATERCLOCK_data_dir"}},
		{"bad duration", nil, "\n\nsession-timeout: 10",
			[]string{`session-timeout is "10", needs a duration`, "wc.yaml:3"}},
		{"bad duration in a variable", []string{"WATERCLOCK_SESSION_TIMEOUT=x"}, "",
			[]string{"(WATERCLOCK_SESSION_TIMEOUT)"}},
		{"a setting of earlier versions", nil, "wheel-memory: 64MiB",
			[]string{`wheel-memory needs to be a known key; it is gone: memory says how much`}},
		{"a variable of earlier versions", []string{"WATERCLOCK_QUEUE_MEMORY=64MiB"}, "",
			[]string{`WATERCLOCK_QUEUE_MEMORY needs to be unset or a known name; it is gone: memory says`}},
		{"bad size", nil, "memory: 512MBit", []string{`memory is "512MBit", needs a number of bytes`}},
		{"bad bool", nil, "tls: maybe", []string{`tls is "maybe", needs true or false`}},
		{"bad number", nil, "lanes: many", []string{`lanes is "many", needs a whole number`}},
		{"bad choice", nil, "on-stop: wait", []string{`on-stop is "wait", needs one of leave, stay`}},
		{"bad level", nil, "log-level: loud", []string{`log-level is "loud", needs one of debug`}},
		{"list for a scalar", nil, "group: [a, b]", []string{`group is "a,b", needs a single value`}},
		{"map for a scalar", nil, "tls: {ca: x}", []string{"keys are flat, as in tls-ca: …"}},
		{"list of lists", nil, "brokers: [[a]]", []string{"brokers needs a single value or a list"}},
		{"no value", nil, "brokers:", []string{"brokers needs a value"}},
		{"a key twice", nil, "group: a\ngroup: b", []string{"group needs to be given once", "wc.yaml:2"}},
		{"no mapping", nil, "- a",
			[]string{"wc.yaml", "needs keys with values, as in KEY: VALUE, not a list (line 1)"}},
		{"UTF-16", nil, "\xff\xfea\x00", []string{"wc.yaml", "needs text in UTF-8, not in UTF-16: save it again"}},
		{"no YAML", nil, "a: [", []string{"a needs a ] at the end of its list", "wc.yaml:1"}},
		{"a colon in a value", nil, "tls: true\ngroup: a: b",
			[]string{"group needs quotes around a value that has a colon", "wc.yaml:2"}},
		{"a tab", nil, "tenants:\n\ta: 1", []string{"tenants needs spaces to indent with, not a tab", "wc.yaml:2"}},
		{"no quote at the end", nil, "group: \"a\n",
			[]string{"group needs a quote at the end of its text", "wc.yaml:1"}},
		{"a setting of dev", nil, "\nlisten: 127.0.0.1:9092",
			[]string{"listen needs to be left out: only waterclock dev has it", "wc.yaml:2"}},
		{"a setting of dev in a variable", []string{"WATERCLOCK_DEMO=false"}, "",
			[]string{"demo needs to be left out", "(WATERCLOCK_DEMO)"}},
		{"all at once, whatever their shape", nil, "delay: [{topic: a}]\nbrokers: [[a]]\ngroup:\nfoo: 1\ntenants: " +
			"{a: {targets: {}, dialect: [[b]]}, b: 7}", []string{
			"delay needs entries", "brokers needs a single", "group needs a value", "foo needs",
			"tenants.a.targets needs", "tenants.a.dialect needs", "tenants.b needs",
		}},
		{"all at once", []string{"WATERCLOCK_X=1"}, "lanes: a\nfoo: 1\ntls: 7",
			[]string{"WATERCLOCK_X", "lanes is", "foo needs", "tls is"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := load(t, nil, c.env, c.yaml)
			if err == nil {
				t.Fatalf("no error; got %+v", cfg)
			}
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v is not ErrInvalid", err)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q\nlacks %q", err, part)
				}
			}
		})
	}
}

func TestMissingFile(t *testing.T) {
	_, err := load(t, []string{"--config", "/does/not/exist.yaml"}, nil, "")
	if err == nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "/does/not/exist.yaml") {
		t.Errorf("err = %v", err)
	}
}

// TestEverySettingInEveryLayer holds the mechanical rule: what a default prints can be given back as flag, variable and
// YAML value.
func TestEverySettingInEveryLayer(t *testing.T) {
	l := NewLoader(Default())
	if n := len(l.names()); n < 35 {
		t.Fatalf("only %d settings", n)
	}
	for _, name := range l.names() {
		f := l.all.Lookup(name)
		if f.Usage == "" || settingOf(EnvOf(name)) != name {
			t.Errorf("%s: usage %q, variable %s", name, f.Usage, EnvOf(name))
		}
		if name == fileSetting || isServiceLink(EnvOf(name)) {
			if name != fileSetting {
				t.Errorf("%s looks like a service link", EnvOf(name))
			}
			continue
		}
		text := strings.Trim(f.DefValue, "[]")
		cfg, err := NewLoader(Default()).Load([]string{EnvOf(name) + "=" + text})
		if err != nil {
			t.Errorf("%s=%q: %v", EnvOf(name), text, err)
			continue
		}
		if got, want := fmt.Sprintf("%+v", *cfg), fmt.Sprintf("%+v", Default()); got != want {
			t.Errorf("%s=%q changed something: %s", EnvOf(name), text, got)
		}
	}
}

func TestHint(t *testing.T) {
	known := []string{"brokers", "broken", "data-dir"}
	for found, want := range map[string]string{
		"broker":   "; did you mean brokers?",
		"brokers ": "; did you mean brokers?",
		"datadir":  "; did you mean data-dir?",
		"zzzzzz":   "",
	} {
		if got := hint(found, "", known); got != want {
			t.Errorf("hint(%q) = %q, want %q", found, got, want)
		}
	}
}

func FuzzParseYAML(f *testing.F) {
	f.Add([]byte("brokers: [a, b]\ntls: true\n"))
	f.Add([]byte("tenants:\n  a: {targets: [b], limit-rate: 5}\n  c:\n    dialect: etf1\n"))
	f.Add([]byte("tenants: {a: &x {b: c}, d: *x, e: [1], f: null, ? [g] : h, 7: {}}\n"))
	f.Add([]byte("a: &x 1\nb: *x\n<<: {c: 1}\n"))
	f.Add([]byte("a: !!binary aGk=\nb: |\n  text\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parseYAML("f", data)
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%v is not ErrInvalid", err)
		}
		all := []map[string]*value{file.settings}
		for _, tenant := range file.tenants {
			all = append(all, tenant)
		}
		for _, settings := range all {
			for key, v := range settings {
				if !v.isList && len(v.items) != 1 || v.source == "" {
					t.Errorf("%q: %+v", key, v)
				}
			}
		}
	})
}

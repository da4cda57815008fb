package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestTargetRatesInEveryLayer(t *testing.T) {
	const text = "mail.*=500/s,sms=50/s:100,timers:slow=30/m"
	want := []TargetRate{{"", "mail.*", 500, "s", 0}, {"", "sms", 50, "s", 100}, {"timers", "slow", 30, "m", 0}}
	for name, layer := range map[string]func() (*Config, error){
		"a mapping": func() (*Config, error) {
			return load(t, nil, nil, "target-rates: {'mail.*': 500/s, sms: 50/s:100, 'timers:slow': 30/m}")
		},
		"a block": func() (*Config, error) {
			return load(t, nil, nil, "target-rates:\n  mail.*: 500/s\n  sms: 50/s:100\n  timers:slow: 30/m\n")
		},
		"a list in the file": func() (*Config, error) {
			return load(t, nil, nil, "target-rates: [mail.*=500/s, 'sms=50/s:100', 'timers:slow=30/m']")
		},
		"a flag": func() (*Config, error) {
			return load(t, []string{"--target-rates", text}, nil, "target-rates: {x: 1/s}")
		},
		"two flags": func() (*Config, error) {
			return load(t, []string{"--target-rates", "mail.*=500/s", "--target-rates",
				"sms=50/s:100,timers:slow=30/m"}, nil, "")
		},
		"a variable": func() (*Config, error) { return load(t, nil, []string{"WATERCLOCK_TARGET_RATES=" + text}, "") },
	} {
		cfg, err := layer()
		if err != nil || !reflect.DeepEqual(cfg.TargetRates, want) {
			t.Errorf("%s: %+v, %v", name, cfg, err)
		}
	}
	if r := want[2]; r.PerSecond() != 0.5 || r.MaxBurst() != 1 || want[0].MaxBurst() != 500 ||
		want[1].MaxBurst() != 100 {
		t.Errorf("%g a second, burst %g", r.PerSecond(), r.MaxBurst())
	}
}

// Problems name the entry and say what to write.
func TestTargetRatesThatAreWrong(t *testing.T) {
	for file, says := range map[string]string{
		"{mail: 500}":          `target-rates is "mail=500", needs a rate a second, minute or hour: /s, /m or /h`,
		"{mail: 500/d}":        `and not "mail=500/d": write GLOB=N/s, as in mail.*=500/s`,
		"{mail: 0/s}":          `to stop a target, pause its timers`,
		"{mail: 1.5/s}":        "a whole number of firings",
		"{mail: 10/s:0}":       "a whole number as burst",
		"[mail]":               `a target and a rate for each entry, and not "mail"`,
		"{mail: [1/s]}":        "a mapping of targets to rates",
		"{'[': 1/s}":           `target-rates is "[=1/s", needs globs of targets`,
		"{timers: 1/s}":        "no timer may fire there",
		"{'other:mail': 1/s}":  "a prefix that is one of the request topics",
		"[mail=1/s, mail=2/s]": `target-rates is "mail=2/s", needs one rate for each glob: remove one of the two`,
	} {
		cfg, err := load(t, nil, nil, "brokers: a:1\nrequests: timers\ntargets: '*'\ntarget-rates: "+file)
		if err == nil {
			err = cfg.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", file, err, says)
		}
	}
}

// A tenant's own rates replace those for all, and count its firings alone.
func TestTargetRatesOfATenant(t *testing.T) {
	const file = "brokers: a:1\nrequests: [timers, slow, other]\ntargets: '*'\ntarget-rates: " +
		"{mail: 500/s, 'slow:sms': 5/s}\ntenants: {timers: {target-rates: {mail: 10/s}}, slow: {limit-rate: 5}}\n"
	cfg, err := load(t, nil, nil, file)
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string][]TargetRate{
		"timers": {{"timers", "mail", 10, "s", 0}},
		"slow":   {{"", "mail", 500, "s", 0}, {"slow", "sms", 5, "s", 0}},
		"other":  {{"", "mail", 500, "s", 0}},
	} {
		if got := cfg.PolicyOf(topic).TargetRates; !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", topic, got, want)
		}
	}
	text, err := cfg.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := load(t, nil, nil, string(text))
	if err != nil || !reflect.DeepEqual(again.Tenants, cfg.Tenants) ||
		!slices.Equal(again.TargetRates, cfg.TargetRates) {
		t.Errorf("%v\n%+v, want\n%+v", err, again.Tenants, cfg.Tenants)
	}
	next, err := load(t, nil, nil, strings.Replace(file, "10/s", "20/s", 1))
	if err != nil {
		t.Fatal(err)
	}
	if now, later := cfg.Changes(next); !slices.Equal(now, []string{"tenants.timers.target-rates"}) || len(later) > 0 {
		t.Errorf("changed %v, %v", now, later)
	}
	if got := cfg.Live(next).PolicyOf("timers").TargetRates; got[0].N != 20 {
		t.Errorf("after a reload: %+v", got)
	}
}

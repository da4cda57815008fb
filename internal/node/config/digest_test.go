package config

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// A digest names the settings that judge differently, and only those.
func TestDigest(t *testing.T) {
	base := valid()
	for _, c := range []struct {
		name   string
		change func(c *Config)
		want   []string
	}{
		{"nothing", func(*Config) {}, nil},
		{"another order", func(c *Config) { slices.Reverse(c.Requests); slices.Reverse(c.Targets) }, nil},
		{"what every instance may have of its own", func(c *Config) {
			c.InstanceID, c.DataDir, c.HTTP, c.API, c.Memory, c.Lanes, c.LogFormat = "wc-7", "/elsewhere", "",
				"127.0.0.1:1", GiB, 3, LogJSON
		}, nil},
		{"a tenant with the settings for all",
			func(c *Config) { c.Tenants = map[string]Policy{"timers": c.commonPolicy("timers")} }, nil},
		{"targets", func(c *Config) { c.Targets = []string{"only-this"}; c.DefaultTarget = []string{"only-this"} },
			[]string{"targets", "default-target"}},
		{"targets of one topic", func(c *Config) { c.Targets = append(slices.Clone(c.Targets), c.Requests[0]+":more") },
			[]string{"targets"}},
		{"limits", func(c *Config) { c.LimitHorizon, c.LimitHeaders = time.Hour, 3 },
			[]string{"limit-horizon", "limit-headers"}},
		{"events", func(c *Config) { c.Events = true }, []string{"events"}},
		{"a dialect", func(c *Config) {
			p := c.commonPolicy(c.Requests[0])
			p.Dialect = DialectNATS
			c.Tenants = map[string]Policy{c.Requests[0]: p}
		}, []string{"dialect"}},
		{"topics", func(c *Config) {
			c.Requests, c.Delay = append(slices.Clone(c.Requests), "more"),
				[]DelayTopic{{"retry", time.Minute, "orders"}}
		}, []string{"requests", "delay"}},
		{"checks and traces", func(c *Config) { c.PartitionerCheck, c.Tracing = CheckOff, TracingOff },
			[]string{"partitioner-check", "tracing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := base, base
			b.Requests, b.Targets = slices.Clone(base.Requests), slices.Clone(base.Targets)
			c.change(&b)
			if got := a.Digest().Differs(b.Digest()); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got := base.Digest().Differs(nil); got != nil {
		t.Errorf("an earlier version differs in %q", got)
	}
}

// Every setting of a tenant is in the digest, or known to decide nothing.
func TestDigestHasWhatDecides(t *testing.T) {
	var p Policy
	p.flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(judgedSettings(), f.Name) == (f.Name == "events-cleanup") {
			t.Errorf("%s", f.Name)
		}
	})
	c := valid()
	for _, name := range judgedSettings() {
		if _, ok := c.judged()[name]; !ok {
			t.Errorf("%s has no value", name)
		}
	}
}

// The order of a digest is part of the protocol between instances of several versions.
func TestDigestStaysAsItIs(t *testing.T) {
	c := Default()
	c.Requests, c.Targets = []string{"timers"}, []string{"orders"}
	const want = "5e179425f63636067a25a3c40ed43ed77e9a99df19c2a586a2b6a09c6107a3186516b9eb0cc9d75131813cbbbf3d1bb68" +
		"ecb90fafd80b755425d8368"
	if got := fmt.Sprintf("%x", []byte(c.Digest())); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOdd(t *testing.T) {
	a, b, c := valid(), valid(), valid()
	b.Events = true
	c.LimitHeaders = 2
	for _, x := range []struct {
		name    string
		members map[string]Digest
		want    map[string][]string
	}{
		{"none", nil, map[string][]string{}},
		{"one", map[string]Digest{"x": a.Digest()}, map[string][]string{"x": nil}},
		{"alike", map[string]Digest{"x": a.Digest(), "y": a.Digest()}, map[string][]string{"x": nil, "y": nil}},
		{"two", map[string]Digest{"x": a.Digest(), "y": b.Digest()},
			map[string][]string{"x": {"events"}, "y": {"events"}}},
		{"one of three", map[string]Digest{"x": a.Digest(), "y": b.Digest(), "z": a.Digest()},
			map[string][]string{"x": nil, "y": {"events"}, "z": nil}},
		{"all", map[string]Digest{"x": a.Digest(), "y": b.Digest(), "z": c.Digest()},
			map[string][]string{"x": nil, "y": {"events"}, "z": {"limit-headers"}}},
		{"an earlier version", map[string]Digest{"x": a.Digest(), "old": nil}, map[string][]string{"x": nil}},
		{"a later version", map[string]Digest{"x": a.Digest(), "new": append(b.Digest(), 1, 2, 3)},
			map[string][]string{"x": {"events"}, "new": {"events"}}},
	} {
		if got := Odd(x.members); fmt.Sprint(got) != fmt.Sprint(x.want) {
			t.Errorf("%s: got %v, want %v", x.name, got, x.want)
		}
	}
}

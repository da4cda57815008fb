package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

var ladder = []DelayTopic{
	{"orders.retry.5m", 5 * time.Minute, "orders"},
	{"orders.retry.1d", 24 * time.Hour, ""},
}

func TestDelayInEveryLayer(t *testing.T) {
	const text = "orders.retry.5m:5m:orders,orders.retry.1d:24h"
	for name, layer := range map[string]func() (*Config, error){
		"mappings": func() (*Config, error) {
			return load(t, nil, nil, "delay:\n  - {topic: orders.retry.5m, delay: 5m, target: orders}\n  - topic: "+
				"orders.retry.1d\n    delay: 1d\n")
		},
		"a list in the file": func() (*Config, error) {
			return load(t, nil, nil, "delay: [orders.retry.5m:5m:orders, orders.retry.1d:1d]")
		},
		"a flag": func() (*Config, error) { return load(t, []string{"--delay", text}, nil, "delay: x:1s") },
		"two flags": func() (*Config, error) {
			return load(t, []string{"--delay", "orders.retry.5m:5m:orders", "--delay", "orders.retry.1d:24h"}, nil, "")
		},
		"a variable": func() (*Config, error) {
			return load(t, nil, []string{"WATERCLOCK_DELAY=" + text}, "delay: x:1s")
		},
	} {
		cfg, err := layer()
		if err != nil || !reflect.DeepEqual(cfg.Delay, ladder) {
			t.Errorf("%s: %+v, %v", name, cfg, err)
		}
	}
}

func TestDelayThatCannotBeRead(t *testing.T) {
	for file, says := range map[string]string{
		"delay: {topic: a, delay: 5m}":          "delay needs a single value or a list of them",
		"delay: [{topic: a}]":                   "{topic: orders.retry.5m, delay: 5m, target: orders}",
		"delay: [{topic: a, delay: 5m, to: b}]": "{topic: orders.retry.5m, delay: 5m, target: orders}",
		"delay: [{topic: a, delay: [5m]}]":      "{topic: orders.retry.5m, delay: 5m, target: orders}",
		"delay: [{topic: 'a:b', delay: 5m}]":    "{topic: orders.retry.5m, delay: 5m, target: orders}",
		"delay: [a]":                            `TOPIC:DURATION or TOPIC:DURATION:TARGET for each topic, and not "a"`,
		"delay: [a:soon]":                       "needs a duration such as 250ms",
		"requests: [{topic: a, delay: 5m}]":     "requests needs a single value or a list of them",
	} {
		if _, err := load(t, nil, nil, file); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", file, err, says)
		}
	}
}

func TestDelayThatIsNotValid(t *testing.T) {
	valid := func() *Config {
		c := Default()
		c.Brokers, c.Targets = []string{"127.0.0.1:9092"}, []string{"orders", "late:mail"}
		c.Delay = []DelayTopic{{"retry", time.Second, "orders"}, {"late", time.Minute, "mail"}}
		return &c
	}
	if err := valid().Validate(); err != nil {
		t.Fatalf("without a request topic: %v", err)
	}
	for says, spoil := range map[string]func(*Config){
		`delay is "a/b:`:                      func(c *Config) { c.Delay[0].Topic = "a/b" },
		`delay is "__a:`:                      func(c *Config) { c.Delay[0].Topic = "__a" },
		`delay is "a.waterclock.checkpoints:`: func(c *Config) { c.Delay[0].Topic = "a.waterclock.checkpoints" },
		"needs each topic once":               func(c *Config) { c.Delay[0].Topic = "late" },
		"none of the request topics":          func(c *Config) { c.Requests = []string{"retry"} },
		"delays of whole milliseconds":        func(c *Config) { c.Delay[0].Delay = time.Microsecond },
		"1ms to 365d":                         func(c *Config) { c.Delay[0].Delay = 366 * 24 * time.Hour },
		"one of the targets of retry":         func(c *Config) { c.Delay[0].Target = "mail" },
		"a fixed-delay topic": func(c *Config) {
			c.Targets, c.Delay[0].Target = []string{"*"},
				"late"
		},
		"needs the name of a topic as target":  func(c *Config) { c.Targets, c.Delay[0].Target = []string{"*"}, "a b" },
		"request topics or fixed-delay topics": func(c *Config) { c.Targets = append(c.Targets, "others:x") },
		"requests needs at least one":          func(c *Config) { c.Delay = nil },
	} {
		c := valid()
		spoil(c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
	}
}

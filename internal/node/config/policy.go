package config

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/timer"
)

// Policy limits the requests of one request topic: the settings of a tenant. Read it through [Config.PolicyOf].
type Policy struct {
	Targets          []string      // globs as in path.Match; a target is denied unless one matches
	DefaultTarget    string        // of requests that name none; if it is empty, they must
	TargetRates      []TargetRate  // of firings to targets: the first whose glob matches counts
	DefaultMaxLate   time.Duration // of requests that name none; 0: timers fire however late
	LimitPast        time.Duration // a timer that is due longer before its record expires; 0: no limit
	LimitHorizon     time.Duration // how far ahead a timer may be due, 1s to MaxHorizon
	LimitHeaders     int           // of a request, 1 to MaxHeaders
	LimitHeaderBytes Size          // limit-header-bytes: of all headers of a request, 1 to MaxHeaderBytes
	LimitValueBytes  Size          // limit-value-bytes: of a request; 0: what the topic allows
	LimitInterval    time.Duration // the shortest of a recurring timer; 0: what the service allows
	LimitPending     int           // pending timers of the topic; 0: no limit
	LimitRate        int           // requests a second of the topic; 0: no limit
	// the action for requests beyond LimitRate; those beyond LimitPending are dead letters
	OverLimit     OverLimit
	Events        bool    // write the outcomes of timers to a topic of their own
	EventsCleanup Cleanup // the cleanup policy with which that topic is created
	DeadLetters   string  // the topic of its dead letters; empty: named after the request topic
	Dialect       Dialect // the scheduler whose requests are understood in addition to our own
}

// OverLimit is the action for requests beyond a limit.
type OverLimit string

// The choices of over-limit.
const (
	OverDeadLetter OverLimit = "dead-letter"
	OverDelay      OverLimit = "delay" // the service reads more slowly
)

// Cleanup is the cleanup policy of a topic.
type Cleanup string

// The choices of events-cleanup.
const (
	CleanupDelete  Cleanup = "delete"  // all records, for a time
	CleanupCompact Cleanup = "compact" // the last record of each key
)

// Dialect names another scheduler; empty is none.
type Dialect string

// The choices of dialect.
const (
	DialectNone     Dialect = ""
	DialectETF1     Dialect = "etf1"
	DialectSky      Dialect = "sky"
	DialectSkyJSON  Dialect = "sky-json"
	DialectRabbitMQ Dialect = "rabbitmq"
	DialectNATS     Dialect = "nats"
	DialectPulsar   Dialect = "pulsar"
)

// Limits of a tenant's settings.
const (
	MaxLimitRate  = 10_000_000
	MaxLimitValue = 1 * GiB
)

// tenantsSetting is the only key of the YAML file whose value has settings: those of request topics, by topic.
const tenantsSetting = "tenants"

// Allows reports whether requests may name this target.
func (p *Policy) Allows(target string) bool {
	return slices.ContainsFunc(p.Targets, func(glob string) bool {
		ok, err := path.Match(glob, target)
		return ok && err == nil
	})
}

// PolicyOf returns the policy of a request topic: its tenant's, or the one that follows from the settings for all.
func (c *Config) PolicyOf(requests string) Policy {
	if p, ok := c.Tenants[requests]; ok {
		return p
	}
	return c.commonPolicy(requests)
}

// commonPolicy returns the policy of a request topic that follows from the settings for all.
func (c *Config) commonPolicy(requests string) Policy {
	p := Policy{
		LimitHorizon: c.LimitHorizon, LimitHeaders: c.LimitHeaders, LimitHeaderBytes: c.LimitHeaderBytes,
		OverLimit: OverDeadLetter, EventsCleanup: CleanupDelete,
		Events: c.Events && !slices.Contains(c.DelayTopics(), requests), // records of fixed-delay topics have none
	}
	for _, t := range c.Targets {
		if topic, glob := splitTopic(t); topic == "" || topic == requests {
			p.Targets = append(p.Targets, glob)
		}
	}
	for _, r := range c.TargetRates {
		if r.Topic == "" || r.Topic == requests {
			p.TargetRates = append(p.TargetRates, r)
		}
	}
	for _, t := range c.DefaultTarget { // an entry for just this topic wins
		if topic, name := splitTopic(t); topic == requests || topic == "" && p.DefaultTarget == "" {
			p.DefaultTarget = name
		}
	}
	return p
}

// bind declares the settings of a tenant. This is the only table of their names.
func (p *Policy) bind(fs *pflag.FlagSet) {
	fs.StringSliceVar(&p.Targets, "targets", p.Targets,
		"target topics that requests may name, instead of those for all: `GLOB,...`")
	fs.StringVar(&p.DefaultTarget, "default-target", p.DefaultTarget, "target of requests that name none: `TOPIC`")
	fs.Var(rateEntries(&p.TargetRates), ratesSetting,
		"fire to each target topic at most that often, counted for this request topic alone: `GLOB=N/s:BURST,...`")
	fs.Var((*duration)(&p.DefaultMaxLate), "default-max-late",
		"timers that would fire later than `DURATION` expire, unless the request says otherwise; 0s for none")
	fs.Var((*duration)(&p.LimitPast), "limit-past",
		"timers that are due more than `DURATION` before their record was written expire; 0s for no limit")
	fs.Var((*duration)(&p.LimitHorizon), "limit-horizon", "refuse timers due later than `DURATION` ahead")
	fs.IntVar(&p.LimitHeaders, "limit-headers", p.LimitHeaders, "refuse requests with more than `N` headers")
	fs.Var(&p.LimitHeaderBytes, "limit-header-bytes", "refuse requests whose headers take more than `SIZE`")
	fs.Var(&p.LimitValueBytes, "limit-value-bytes",
		"refuse requests whose value takes more than `SIZE`; 0 for what the topic takes")
	fs.Var((*duration)(&p.LimitInterval), "limit-interval",
		"refuse timers that recur more often than every `DURATION`; 0s for what the service takes")
	fs.IntVar(&p.LimitPending, "limit-pending", p.LimitPending,
		"at most `N` timers are pending, in equal shares of the partitions; 0 for no limit")
	fs.IntVar(&p.LimitRate, "limit-rate", p.LimitRate,
		"at most `N` requests a second, in equal shares of the partitions; 0 for no limit")
	fs.Var(choice[OverLimit]{&p.OverLimit, []OverLimit{OverDeadLetter, OverDelay}}, "over-limit",
		"`ACTION` for requests beyond limit-rate: dead-letter, or delay, which reads more slowly and excludes "+
			"limit-pending")
	fs.BoolVar(&p.Events, "events", p.Events, "write the outcomes of timers to a topic of their own")
	fs.Var(choice[Cleanup]{&p.EventsCleanup, []Cleanup{CleanupDelete, CleanupCompact}}, "events-cleanup",
		"`POLICY` of that topic: delete, by age, or compact, which keeps the last event of each timer")
	fs.StringVar(&p.DeadLetters, "dead-letters", p.DeadLetters,
		"`TOPIC` of dead letters (default: the request topic's name and .waterclock.dead-letters)")
	fs.Var(choice[Dialect]{&p.Dialect, []Dialect{DialectNone, DialectETF1, DialectSky, DialectSkyJSON, DialectRabbitMQ,
		DialectNATS, DialectPulsar}}, "dialect",
		"also understand requests of `SCHEDULER`: etf1, sky, sky-json, rabbitmq, nats or pulsar (default: none)")
}

// flags returns the settings of a tenant with their values.
func (p *Policy) flags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	p.bind(fs)
	return fs
}

// live returns the settings for all that take effect while an instance runs, and liveOfTenant those of a tenant, by
// their names in the file.
func live() []string {
	return []string{"targets", "default-target", ratesSetting, "limit-horizon", "limit-headers", "limit-header-bytes"}
}

func liveOfTenant() []string {
	return append(live(), "default-max-late", "limit-past", "limit-value-bytes", "limit-interval", "limit-pending",
		"limit-rate", "over-limit", "dialect")
}

// Changes returns the names of the settings in which two configurations of an instance differ: those that take effect
// while it runs, and those that take effect at its next start.
func (c *Config) Changes(next *Config) (now, later []string) {
	compare := func(before, after *pflag.FlagSet, live []string, key func(name string) string) {
		before.VisitAll(func(f *pflag.Flag) {
			switch {
			case f.Value.String() == after.Lookup(f.Name).Value.String():
			case slices.Contains(live, f.Name):
				now = append(now, key(f.Name))
			default:
				later = append(later, key(f.Name))
			}
		})
	}
	compare(c.flags(), next.flags(), live(), func(name string) string { return name })
	for _, topic := range c.tenantsWith(next) {
		before, after := c.PolicyOf(topic), next.PolicyOf(topic)
		compare(before.flags(), after.flags(), liveOfTenant(),
			func(name string) string { return tenantKey(topic, name) })
	}
	return now, later
}

// tenantsWith returns the request topics that are tenants in c or in next. All others have the settings for all.
func (c *Config) tenantsWith(next *Config) []string {
	return slices.DeleteFunc(slices.Clone(c.Requests), func(topic string) bool {
		_, was := c.Tenants[topic]
		_, ok := next.Tenants[topic]
		return !was && !ok
	})
}

// Live returns c with the settings of next that take effect while an instance runs.
func (c *Config) Live(next *Config) *Config {
	out := *c
	out.Targets, out.DefaultTarget, out.TargetRates = next.Targets, next.DefaultTarget, next.TargetRates
	out.LimitHorizon, out.LimitHeaders, out.LimitHeaderBytes = next.LimitHorizon, next.LimitHeaders,
		next.LimitHeaderBytes
	out.Tenants = nil
	for _, topic := range c.tenantsWith(next) {
		p, before := next.PolicyOf(topic), c.PolicyOf(topic)
		p.Events, p.EventsCleanup, p.DeadLetters = before.Events, before.EventsCleanup, before.DeadLetters
		if out.Tenants == nil {
			out.Tenants = make(map[string]Policy)
		}
		out.Tenants[topic] = p
	}
	return &out
}

// tenantKey names a setting of a tenant.
func tenantKey(topic, name string) string {
	return strings.Join([]string{tenantsSetting, topic, name}, ".")
}

// tenants checks the topics of tenants and of their dead letters.
func (p *problems) tenants(c *Config) {
	letters := make(map[string]string) // topics of dead letters, to their request topics
	for _, topic := range sortedKeys(c.Tenants) {
		need := "one of the request topics"
		if slices.Contains(c.DelayTopics(), topic) {
			need += "; a fixed-delay topic has no policy, and no events"
		}
		p.want(slices.Contains(c.Requests, topic), tenantsSetting, topic, need)
		own := c.Tenants[topic].DeadLetters
		if own == "" {
			continue
		}
		name := tenantKey(topic, "dead-letters")
		p.want(timer.ValidTopicName(own) && !isReserved(own) && !slices.Contains(c.Requests, own), name, own,
			"the name of a topic that neither begins with __ nor belongs to the service nor is a request topic")
		other, taken := letters[own]
		p.want(!taken, name, own, "a topic of its own: "+other+" has this one")
		letters[own] = topic
	}
}

// IsDeadLetters reports whether a tenant has chosen a topic for its dead letters.
func (c *Config) IsDeadLetters(name string) bool {
	for _, t := range c.Tenants {
		if t.DeadLetters == name {
			return true
		}
	}
	return false
}

func (p *problems) policy(c *Config, topic string, t *Policy) {
	key := func(name string) string { return tenantKey(topic, name) }
	p.want(len(t.Targets) > 0, key("targets"), "", "at least one glob, as in orders or mail.*; * allows every topic")
	for _, glob := range t.Targets {
		p.want(isGlob(glob), key("targets"), glob, "globs as in orders, mail.* or team-?.events")
		p.want(!c.neverTarget(glob), key("targets"), glob, neverTargets)
	}
	if name := t.DefaultTarget; name != "" {
		p.want(timer.ValidTopicName(name), key("default-target"), name, "the name of a topic")
		p.want(!c.neverTarget(name), key("default-target"), name, neverTargets)
		p.want(t.Allows(name), key("default-target"), name, "to be one of the targets of "+topic)
	}
	p.rates(c, key(ratesSetting), t.TargetRates, func(t string) bool { return t == "" || t == topic },
		"this request topic, or no prefix")
	between(p, key("limit-horizon"), t.LimitHorizon, time.Second, MaxHorizon)
	between(p, key("limit-headers"), t.LimitHeaders, 1, MaxHeaders)
	between(p, key("limit-header-bytes"), t.LimitHeaderBytes, 1, MaxHeaderBytes)
	between(p, key("limit-value-bytes"), t.LimitValueBytes, 0, MaxLimitValue)
	between(p, key("default-max-late"), t.DefaultMaxLate, 0, MaxHorizon)
	between(p, key("limit-past"), t.LimitPast, 0, MaxHorizon)
	between(p, key("limit-interval"), t.LimitInterval, 0, MaxHorizon)
	between(p, key("limit-rate"), t.LimitRate, 0, MaxLimitRate)
	p.want(t.LimitPending >= 0, key("limit-pending"), t.LimitPending, "0 or more")
	p.want(t.LimitPending == 0 || t.OverLimit != OverDelay, key("over-limit"), t.OverLimit,
		"dead-letter if there is a limit-pending: reading cannot wait for timers that may fire in years")
}

// TargetsOf returns the globs (as in path.Match) of the targets that requests on a request topic may name.
func (c *Config) TargetsOf(requests string) []string { return c.PolicyOf(requests).Targets }

// TargetNames returns the targets that are names and not globs.
func (c *Config) TargetNames() []string {
	var names []string
	for _, topic := range c.Requests {
		p := c.PolicyOf(topic)
		for _, name := range append(p.Targets, p.DefaultTarget) {
			if timer.ValidTopicName(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// splitTopic splits "topic:rest"; without a colon, which no topic name contains, the topic is "".
func splitTopic(s string) (topic, rest string) {
	if topic, rest, ok := strings.Cut(s, ":"); ok {
		return topic, rest
	}
	return "", s
}

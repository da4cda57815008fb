// Package policy derives from the settings everything that applies to one request topic or fixed-delay topic: the rules
// for its requests, its quota, its own topics, and their permissions.
//
//	rules := policy.Rules(cfg, set)
package policy

import (
	"slices"
	"time"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/rates"
)

// Rules returns the rules for requests of one topic. They know no calendars yet: see [calendar.Cache].
func Rules(cfg *config.Config, set topics.Set) *intake.Rules {
	policy := cfg.PolicyOf(set.Request.Name)
	limits := intake.DefaultLimits()
	limits.Horizon, limits.Headers, limits.HeaderBytes = policy.LimitHorizon, policy.LimitHeaders,
		int(policy.LimitHeaderBytes)
	limits.ValueBytes, limits.RecordBytes = int(policy.LimitValueBytes), set.Request.MaxMessageBytes
	limits.Interval = max(limits.Interval, policy.LimitInterval)
	check := intake.Warn
	switch cfg.PartitionerCheck {
	case config.CheckOff:
		check = intake.Off
	case config.CheckDeadLetter:
		check = intake.DeadLetter
	}
	return &intake.Rules{
		Topic: set.Request.Name, Changelog: set.Changelog.Name, Partitions: set.Request.Partitions,
		DefaultTarget:    policy.DefaultTarget,
		PartitionerCheck: check, Limits: limits, Quota: Quota(cfg, set), DefaultMaxLate: policy.DefaultMaxLate,
		LimitPast: policy.LimitPast, Dialect: intake.Dialect(policy.Dialect),
		Never: Never(cfg), Allow: policy.Allows,
	}
}

// Lenient returns the rules for requests of one topic if no setting rejected any.
func Lenient(cfg *config.Config, set topics.Set) *intake.Rules {
	r, limits := Rules(cfg, set), intake.DefaultLimits()
	limits.RecordBytes = set.Request.MaxMessageBytes
	return &intake.Rules{
		Topic: r.Topic, Changelog: r.Changelog, Partitions: r.Partitions, DefaultTarget: r.DefaultTarget,
		PartitionerCheck: intake.Off, Limits: limits, DefaultMaxLate: r.DefaultMaxLate, LimitPast: r.LimitPast,
		Dialect: r.Dialect, Never: r.Never,
		Allow: func(string) bool { return true },
	}
}

// DelayRules returns the rules for records of a fixed-delay topic. Its target must not be a fixed-delay topic, because
// a record could go round forever.
func DelayRules(cfg *config.Config, d config.DelayTopic, set topics.Set) *intake.Rules {
	r := Rules(cfg, set)
	r.DefaultTarget = d.Target
	never, delayed := r.Never, cfg.DelayTopics()
	r.Never = func(topic string) string {
		if slices.Contains(delayed, topic) {
			return "it is a fixed-delay topic, from which records would come back to others of its kind forever"
		}
		return never(topic)
	}
	return r
}

// Never returns a function that says why no timer may fire to a topic, whatever targets are allowed. The function
// returns "" if timers may fire to it.
func Never(cfg *config.Config) func(topic string) string {
	requests, letters := make(map[string]bool), make(map[string]bool)
	for _, r := range cfg.Requests {
		requests[r] = true
		letters[DeadLetters(cfg, r)] = true
	}
	return func(topic string) string { return topics.NeverTarget(topic, requests[topic], letters[topic]) }
}

// Quota returns the share of each partition in the limits of its request topic.
func Quota(cfg *config.Config, set topics.Set) intake.Quota {
	policy, partitions := cfg.PolicyOf(set.Request.Name), int64(max(1, set.Request.Partitions))
	q := intake.Quota{
		Rate:    float64(policy.LimitRate) / float64(partitions),
		Pending: int64(policy.LimitPending) / partitions,
		Delay:   policy.OverLimit == config.OverDelay,
	}
	if int64(policy.LimitPending)%partitions > 0 {
		q.Pending++ // rounded up, so that each partition has some
	}
	return q
}

// Rates returns the rates for the firings of all request topics.
func Rates(cfg *config.Config) rates.Rules {
	rules := make(rates.Rules)
	for _, topic := range cfg.Requests {
		for _, r := range cfg.PolicyOf(topic).TargetRates {
			rules[topic] = append(rules[topic],
				rates.Rate{Scope: r.Topic, Glob: r.Glob, PerSecond: r.PerSecond(), Burst: r.MaxBurst()})
		}
	}
	return rules
}

// DeadLetters returns the topic of a request topic's dead letters.
func DeadLetters(cfg *config.Config, requests string) string {
	if name := cfg.PolicyOf(requests).DeadLetters; name != "" {
		return name
	}
	return topics.DeadLetters(requests)
}

// TopicOptions returns how the topics of a request topic are created and checked, or, with a delay, those of a
// fixed-delay topic. When a fixed-delay topic grows, its records stay where they are, so its own topics may grow with
// it.
func TopicOptions(cfg *config.Config, topic string, delay time.Duration, create bool) topics.Options {
	policy := cfg.PolicyOf(topic)
	return topics.Options{
		Create: create, Grow: create && delay != 0, Delay: delay, Replication: int16(cfg.ReplicationFactor),
		DeadLetters: DeadLetters(cfg, topic),
		Events:      policy.Events, CompactEvents: policy.EventsCleanup == config.CleanupCompact,
	}
}

// Access returns everything that the permissions of a service with these settings depend on.
func Access(cfg *config.Config) topics.Access {
	a := topics.Access{
		Requests: cfg.Requests, Delayed: cfg.DelayTopics(), Create: cfg.CreateTopics, API: cfg.API != "",
		Group: cfg.Group, TransactionalIDs: repair.TransactionalIDPrefix(cfg.Group),
		DeadLetters: make(map[string]string),
	}
	for _, r := range cfg.Requests {
		a.DeadLetters[r] = DeadLetters(cfg, r)
		if cfg.PolicyOf(r).Events {
			a.Events = append(a.Events, r)
		}
	}
	for _, r := range slices.Concat(cfg.Requests, cfg.DelayTopics()) {
		for _, glob := range cfg.TargetsOf(r) {
			if !slices.Contains(a.Targets, glob) {
				a.Targets = append(a.Targets, glob)
			}
		}
	}
	return a
}

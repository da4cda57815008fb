package service

import (
	"context"
	"path"
	"slices"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/topics"
)

// rules are what requests of one topic are judged by.
func rules(cfg *config.Config, set topics.Set) *intake.Rules {
	policy := cfg.PolicyOf(set.Request.Name)
	limits := intake.DefaultLimits()
	limits.Horizon, limits.Headers, limits.HeaderBytes = policy.LimitHorizon, policy.LimitHeaders, int(policy.LimitHeaderBytes)
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
		Topic: set.Request.Name, Changelog: set.Changelog.Name, Partitions: set.Request.Partitions, DefaultTarget: policy.DefaultTarget,
		PartitionerCheck: check, Limits: limits, Quota: quota(cfg, set), DefaultMaxLate: policy.DefaultMaxLate, LimitPast: policy.LimitPast, Dialect: intake.Dialect(policy.Dialect),
		Never: never(cfg),
		Allow: func(topic string) bool {
			return slices.ContainsFunc(policy.Targets, func(glob string) bool {
				ok, err := path.Match(glob, topic)
				return ok && err == nil
			})
		},
	}
}

// never says why no timer may fire to a topic, whatever the targets say; "" if one
// may.
func never(cfg *config.Config) func(topic string) string {
	requests, letters := make(map[string]bool), make(map[string]bool)
	for _, r := range cfg.Requests {
		requests[r] = true
		letters[deadLetters(cfg, r)] = true
	}
	return func(topic string) string {
		switch {
		case topics.IsOwn(topic), letters[topic]:
			return "it is a topic that waterclock keeps for itself"
		case requests[topic]:
			return "it is a request topic, where what fires would be refused for want of a due time, or be taken for a cancel"
		}
		return ""
	}
}

// quota is what each partition of a request topic may have of its limits.
func quota(cfg *config.Config, set topics.Set) intake.Quota {
	policy, partitions := cfg.PolicyOf(set.Request.Name), int64(max(1, set.Request.Partitions))
	q := intake.Quota{
		Rate:    float64(policy.LimitRate) / float64(partitions),
		Pending: int64(policy.LimitPending) / partitions,
		Delay:   policy.OverLimit == config.OverDelay,
	}
	if int64(policy.LimitPending)%partitions > 0 {
		q.Pending++ // rounded up, so that each has some
	}
	return q
}

// deadLetters is the topic of a request topic's dead letters.
func deadLetters(cfg *config.Config, requests string) string {
	if name := cfg.PolicyOf(requests).DeadLetters; name != "" {
		return name
	}
	return topics.DeadLetters(requests)
}

// topicOptions say how the topics of a request topic, or with a delay of a fixed-delay
// topic, are made and checked. What lies in a fixed-delay topic stays where it is when
// that grows, so its own topics may grow with it.
func topicOptions(cfg *config.Config, topic string, delay time.Duration, create bool) topics.Options {
	policy := cfg.PolicyOf(topic)
	return topics.Options{
		Create: create, Grow: create && delay != 0, Delay: delay, Replication: int16(cfg.ReplicationFactor), DeadLetters: deadLetters(cfg, topic),
		Events: policy.Events, CompactEvents: policy.EventsCleanup == config.CleanupCompact,
	}
}

// reload takes over what changes while the instance runs, until ctx ends.
func (in *instance) reload(ctx context.Context) error {
	running := in.cfg
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-in.o.Reload:
			running = in.takeOver(running, next)
		}
	}
}

// takeOver makes the settings of next that can change hold from the next request
// on, and says which ones wait for a start. It returns what holds now.
func (in *instance) takeOver(running, next *config.Config) *config.Config {
	now, later := running.Changes(next)
	if len(later) > 0 {
		in.log.Warn("settings have changed that take effect at the next start; the old ones stay until then", "settings", later)
	}
	if len(now) == 0 {
		in.log.Info("the configuration was read again, nothing changes now")
		return running
	}
	cfg := running.Live(next)
	for name, t := range in.topics {
		t.rules.Replace(rules(cfg, t.set))
		in.reader.SetQuota(name, quota(cfg, t.set))
	}
	for _, d := range cfg.Delay {
		if t := in.delayed[d.Topic]; t != nil {
			t.rules.Replace(delayRules(cfg, d, t.set))
		}
	}
	in.access.use(cfg)
	in.log.Info("the configuration was read again and holds from now on", "changed", now)
	return cfg
}

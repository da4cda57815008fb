package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/policy"
	"github.com/waterclock/waterclock/internal/ownership"
)

// served is one request topic, or one fixed-delay topic.
type served struct {
	set      topics.Set
	settings *ownership.Settings
	rules    *intake.Rules
}

func newServed(cl *kgo.Client, set topics.Set, rules *intake.Rules) *served {
	s := &served{set: set, rules: rules}
	s.settings = ownership.NewSettings(cl, &s.set)
	return s
}

// delayed reports whether this is a fixed-delay topic.
func (s *served) delayed() bool { return s.set.Delay != 0 }

// kind names the kind of topic, for messages.
func (s *served) kind() string {
	if s.delayed() {
		return "fixed-delay topic"
	}
	return "request topic"
}

// servedTopics are the topics that an instance serves. They are fixed at the start, except that a topic may be stopped.
type servedTopics struct {
	byName map[string]*served
	check  beats.Signal // asks recheck for a check ahead of time

	mu      sync.Mutex       // guards the fields below
	stopped map[string]error // why topics are stopped until a restart
}

func newServedTopics(all map[string]*served) *servedTopics {
	return &servedTopics{byName: all, check: beats.NewSignal(), stopped: make(map[string]error)}
}

// openTopics checks all topics, and creates the service's own if the settings say so.
func openTopics(ctx context.Context, cfg *config.Config, c *cluster) (*servedTopics, error) {
	adm := kadm.NewClient(c.client)
	ensure := func(name string, o topics.Options) (set topics.Set, err error) {
		var problems []topics.Problem
		err = c.insist(ctx, "cannot check topics", func() (err error) {
			set, problems, err = topics.Ensure(ctx, adm, name, o)
			return err
		})
		for _, p := range problems {
			c.log.Warn("unsuitable topic setting", "problem", p.String())
		}
		return set, err
	}
	all := make(map[string]*served)
	for _, name := range cfg.Requests {
		set, err := ensure(name, policy.TopicOptions(cfg, name, 0, cfg.CreateTopics))
		if err != nil {
			return nil, err
		}
		all[name] = newServed(c.client, set, policy.Rules(cfg, set))
	}
	for _, d := range cfg.Delay {
		set, err := ensure(d.Topic, policy.TopicOptions(cfg, d.Topic, d.Delay, cfg.CreateTopics))
		if err != nil {
			return nil, err
		}
		all[d.Topic] = newServed(c.client, set, policy.DelayRules(cfg, d, set))
	}
	warnChained(ctx, cfg, c)
	return newServedTopics(all), nil
}

// warnChained warns about targets that are request topics of another service. It sees only targets that are named in
// full. An emission has no timer- headers, so the other service refuses it, or takes it for a cancel if its value is
// null. Such a delayed cancel may be intended, so this is only a warning.
func warnChained(ctx context.Context, cfg *config.Config, c *cluster) {
	var logs []string
	for _, name := range cfg.TargetNames() {
		logs = append(logs, topics.Changelog(name))
	}
	if len(logs) == 0 {
		return
	}
	details, err := connect.AskTopics(ctx, c.client, logs)
	if err != nil {
		c.log.Debug("cannot check whether targets are request topics", "err", err)
	}
	for log, d := range details {
		if !d.Absent && !d.Refused {
			c.log.Warn("a target is a request topic that others serve: emissions to it will be rejected, or treated "+
				"as cancels if the value is null",
				"target", strings.TrimSuffix(log, topics.Changelog("")))
		}
	}
}

// of returns a topic; nil if it is not served.
func (st *servedTopics) of(name string) *served { return st.byName[name] }

// names returns the names of all topics.
func (st *servedTopics) names() []string { return slices.Collect(maps.Keys(st.byName)) }

// requests returns the request topics by name.
func (st *servedTopics) requests() map[string]*served {
	all := maps.Clone(st.byName)
	maps.DeleteFunc(all, func(_ string, s *served) bool { return s.delayed() })
	return all
}

// sets returns the sets of all topics.
func (st *servedTopics) sets() (sets []topics.Set) {
	for _, s := range st.byName {
		sets = append(sets, s.set)
	}
	return sets
}

// rules returns the rules of all topics, by name.
func (st *servedTopics) rules() map[string]*intake.Rules {
	all := make(map[string]*intake.Rules, len(st.byName))
	for name, s := range st.byName {
		all[name] = s.rules
	}
	return all
}

// largestRequest returns the size of the largest record that any of the topics takes.
func (st *servedTopics) largestRequest() (n int) {
	for _, s := range st.byName {
		n = max(n, s.set.Request.MaxMessageBytes)
	}
	return n
}

// stop stops a topic until a restart.
func (st *servedTopics) stop(name string, problems []topics.Problem) (why error) {
	why = fmt.Errorf("%s %s is stopped: %w", st.of(name).kind(), name, &topics.ProblemsError{Problems: problems})
	st.mu.Lock()
	defer st.mu.Unlock()
	st.stopped[name] = why
	return why
}

// stopOf returns why a topic is stopped; nil if it is not.
func (st *servedTopics) stopOf(name string) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.stopped[name]
}

// stops returns why topics are stopped, by topic.
func (st *servedTopics) stops() map[string]string {
	st.mu.Lock()
	defer st.mu.Unlock()
	all := make(map[string]string, len(st.stopped))
	for name, err := range st.stopped {
		all[name] = err.Error()
	}
	return all
}

package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/service/connect"
	"github.com/waterclock/waterclock/internal/service/policy"
	"github.com/waterclock/waterclock/internal/topics"
)

const (
	// refusedPause is the pause between two tries of who was refused: brokers
	// count and slow down failed logins.
	refusedPause = 3 * time.Second
	// accessTimeout bounds one look at the rights.
	accessTimeout = 15 * time.Second
	// accessInterval is how often a running instance looks at its rights.
	accessInterval = 30 * time.Second
	// awayReminder is how often it is said that no broker can be reached.
	awayReminder = 15 * time.Second
	// accessReminder is how often what is still missing is said again.
	accessReminder = time.Minute
)

// access is what the brokers let an instance do. They are asked before anything
// else is, so that each missing right is one sentence and not the error of
// whatever met it first, and from time to time while the instance runs.
type access struct {
	cfg    *config.Config
	client *kgo.Client
	log    *slog.Logger
	// probe is a transactional ID with the service's prefix that no lane uses.
	probe    string
	awaySaid time.Time // await's own

	mu       sync.Mutex // guards what follows
	problems []string   // each a sentence; with one the instance is not ready
	advice   []string   // sentences about single targets: timers for others fire
	said     time.Time
	targets  *config.Config // whose targets count; nil: cfg's
}

// use has the rights to other targets looked at from now on.
func (a *access) use(cfg *config.Config) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.targets = cfg
}

// wanted is what the rights depend on now.
func (a *access) wanted() topics.Access {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.targets != nil {
		return policy.Access(a.targets)
	}
	return policy.Access(a.cfg)
}

// Problems returns what keeps the instance from working, as sentences.
func (a *access) Problems() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.problems)
}

// await tries until a broker answers, has all that is needed, knows who asks,
// and lets it do everything that it must.
func (a *access) await(ctx context.Context) error {
	for {
		pause, err := a.attempt(ctx)
		if err != nil || pause == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// attempt is one try of await; with a pause it is to be repeated after that.
func (a *access) attempt(ctx context.Context) (pause time.Duration, err error) {
	err = connect.CheckBrokers(ctx, a.client)
	if err == nil {
		err = a.look(ctx)
	}
	var unfit *connect.UnfitError
	switch sentence := a.refusal(err); {
	case errors.As(err, &unfit):
		return 0, err
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case sentence != "":
		a.say([]string{sentence}, nil)
		return refusedPause, nil
	case err != nil:
		if time.Since(a.awaySaid) >= awayReminder {
			a.awaySaid = time.Now()
			a.log.Warn("no broker can be reached, trying again every second", "brokers", a.cfg.Brokers, "err", err)
		}
		return connectPause, nil
	case len(a.Problems()) > 0:
		return refusedPause, nil
	}
	return 0, nil
}

// watch looks at the rights until ctx ends. That brokers are away is for others
// to say.
func (a *access) watch(ctx context.Context, every time.Duration) {
	if every <= 0 {
		every = accessInterval
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := a.look(ctx)
		if sentence := a.refusal(err); sentence != "" {
			a.say([]string{sentence}, nil)
		} else if err != nil {
			a.log.Debug("cannot look at the rights", "err", err)
		}
	}
}

func (a *access) refusal(err error) string {
	if err == nil {
		return ""
	}
	return connect.Refusal(a.cfg, err)
}

// say makes the sentences the state of things, and logs them when they are new
// and once in a while.
func (a *access) say(problems, advice []string) {
	a.mu.Lock()
	before, said := a.problems, a.said
	news := !slices.Equal(problems, before) || !slices.Equal(advice, a.advice)
	if a.problems, a.advice = problems, advice; news || time.Since(said) >= accessReminder {
		a.said = time.Now()
	} else {
		problems, advice = nil, nil
	}
	a.mu.Unlock()
	for _, p := range problems {
		a.log.Error("the brokers do not let this instance work", "problem", p)
	}
	for _, p := range advice {
		a.log.Warn("the brokers do not let this instance write to a target", "problem", p)
	}
	if news && len(before) > 0 && len(a.Problems()) == 0 {
		a.log.Info("the brokers let this instance work")
	}
}

// look asks for every right. An error says that it could not.
func (a *access) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, accessTimeout)
	defer cancel()
	wanted := a.wanted()
	grants := wanted.Service()
	targets := make(map[string]bool)
	for _, g := range (topics.Access{Targets: wanted.Targets}).Service() {
		targets[g.Name] = g.Resource == kmsg.ACLResourceTypeTopic
	}
	missing, err := connect.MissingTopics(ctx, a.client, grants)
	if err != nil {
		return err
	}
	for _, g := range grants {
		var refused bool
		switch g.Resource {
		case kmsg.ACLResourceTypeGroup:
			refused, err = connect.LacksGroup(ctx, a.client, g.Name)
		case kmsg.ACLResourceTypeTransactionalId:
			refused, err = connect.LacksTransactions(ctx, a.client, a.probe)
		default:
			continue
		}
		if err != nil {
			return err
		}
		if refused {
			missing = append(missing, g)
		}
	}
	var problems, advice []string
	for _, g := range missing {
		sentence := connect.Missing(a.cfg, g)
		if g.Resource == kmsg.ACLResourceTypeTopic && targets[g.Name] {
			advice = append(advice, sentence)
		} else {
			problems = append(problems, sentence)
		}
	}
	a.say(problems, advice)
	return nil
}

var descMissingRights = prometheus.NewDesc("waterclock_access_problems",
	"Rights that the brokers do not grant this instance, and logins that they refuse.", nil, nil)

// Describe implements prometheus.Collector.
func (a *access) Describe(ch chan<- *prometheus.Desc) { ch <- descMissingRights }

// Collect implements prometheus.Collector.
func (a *access) Collect(ch chan<- prometheus.Metric) {
	a.mu.Lock()
	n := len(a.problems) + len(a.advice)
	a.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(descMissingRights, prometheus.GaugeValue, float64(n))
}

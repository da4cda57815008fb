package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/tasks"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/dialer"
	"github.com/waterclock/waterclock/internal/node/policy"
)

// cluster has the instance's clients and the state of its brokers.
type cluster struct {
	log     *slog.Logger
	options []kgo.Opt   // for further clients
	client  *kgo.Client // for administration and raw fetches
	dialer  *dialer.Dialer
	targets *targets.Metadata
	lanes   atomic.Pointer[emitter.Lanes] // told when a broker comes or goes; nil until the pipeline is built

	probing *tasks.Group
}

var _ targets.Reach = (*dialer.Dialer)(nil)

// openCluster makes the first client, and the dialer that probes the brokers until close is called.
func openCluster(cfg *config.Config, process string, o *Options, log *slog.Logger) (*cluster, error) {
	c := &cluster{log: log, probing: tasks.New(context.Background())}
	var err error
	if c.options, err = connect.Options(cfg, clientPrefix+process, log); err != nil {
		return nil, err
	}
	dial := o.Dial
	if dial == nil {
		dial = connect.Dial(cfg)
	}
	c.dialer = dialer.New(dial, log, o.Registry)
	c.options = append(c.options, kgo.Dialer(c.dialer.Dial))
	// Each request of this client has a time limit, because other parts wait for the answers.
	if c.client, err = kgo.NewClient(
		append(slices.Clone(c.options), kgo.RequestTimeoutOverhead(emitter.RequestTimeout))...); err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}
	c.targets = targets.NewMetadata(c.client,
		targets.MetadataOptions{MissingAfter: o.MissingAfter, Reach: c.dialer, Changed: c.reached})
	c.dialer.OnChange(func() { c.targets.ReachabilityChanged(); c.reached() })
	c.probing.Go(func(ctx context.Context) { _ = c.dialer.Run(ctx) })
	return c, nil
}

// recognize asks whether the cluster is that of dev, which creates targets on first use.
func (c *cluster) recognize(ctx context.Context) error {
	return c.insist(ctx, "cannot read the cluster's ID", func() (err error) {
		c.targets.AutoCreate, err = connect.IsDev(ctx, c.client)
		return err
	})
}

func (c *cluster) close() {
	c.probing.Stop()
	c.client.Close()
}

// reached tells the lanes that a broker came or went.
func (c *cluster) reached() {
	if lanes := c.lanes.Load(); lanes != nil {
		lanes.ReachabilityChanged()
	}
}

// insist repeats try while connections break, so that a broker that dies while an instance starts does not end the
// instance.
func (c *cluster) insist(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil || !connectionBroke(err) || ctx.Err() != nil {
			return err
		}
		c.log.Warn(what+", retrying every second", "err", err)
		if !beats.Sleep(ctx, connectPause) {
			return err
		}
	}
}

// connectionBroke reports whether an error says that no broker has answered.
func connectionBroke(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed)
}

const (
	// refusedPause is the pause between two tries after a refusal: brokers count failed logins and slow them down.
	refusedPause = 3 * time.Second
	// accessTimeout bounds one check of the rights.
	accessTimeout = 15 * time.Second
	// accessInterval is how often a running instance checks its rights.
	accessInterval = 30 * time.Second
	// unreachableReminder is how often the log says that no broker can be reached.
	unreachableReminder = 15 * time.Second
	// accessReminder is how often the log repeats missing permissions.
	accessReminder = time.Minute
)

// access checks the permissions of an instance. It does so before anything else, so that each missing one is reported
// as one sentence, and not as an error of the part that needed it first. It checks again from time to time while the
// instance runs.
type access struct {
	cfg    *config.Config
	client *kgo.Client
	log    *slog.Logger
	// probe is a transactional ID with the service's prefix that no lane uses.
	probe string
	away  beats.Reminder // only await uses it

	mu       sync.Mutex // guards the fields below
	problems []string   // sentences; the instance is not ready while there is one
	advice   []string   // sentences about permissions that only some targets, or no timers, need
	again    beats.Reminder
	targets  *config.Config // the settings whose targets count
}

// use replaces the settings whose targets count.
func (a *access) use(cfg *config.Config) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.targets = cfg
}

// wanted returns everything that the permissions depend on now.
func (a *access) wanted() topics.Access {
	a.mu.Lock()
	defer a.mu.Unlock()
	return policy.Access(a.targets)
}

// Problems returns the problems that keep the instance from working, as sentences.
func (a *access) Problems() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.problems)
}

// await tries until the brokers answer, accept the login, and grant every required permission. It returns an error if
// the cluster is too old.
func (a *access) await(ctx context.Context) error {
	for {
		pause, err := a.attempt(ctx)
		if err != nil || pause == 0 {
			return err
		}
		if !beats.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// attempt is one try of await. If it returns a pause, the caller waits that long and tries again.
func (a *access) attempt(ctx context.Context) (pause time.Duration, err error) {
	err = connect.CheckBrokers(ctx, a.client)
	if err == nil {
		err = a.look(ctx)
	}
	var unfit *connect.UnfitError
	switch sentence := connect.Refusal(a.cfg, err); {
	case errors.As(err, &unfit):
		return 0, err
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case sentence != "":
		a.report([]string{sentence}, nil)
		return refusedPause, nil
	case err != nil:
		if a.away.Due(unreachableReminder) {
			a.log.Warn("no broker can be reached, retrying every second", "brokers", a.cfg.Brokers, "err", err)
		}
		return connectPause, nil
	case len(a.Problems()) > 0:
		return refusedPause, nil
	}
	return 0, nil
}

// watch checks the rights until ctx ends. It does not report unreachable brokers; other parts do.
func (a *access) watch(ctx context.Context, every time.Duration) {
	if every <= 0 {
		every = accessInterval
	}
	beats.Every(ctx, every, func() {
		err := a.look(ctx)
		if sentence := connect.Refusal(a.cfg, err); sentence != "" {
			a.report([]string{sentence}, nil)
		} else if err != nil {
			a.log.Debug("cannot check Kafka permissions", "err", err)
		}
	})
}

// report sets the problems and the advice. It logs new ones, and repeats them at most once every accessReminder.
func (a *access) report(problems, advice []string) {
	a.mu.Lock()
	before := a.problems
	news := !slices.Equal(problems, before) || !slices.Equal(advice, a.advice)
	if news {
		a.again = beats.Reminder{}
	}
	if a.problems, a.advice = problems, advice; !a.again.Due(accessReminder) {
		problems, advice = nil, nil
	}
	a.mu.Unlock()
	for _, p := range problems {
		a.log.Error("missing Kafka permissions", "problem", p)
	}
	for _, p := range advice {
		a.log.Warn("missing Kafka permissions that only some timers need", "problem", p)
	}
	if news && len(before) > 0 && len(a.Problems()) == 0 {
		a.log.Info("Kafka permissions complete")
	}
}

// look checks every permission that brokers can be asked about. It returns an error if it could not ask.
func (a *access) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, accessTimeout)
	defer cancel()
	wanted := a.wanted()
	grants := wanted.Service()
	missing, err := connect.MissingTopics(ctx, a.client, grants)
	if err != nil {
		return err
	}
	for _, g := range grants {
		refused, err := connect.Lacks(ctx, a.client, g, a.probe)
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
		target := g.Resource == kmsg.ACLResourceTypeTopic && slices.Contains(wanted.Targets, g.Name)
		if target || g.Name == topics.Reviewed(wanted.Group) { // timers fire without it
			advice = append(advice, sentence)
		} else {
			problems = append(problems, sentence)
		}
	}
	a.report(problems, advice)
	return nil
}

// count returns how many problems and sentences of advice there are.
func (a *access) count() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return float64(len(a.problems) + len(a.advice))
}

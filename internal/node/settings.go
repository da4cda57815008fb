package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/metric"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/policy"
	"github.com/waterclock/waterclock/internal/ownership/membership"
	"github.com/waterclock/waterclock/internal/rates"
)

const (
	// compareEvery is how often the settings of the group's members are compared. In a group of more than ten it is
	// compareEach for each member: all members ask, and an answer has the user data of all.
	compareEvery, compareEach = 10 * time.Second, time.Second
	// compareRetry is the pause after a look that has failed, or found the group rebalancing: brokers show no user data
	// then.
	compareRetry = time.Second
	// compareTimeout bounds one look.
	compareTimeout = 5 * time.Second
)

// settingsWatch compares the settings by which the instances of the group judge requests. Each instance publishes a
// digest in its user data, and reads the others' from the description of the group. It describes the group
// periodically, because a static member may return with other settings without a rebalance.
type settingsWatch struct {
	client *kgo.Client
	group  string
	log    *slog.Logger
	own    atomic.Pointer[config.Digest]
	gauge  *prometheus.GaugeVec

	logged string // the last difference that was logged; "": none. Used only by Run

	mu  sync.Mutex          // guards odd
	odd map[string][]string // by process, as of the last look that succeeded; see config.Odd
}

func newSettingsWatch(
	cfg *config.Config, client *kgo.Client, log *slog.Logger, registry *prometheus.Registry,
) *settingsWatch {
	w := &settingsWatch{
		client: client, group: cfg.Group, log: log,
		gauge: metric.In(registry).Gauges("waterclock_settings_differing",
			"Instances of the group whose setting differs from that of most.", "setting"),
	}
	w.set(cfg)
	return w
}

// set replaces this instance's settings, and reports whether requests are judged differently now.
func (s *settingsWatch) set(cfg *config.Config) (changed bool) {
	d := cfg.Digest()
	was := s.own.Swap(&d)
	return was != nil && len(was.Differs(d)) > 0
}

// digest returns the digest that this instance publishes.
func (s *settingsWatch) digest() []byte { return *s.own.Load() }

// of returns the settings in which a process differs from most instances of the group. It is empty if there are none,
// and nil if that is not known.
func (s *settingsWatch) of(process string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	odd, known := s.odd[process]
	if known && odd == nil {
		odd = []string{}
	}
	return odd
}

// Run compares until ctx ends.
func (s *settingsWatch) Run(ctx context.Context) error {
	for wait := compareRetry; beats.Sleep(ctx, wait); {
		members, ok := s.look(ctx)
		if wait = compareRetry; ok {
			s.compare(members)
			wait = max(compareEvery, time.Duration(len(members))*compareEach)
		}
	}
	return nil
}

// look returns the members of the group, unless it rebalances or no broker answers.
func (s *settingsWatch) look(ctx context.Context) (members []membership.Member, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	groups, err := kadm.NewClient(s.client).DescribeGroups(ctx, s.group)
	g := groups[s.group]
	if err != nil || g.Err != nil || g.State != "Stable" {
		return nil, false
	}
	return membership.Members(&g), true
}

// compare finds settings that differ, and publishes them in of, in the metric and, when they change, in the log.
func (s *settingsWatch) compare(members []membership.Member) {
	digests := make(map[string]config.Digest)
	for _, m := range members {
		digests[m.Process] = m.Settings
	}
	odd := config.Odd(digests)
	s.mu.Lock()
	s.odd = odd
	s.mu.Unlock()
	by := make(map[string][]string) // instances by setting
	for _, m := range members {
		for _, setting := range odd[m.Process] {
			by[setting] = append(by[setting], m.Name+"/"+m.Process)
		}
	}
	s.gauge.Reset()
	var settings, instances []string
	for _, setting := range slices.Sorted(maps.Keys(by)) {
		s.gauge.WithLabelValues(setting).Set(float64(len(by[setting])))
		settings, instances = append(settings, setting), append(instances, by[setting]...)
	}
	slices.Sort(instances)
	s.logChange(settings, slices.Compact(instances))
}

// logChange logs which settings differ, if that has changed.
func (s *settingsWatch) logChange(settings, instances []string) {
	now := ""
	if len(settings) > 0 {
		now = slog.GroupValue(slog.Any("settings", settings), slog.Any("instances", instances)).String()
	}
	switch now {
	case s.logged:
	case "":
		s.log.Info("settings are the same in all instances of the group again", "group", s.group)
	default:
		s.log.Warn("settings differ between instances of the group: the outcome of a request depends on which of them "+
			"owns its partition; give all the same settings",
			"group", s.group, "settings", settings, "instances", instances)
	}
	s.logged = now
}

// reloader applies the settings that can change while the instance runs.
type reloader struct {
	running  *config.Config // the settings in effect
	next     <-chan *config.Config
	topics   *servedTopics
	reader   *intake.Reader
	limiter  *rates.Limiter
	access   *access
	settings *settingsWatch
	rejoin   func() // tells the group of other settings
	log      *slog.Logger
}

// Run takes over new settings until ctx ends.
func (r *reloader) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-r.next:
			r.takeOver(next)
		}
	}
}

// takeOver applies the settings of next that can change without a restart, from the next request on. It logs those that
// wait for a restart.
func (r *reloader) takeOver(next *config.Config) {
	now, later := r.running.Changes(next)
	if len(later) > 0 {
		r.log.Warn("settings changed that need a restart, the old ones stay until then",
			"settings", later)
	}
	if len(now) == 0 {
		r.log.Info("configuration reloaded, nothing changed")
		return
	}
	cfg := r.running.Live(next)
	r.running = cfg
	for name, t := range r.topics.requests() {
		t.rules.Replace(policy.Rules(cfg, t.set))
		r.reader.SetQuota(name, policy.Quota(cfg, t.set))
	}
	for _, d := range cfg.Delay {
		if t := r.topics.of(d.Topic); t != nil {
			t.rules.Replace(policy.DelayRules(cfg, d, t.set))
		}
	}
	r.limiter.Replace(policy.Rates(cfg))
	r.access.use(cfg)
	if r.settings.set(cfg) {
		r.rejoin()
	}
	r.log.Info("configuration reloaded", "settings", now)
}

// refusedSetting returns err as a problem of a setting, if err says that the brokers do not allow its value.
func refusedSetting(cfg *config.Config, err error) error {
	switch {
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return &config.Problem{
			Setting: "session-timeout", Found: span.String(cfg.SessionTimeout),
			Need: "to lie within the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms",
		}
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return &config.Problem{
			Setting: "transaction-timeout", Found: span.String(cfg.TransactionTimeout),
			Need: "to be at most the brokers' transaction.max.timeout.ms",
		}
	}
	return err
}

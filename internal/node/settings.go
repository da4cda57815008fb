package node

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/metric"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/ownership/membership"
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
			"Instances of the group whose setting, by which requests are judged, is not that of most.", "setting"),
	}
	w.set(cfg)
	return w
}

// set replaces this instance's settings, and reports whether requests are judged differently now.
func (w *settingsWatch) set(cfg *config.Config) (changed bool) {
	d := cfg.Digest()
	was := w.own.Swap(&d)
	return was != nil && len(was.Differs(d)) > 0
}

// digest returns the digest that this instance publishes.
func (w *settingsWatch) digest() []byte { return *w.own.Load() }

// of returns the settings in which a process differs from most instances of the group. It is empty if there are none,
// and nil if that is not known.
func (w *settingsWatch) of(process string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	odd, known := w.odd[process]
	if known && odd == nil {
		odd = []string{}
	}
	return odd
}

// Run compares until ctx ends.
func (w *settingsWatch) Run(ctx context.Context) error {
	for wait := compareRetry; beats.Sleep(ctx, wait); {
		members, ok := w.look(ctx)
		if wait = compareRetry; ok {
			w.compare(members)
			wait = max(compareEvery, time.Duration(len(members))*compareEach)
		}
	}
	return nil
}

// look returns the members of the group, unless it rebalances or no broker answers.
func (w *settingsWatch) look(ctx context.Context) (members []membership.Member, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	groups, err := kadm.NewClient(w.client).DescribeGroups(ctx, w.group)
	g := groups[w.group]
	if err != nil || g.Err != nil || g.State != "Stable" {
		return nil, false
	}
	return membership.Members(&g), true
}

// compare finds settings that differ, and publishes them in of, in the metric and, when they change, in the log.
func (w *settingsWatch) compare(members []membership.Member) {
	digests := make(map[string]config.Digest)
	for _, m := range members {
		digests[m.Process] = m.Settings
	}
	odd := config.Odd(digests)
	w.mu.Lock()
	w.odd = odd
	w.mu.Unlock()
	by := make(map[string][]string) // instances by setting
	for _, m := range members {
		for _, setting := range odd[m.Process] {
			by[setting] = append(by[setting], m.Name+"/"+m.Process)
		}
	}
	w.gauge.Reset()
	var settings, instances []string
	for _, setting := range slices.Sorted(maps.Keys(by)) {
		w.gauge.WithLabelValues(setting).Set(float64(len(by[setting])))
		settings, instances = append(settings, setting), append(instances, by[setting]...)
	}
	slices.Sort(instances)
	w.logChange(settings, slices.Compact(instances))
}

// logChange logs which settings differ, if that has changed.
func (w *settingsWatch) logChange(settings, instances []string) {
	now := ""
	if len(settings) > 0 {
		now = slog.GroupValue(slog.Any("settings", settings), slog.Any("instances", instances)).String()
	}
	switch now {
	case w.logged:
	case "":
		w.log.Info("all instances of the group judge requests by the same settings again", "group", w.group)
	default:
		w.log.Warn("settings differ between instances of the group: what happens to a timer depends on which of them "+
			"owns its partition; give all the same settings",
			"group", w.group, "settings", settings, "instances", instances)
	}
	w.logged = now
}

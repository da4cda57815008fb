package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/metric"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/policy"
)

const (
	// recheckTimeout bounds one check of a topic and its own topics, one glance, and one read of settings.
	recheckTimeout = 30 * time.Second
	// glanceEvery is how often one request asks the brokers whether all topics still exist with their UUIDs and
	// partition counts.
	glanceEvery = 2 * time.Second
	// settingsEvery is how often topic settings are read between two checks. A partition uses them between two
	// acquisitions. Later they decide whether a view can be used.
	settingsEvery = 30 * time.Second
	// A problem that is not certain must last for recheckAgain before it stops a topic. If the problem is that a topic
	// is gone, it must last for recheckGone, because a broker that has just started may deny that a topic exists.
	recheckAgain = 2 * time.Second
	recheckGone  = 10 * time.Second
	// stoppedEvery is how often the log says that a topic is stopped.
	stoppedEvery = time.Minute
)

// recheck checks the topics again and again. If a topic is gone, was recreated, or has another partition count or
// cleanup policy, timers could be damaged beyond repair. So the request topic, or fixed-delay topic, is stopped until a
// restart. Every other problem is an alert.
//
// A check of everything runs every --topic-check-interval. A look at the metadata every glanceEvery brings a check
// forward if something has changed. Every settingsEvery, and at each check of everything, recheck reads the settings
// that partitions use.
type recheck struct {
	cfg        *config.Config
	topics     *servedTopics
	partitions *partitions
	log        *slog.Logger
	adm        *kadm.Client
	checks     *prometheus.CounterVec
	wrong      *prometheus.GaugeVec
	counts     *prometheus.GaugeVec // partitions of topics
	// suspect is when topics were first seen with a problem that will stop them if it lasts. A check that finds no such
	// problem removes the topic.
	suspect map[string]time.Time
	// settings are those that were last logged, or that the topics were found with. Partitions read settings too, so
	// the last ones read may be newer.
	settings map[string]topics.Settings
}

func newRecheck(cfg *config.Config, t *servedTopics, ps *partitions, cl *kgo.Client, log *slog.Logger,
	registry *prometheus.Registry) *recheck {
	in := metric.In(registry)
	r := &recheck{
		cfg: cfg, topics: t, partitions: ps, log: log, adm: kadm.NewClient(cl),
		suspect: make(map[string]time.Time), settings: make(map[string]topics.Settings),
		checks: in.Counters("waterclock_topic_checks_total",
			"Checks of the topics of a request topic while running, by result: ok, alert, stop, error.",
			"topic", "result"),
		wrong: in.Gauges("waterclock_topic_problems",
			"Problems of the topics of a request topic at the last check; a stop problem stays until a restart.",
			"topic", "severity"),
		counts: in.Gauges("waterclock_topic_partitions",
			"Partitions of a served topic, whoever owns them, by recent metadata.",
			"topic"),
	}
	for _, name := range t.names() {
		r.settings[name] = t.of(name).set.Settings()
		r.counts.WithLabelValues(name).Set(float64(t.of(name).set.Request.Partitions))
		r.wrong.WithLabelValues(name, "alert").Set(0)
		r.wrong.WithLabelValues(name, "stop").Set(0)
		for _, result := range []string{"ok", "alert", "stop", "error"} {
			r.checks.WithLabelValues(name, result)
		}
	}
	return r
}

// Run checks until ctx ends.
func (r *recheck) Run(ctx context.Context) error {
	check := time.NewTicker(r.cfg.TopicCheckInterval)
	defer check.Stop()
	glance := time.NewTicker(glanceEvery)
	defer glance.Stop()
	settings := time.NewTicker(settingsEvery)
	defer settings.Stop()
	complain := time.NewTicker(stoppedEvery)
	defer complain.Stop()
	for {
		var names []string
		select {
		case <-ctx.Done():
			return nil
		case <-complain.C:
			r.complain()
		case <-settings.C:
			r.readSettings(ctx)
		case <-glance.C:
			names = r.glance(ctx)
		case <-check.C:
			r.readSettings(ctx)
			r.checkCalendars(ctx)
			names = r.served()
		case <-r.topics.check:
			names = r.served()
		}
		for _, name := range names {
			r.check(ctx, name, r.topics.of(name).set)
		}
	}
}

// served returns the topics that are not stopped.
func (r *recheck) served() (names []string) {
	for _, name := range r.topics.names() {
		if r.topics.stopOf(name) == nil {
			names = append(names, name)
		}
	}
	return names
}

// glance asks for the metadata of all topics that are served and not stopped. It returns the topics to check: those
// that have changed since the start, and those that are suspect. It returns none if no broker answers.
func (r *recheck) glance(ctx context.Context) (names []string) {
	served := r.served()
	var all []string
	for _, name := range served {
		set := &r.topics.of(name).set
		all = append(all, set.Request.Name)
		for _, own := range set.Own() {
			all = append(all, own.Name)
		}
	}
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	// With authorised operations kadm does not answer from its cache.
	found, err := r.adm.ListTopics(kadm.WithAuthorizedOps(ctx), all...)
	if err != nil {
		return nil
	}
	for _, name := range served {
		if topic, there := found[name]; there && topic.Err == nil {
			r.counts.WithLabelValues(name).Set(float64(len(topic.Partitions)))
		}
		set := &r.topics.of(name).set
		_, suspect := r.suspect[name]
		if suspect || changed(found, &set.Request) ||
			slices.ContainsFunc(set.Own(), func(own *topics.Topic) bool { return changed(found, own) }) {
			names = append(names, name)
		}
	}
	return names
}

// readSettings reads the topics' settings as they are now. It ignores errors, because code that needs a setting reads
// it itself.
func (r *recheck) readSettings(ctx context.Context) {
	for _, name := range r.served() {
		t := r.topics.of(name)
		asking, cancel := context.WithTimeout(ctx, recheckTimeout)
		now, err := t.settings.Now(asking)
		cancel()
		if err == nil {
			r.logAltered(name, now, t.set.Delay == 0)
		}
	}
}

// logAltered logs settings that are not as before. views says that the age of local views is limited.
func (r *recheck) logAltered(name string, now topics.Settings, views bool) {
	before := r.settings[name]
	r.settings[name] = now
	if before.Timestamps == "" {
		before.Timestamps = now.Timestamps // it was not read before
	}
	switch {
	case views && now.Keeps() < before.Keeps():
		// Older: out of use, or in its first replay, for longer than limit.
		r.log.Warn("changelog keeps deletions for less time, older local views will be replayed",
			"topic", name, "limit", span.String(now.MaxAbsence()), "previous", before, "current", now)
	case now != before:
		r.log.Info("topic settings changed", "topic", name, "previous", before, "current", now)
	}
}

// changed reports whether a topic is gone, was recreated, or has another number of partitions.
func changed(found kadm.TopicDetails, was *topics.Topic) bool {
	current, there := found[was.Name]
	if !there || errors.Is(current.Err, kerr.UnknownTopicOrPartition) {
		return true
	}
	return current.Err == nil && ([16]byte(current.ID) != was.ID || len(current.Partitions) != int(was.Partitions))
}

func (r *recheck) look(ctx context.Context, set topics.Set) (stop, alert []topics.Problem, err error) {
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	return topics.Recheck(ctx, r.adm, set, policy.TopicOptions(r.cfg, set.Request.Name, set.Delay, r.cfg.CreateTopics))
}

// check checks one topic. A problem stops the topic only if it is confirmed.
func (r *recheck) check(ctx context.Context, name string, set topics.Set) {
	stop, alert, err := r.look(ctx, set)
	if ctx.Err() != nil || err == nil && !r.confirmed(name, stop) {
		return
	}
	result := "ok"
	switch {
	case err != nil:
		result = "error"
		r.log.Warn("cannot check topics", "topic", name, "err", err)
	case len(stop) > 0:
		result = "stop"
		r.wrong.WithLabelValues(name, "stop").Set(float64(len(stop)))
		why := r.topics.stop(name, stop) // partitions that are assigned later are refused then
		r.complain()
		r.partitions.refuse(name, why)
	case len(alert) > 0:
		result = "alert"
	}
	r.checks.WithLabelValues(name, result).Inc()
	if err != nil {
		return
	}
	r.wrong.WithLabelValues(name, "alert").Set(float64(len(alert)))
	for _, p := range alert {
		r.log.Warn("unsuitable topic setting", "topic", name, "problem", p.String())
	}
}

// checkCalendars checks the topic of calendars. Its problems stop nothing: calendars that are known stay in force.
func (r *recheck) checkCalendars(ctx context.Context) {
	if len(r.cfg.Requests) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	name := topics.Calendars(r.cfg.Group)
	checks, err := topics.InspectCalendars(ctx, r.adm, r.cfg.Group, r.cfg.Requests)
	if err != nil {
		r.log.Warn("cannot check topics", "topic", name, "err", err)
		return
	}
	n := 0
	for _, c := range checks {
		if !c.OK {
			n++
			r.log.Warn("unsuitable topic setting", "topic", name, "problem", c.String())
		}
	}
	r.wrong.WithLabelValues(name, "alert").Set(float64(n))
}

// confirmed reports whether the result of a check counts. It does if the check has found nothing that stops the topic,
// or if such a problem is certain or has lasted long enough.
func (r *recheck) confirmed(name string, stop []topics.Problem) bool {
	if len(stop) == 0 {
		delete(r.suspect, name)
		return true
	}
	if slices.ContainsFunc(stop, func(p topics.Problem) bool { return p.Certain }) {
		return true
	}
	since, suspect := r.suspect[name]
	if !suspect {
		r.suspect[name] = time.Now()
		return false
	}
	least := recheckAgain
	for _, p := range stop {
		if p.Gone() {
			least = recheckGone
		}
	}
	return time.Since(since) >= least
}

func (r *recheck) complain() {
	for name, why := range r.topics.stops() {
		r.log.Error("topic stopped: fix the cause, then restart", "topic", name, "err", why)
	}
}

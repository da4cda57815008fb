package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/service/policy"
	"github.com/waterclock/waterclock/internal/topics"
)

const (
	// recheckTimeout bounds one look at the topics of a request topic.
	recheckTimeout = 30 * time.Second
	// glanceEvery is how often the brokers are asked, in one request, whether all
	// topics are there with their UUIDs and partition counts.
	glanceEvery = 2 * time.Second
	// settingsEvery is how often the settings are read that a partition uses between two
	// acquisitions, and by which a view will be judged later.
	settingsEvery = 30 * time.Second
	// A problem that stops a topic must have been seen for recheckAgain, one that is
	// gone for recheckGone: a broker that has just started may deny what exists.
	recheckAgain = 2 * time.Second
	recheckGone  = 10 * time.Second
	// stoppedEvery is how often a stopped topic is complained about.
	stoppedEvery = time.Minute
)

// recheck looks at the topics again and again. What another topic of that name,
// another partition count or another cleanup policy would do to timers cannot be
// undone, so it stops the request topic, until a restart; everything else is an
// alert. Settings are looked at every --topic-check-interval, what a metadata
// request shows every two seconds. mu guards what follows it.
type recheck struct {
	in     *instance
	adm    *kadm.Client
	now    chan struct{} // look at once
	checks *prometheus.CounterVec
	wrong  *prometheus.GaugeVec
	counts *prometheus.GaugeVec // partitions of topics
	// suspect is since when request topics have had a problem that will stop them;
	// a check that finds none ends it. Run's own.
	suspect map[string]time.Time

	mu      sync.Mutex
	stopped map[string]error // by request topic
}

func newRecheck(in *instance) *recheck {
	r := &recheck{
		in: in, adm: kadm.NewClient(in.client), now: make(chan struct{}, 1), stopped: make(map[string]error), suspect: make(map[string]time.Time),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_topic_checks_total", Help: "Checks of the topics of a request topic while running, by result: ok, alert, stop, error.",
		}, []string{"topic", "result"}),
		wrong: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waterclock_topic_problems", Help: "Problems of the topics of a request topic at the last check; a stop problem stays until a restart.",
		}, []string{"topic", "severity"}),
	}
	r.counts = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "waterclock_topic_partitions", Help: "Partitions that a topic that is served has, whoever owns them, by its metadata of the last seconds.",
	}, []string{"topic"})
	for _, name := range in.all() {
		r.counts.WithLabelValues(name).Set(float64(in.of(name).set.Request.Partitions))
		r.wrong.WithLabelValues(name, "alert").Set(0)
		r.wrong.WithLabelValues(name, "stop").Set(0)
		for _, result := range []string{"ok", "alert", "stop", "error"} {
			r.checks.WithLabelValues(name, result)
		}
	}
	in.registry.MustRegister(r.checks, r.wrong, r.counts)
	return r
}

// Run checks until ctx ends.
func (r *recheck) Run(ctx context.Context) error {
	check := time.NewTicker(r.in.cfg.TopicCheckInterval)
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
			names = r.served()
		case <-r.now:
			names = r.served()
		}
		for _, name := range names {
			r.check(ctx, name, r.in.of(name).set)
		}
	}
}

// served are the topics that are not stopped.
func (r *recheck) served() (names []string) {
	for _, name := range r.in.all() {
		if r.stop(name) == nil {
			names = append(names, name)
		}
	}
	return names
}

// glance asks for the metadata of all topics that are served, and returns the
// request topics to be checked: those of which something looks otherwise than at
// the start, and those that are suspect. That nobody answers is no news.
func (r *recheck) glance(ctx context.Context) (names []string) {
	served := r.served()
	var all []string
	for _, name := range served {
		set := &r.in.of(name).set
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
		if is, there := found[name]; there && is.Err == nil {
			r.counts.WithLabelValues(name).Set(float64(len(is.Partitions)))
		}
		set := &r.in.of(name).set
		_, suspect := r.suspect[name]
		if suspect || changed(found, &set.Request) || slices.ContainsFunc(set.Own(), func(own *topics.Topic) bool { return changed(found, own) }) {
			names = append(names, name)
		}
	}
	return names
}

// readSettings reads the settings as they are now. It ignores brokers that do not answer: code that
// needs a setting reads it itself.
func (r *recheck) readSettings(ctx context.Context) {
	for _, name := range r.served() {
		t := r.in.of(name)
		before := t.settings.Last()
		asking, cancel := context.WithTimeout(ctx, recheckTimeout)
		now, err := t.settings.Now(asking)
		cancel()
		if before.Timestamps == "" {
			before.Timestamps = now.Timestamps // was not read before
		}
		if err == nil && now != before {
			r.in.log.Info("settings of topics were altered", "topic", name, "before", before, "now", now)
		}
	}
}

// changed reports whether a topic is gone, another one, or of other partitions.
func changed(found kadm.TopicDetails, was *topics.Topic) bool {
	is, there := found[was.Name]
	if !there || errors.Is(is.Err, kerr.UnknownTopicOrPartition) {
		return true
	}
	return is.Err == nil && ([16]byte(is.ID) != was.ID || len(is.Partitions) != int(was.Partitions))
}

// soon asks for a check out of turn.
func (r *recheck) soon() {
	select {
	case r.now <- struct{}{}:
	default:
	}
}

// stop is why a request topic is stopped, nil if it is not.
func (r *recheck) stop(topic string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped[topic]
}

// stops are the sentences of all stopped topics.
func (r *recheck) stops() map[string]string {
	if r == nil {
		return nil // not started yet
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var all map[string]string
	for name, err := range r.stopped {
		if all == nil {
			all = make(map[string]string)
		}
		all[name] = err.Error()
	}
	return all
}

func (r *recheck) look(ctx context.Context, set topics.Set) (stop, alert []topics.Problem, err error) {
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	return topics.Recheck(ctx, r.adm, set, policy.TopicOptions(r.in.cfg, set.Request.Name, set.Delay, r.in.cfg.CreateTopics))
}

// check looks at one request topic. What stops it must have been seen before.
func (r *recheck) check(ctx context.Context, name string, set topics.Set) {
	stop, alert, err := r.look(ctx, set)
	if ctx.Err() != nil || err == nil && !r.confirmed(name, stop) {
		return
	}
	result := "ok"
	switch {
	case err != nil:
		result = "error"
		r.in.log.Warn("cannot check topics", "topic", name, "err", err)
	case len(stop) > 0:
		result = "stop"
		r.wrong.WithLabelValues(name, "stop").Set(float64(len(stop)))
		r.stopTopic(name, stop)
	case len(alert) > 0:
		result = "alert"
	}
	r.checks.WithLabelValues(name, result).Inc()
	if err != nil {
		return
	}
	r.wrong.WithLabelValues(name, "alert").Set(float64(len(alert)))
	for _, p := range alert {
		r.in.log.Warn("topic setting", "topic", name, "problem", p.String())
	}
}

// confirmed reports whether a check is final: it finds nothing that stops the topic,
// or has found that for long enough.
func (r *recheck) confirmed(name string, stop []topics.Problem) bool {
	if len(stop) == 0 {
		delete(r.suspect, name)
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

// stopTopic makes every partition of a request topic fail, those that come later
// too. Other request topics go on.
func (r *recheck) stopTopic(name string, problems []topics.Problem) {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	why := fmt.Errorf("%s %s is stopped: %s", r.in.kind(name), name, strings.Join(lines, "; "))
	r.mu.Lock()
	r.stopped[name] = why
	r.mu.Unlock()
	r.complain()
	for _, p := range r.in.ownedOf(name) {
		p.Life().Refuse(why)
	}
}

func (r *recheck) complain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, why := range r.stopped {
		r.in.log.Error("a topic is stopped until a restart", "topic", name, "err", why)
	}
}

// kind is what a topic is to the service.
func (in *instance) kind(topic string) string {
	if in.topics[topic] == nil {
		return "fixed-delay topic"
	}
	return "request topic"
}

// errNewPartition is why a partition is not served that the topic did not have.
var errNewPartition = errors.New("the topic had fewer partitions when this instance started: it is being checked")

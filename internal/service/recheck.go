package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/delaytopics"
)

const (
	// recheckTimeout bounds one look at the topics of a request topic.
	recheckTimeout = 30 * time.Second
	// recheckAgain is the pause before a problem that stops a topic is looked at
	// a second time: a broker that has just started may deny what exists.
	recheckAgain = 2 * time.Second
	// stoppedEvery is how often a stopped topic is complained about.
	stoppedEvery = time.Minute
)

// recheck looks at the topics again and again. What another topic of that name,
// another partition count or another cleanup policy would do to timers cannot be
// undone, so it stops the request topic, until a restart; everything else is an
// alarm. mu guards what follows it.
type recheck struct {
	in     *instance
	adm    *kadm.Client
	now    chan struct{} // look at once
	checks *prometheus.CounterVec
	wrong  *prometheus.GaugeVec

	mu      sync.Mutex
	stopped map[string]error // by request topic
}

func newRecheck(in *instance) *recheck {
	r := &recheck{
		in: in, adm: kadm.NewClient(in.client), now: make(chan struct{}, 1), stopped: make(map[string]error),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_topic_checks_total", Help: "Checks of the topics of a request topic while running, by result: ok, alarm, stop, error.",
		}, []string{"topic", "result"}),
		wrong: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waterclock_topic_problems", Help: "Problems of the topics of a request topic at the last check; a stop problem stays until a restart.",
		}, []string{"topic", "severity"}),
	}
	for name := range in.topics {
		r.wrong.WithLabelValues(name, "alarm").Set(0)
		r.wrong.WithLabelValues(name, "stop").Set(0)
		for _, result := range []string{"ok", "alarm", "stop", "error"} {
			r.checks.WithLabelValues(name, result)
		}
	}
	in.registry.MustRegister(r.checks, r.wrong)
	return r
}

// Run checks until ctx ends.
func (r *recheck) Run(ctx context.Context) error {
	check := time.NewTicker(r.in.cfg.TopicCheckInterval)
	defer check.Stop()
	complain := time.NewTicker(stoppedEvery)
	defer complain.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-complain.C:
			r.complain()
			continue
		case <-check.C:
		case <-r.now:
		}
		for name, t := range r.in.topics {
			if r.stop(name) == nil {
				r.check(ctx, name, t.set)
			}
		}
	}
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

func (r *recheck) look(ctx context.Context, set delaytopics.Set) (stop, alarm []delaytopics.Problem, err error) {
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	return delaytopics.Recheck(ctx, r.adm, set, delaytopics.Options{})
}

// check looks at one request topic, twice before it stops it.
func (r *recheck) check(ctx context.Context, name string, set delaytopics.Set) {
	stop, alarm, err := r.look(ctx, set)
	if err == nil && len(stop) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(recheckAgain):
		}
		stop, alarm, err = r.look(ctx, set)
	}
	if ctx.Err() != nil {
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
	case len(alarm) > 0:
		result = "alarm"
	}
	r.checks.WithLabelValues(name, result).Inc()
	if err != nil {
		return
	}
	r.wrong.WithLabelValues(name, "alarm").Set(float64(len(alarm)))
	for _, p := range alarm {
		r.in.log.Warn("topic setting", "topic", name, "problem", p.String())
	}
}

// stopTopic makes every partition of a request topic fail, those that come later
// too. Other request topics go on.
func (r *recheck) stopTopic(name string, problems []delaytopics.Problem) {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	why := fmt.Errorf("request topic %s is stopped: %s", name, strings.Join(lines, "; "))
	r.mu.Lock()
	r.stopped[name] = why
	r.mu.Unlock()
	r.complain()
	for _, p := range r.in.ownedOf(name) {
		p.Refuse(why)
	}
}

func (r *recheck) complain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, why := range r.stopped {
		r.in.log.Error("request topic is stopped until a restart", "topic", name, "err", why)
	}
}

// errNewPartition is why a partition is not served that the topic did not have.
var errNewPartition = errors.New("the request topic had fewer partitions when this instance started: it is being checked")

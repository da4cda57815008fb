// Package contract holds whole instances on a real broker against what README.md, REFERENCE.md, DELAY.md and
// MIGRATION.md promise to plain Kafka clients: requests in every form and the emissions and dead letters that they
// become, timers that recur, fixed-delay topics, lists of pending timers, and every batch that a broker takes.
package contract

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) {
	rig.PlayVictim()
	kafkatest.Main(m)
}

const (
	// patience bounds what must happen, on a machine that has other work. It says nothing about lateness.
	patience = 60 * time.Second
	// quiet is how long a test looks on for what must not come.
	quiet = 1500 * time.Millisecond
	// onTime is what a busy machine may add to a due time: beyond it something hangs. How late timers are is
	// measured by waterclock bench.
	onTime = 30 * time.Second
	// session is how long a member that was killed is waited for.
	session = 6 * time.Second

	deadSuffix = ".waterclock.dead-letters"
)

// setup is a request topic, its target, an instance, and what users have: a plain client, and consumers of emissions
// and dead letters.
type setup struct {
	*rig.Setup
	in         *rig.Instance // that was served last
	dead       *kafkatest.Collector
	partitions map[string]int // of each target
	sent       []want
	suffix     string // of topics of dead letters
}

// newSetup makes the topics. Settings of the request topic are given as name, value.
func newSetup(t *testing.T, c *kafkatest.Cluster, requests, target int32, settings ...string) *setup {
	t.Helper()
	s := &setup{Setup: rig.NewSetup(t, c, requests, target, settings...)}
	s.partitions = map[string]int{s.Target: int(target)}
	s.suffix = deadSuffix
	s.dead = kafkatest.Collect(t, c, s.Requests+deadSuffix)
	return s
}

// target makes another target, with settings given as name, value.
func (s *setup) target(kind string, partitions int32, settings ...string) string {
	s.Helper()
	name := s.Topic(s.Requests+"-"+kind, partitions, settings...)
	s.partitions[name] = int(partitions)
	return name
}

// serve starts an instance and waits until it has live partitions, as many as all its topics have.
func (s *setup) serve(cfg *config.Config, partitions int, options ...node.Options) *rig.Instance {
	s.Helper()
	var o node.Options
	if len(options) > 0 {
		o = options[0]
	}
	s.in = rig.Serve(s.T, cfg, o)
	s.in.Ready(partitions, patience)
	return s.in
}

// served is a setup for most tests of single requests: four partitions, a target with three, and an instance.
func served(t *testing.T) *setup {
	t.Helper()
	s := newSetup(t, kafkatest.Shared(t), 4, 3)
	s.serve(s.Config(), 4)
	return s
}

// timer is a request for a target, due at a time in Unix milliseconds, and what it asks for.
func (s *setup) timer(target, id, value string, due int64) want {
	return plain(s.Request(id, value, "timer-at", fmt.Sprint(due), "timer-target-topic", target), target, due)
}

// schedule is a timer for the setup's target.
func (s *setup) schedule(id, value string, due int64) want { return s.timer(s.Target, id, value, due) }

// send writes requests in order and notes what must become of them.
func (s *setup) send(wants ...want) {
	s.Helper()
	recs := make([]*kgo.Record, len(wants))
	for i, w := range wants {
		recs[i] = w.request
	}
	s.Send(recs...)
	s.sent = append(s.sent, wants...)
}

// asked are the emissions that must come of what was sent, and what must become dead letters, by its source.
func (s *setup) asked() (fire []want, refused map[string]want) {
	refused = make(map[string]want)
	for _, w := range s.sent {
		switch {
		case w.refused != "":
			refused[source(w.request)] = w
		case w.topic != "":
			fire = append(fire, w)
		}
	}
	return fire, refused
}

// arrived waits until what was sent has become emissions and dead letters.
func (s *setup) arrived() {
	s.Helper()
	fire, refused := s.asked()
	s.Out.WaitFor(len(fire), patience)
	s.dead.WaitFor(len(refused), patience)
}

// after is a request of a topic, due a duration after it is written.
func after(topic, id, in, target string) *kgo.Record {
	return rig.Request(topic, id, "v", "timer-after", in, "timer-target-topic", target)
}

func header(name, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: name, Value: []byte(value)}
}

// headers are headers given as name, value.
func headers(pairs ...string) []kgo.RecordHeader { return rig.Request("", "", "", pairs...).Headers }

func millis(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }

// source is the place of a request, as emissions and dead letters name it.
func source(r *kgo.Record) string { return fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset) }

// until waits until ok.
func (s *setup) until(what string, ok func() bool) {
	s.Helper()
	await.Until(s, patience, what, ok)
}

// awaitMetric waits until a metric has a value.
func (s *setup) awaitMetric(want float64, name string, labels ...string) {
	s.Helper()
	s.until(fmt.Sprint(name, labels, " is ", want), func() bool { return s.in.Metric(name, labels...) == want })
}

// settled waits until n requests have an outcome: what has not come a moment after that, and is not pending, never
// will.
func (s *setup) settled(n int) {
	s.Helper()
	s.until(fmt.Sprint(n, " requests are settled"), func() bool {
		const outcomes = "waterclock_outcomes_total"
		return s.in.Metric(outcomes)-s.in.Metric(outcomes, "outcome", "fired") >= float64(n)
	})
}

// end waits until the instance has settled n requests and nothing more can come, and checks that what was sent has
// become what it asks for, and nothing else.
func (s *setup) end(n int) {
	s.Helper()
	s.arrived()
	s.settled(n)
	s.in.Balanced(0)
	s.Out.Quiet(quiet)
	s.dead.Quiet(0)
	fire, refused := s.asked()
	s.checkAll(fire)
	for _, l := range s.dead.Records() {
		src := l.Header("waterclock-source")
		w, ok := refused[src]
		delete(refused, src)
		if reason := l.Header("waterclock-reason"); !ok || reason != string(w.refused) ||
			!sameBytes(l.Key, w.request.Key) || !sameBytes(l.Value, w.request.Value) ||
			l.Topic != w.request.Topic+s.suffix {
			s.Errorf("dead letter of %s on %s, key %s, value %s: %s (%s), want %q, once", src, l.Topic, show(l.Key),
				show(l.Value), reason, l.Header("waterclock-detail"), w.refused)
		}
	}
	for src, w := range refused {
		s.Errorf("%s has no dead letter %s", src, w.refused)
	}
}

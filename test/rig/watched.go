package rig

import (
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/audit/observe"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
	"github.com/waterclock/waterclock/test/witness"
)

// Watched is a plain consumer of a request topic, its own topics and its targets, together with what instances have
// reported about them.
type Watched struct {
	t     testing.TB
	all   *kafkatest.Collector
	adm   *kadm.Client
	rules *intake.Rules
	said  witness.History // ledgers, limits, lags and local stores
}

// Watch reads everything about a request topic until the test ends.
func Watch(t testing.TB, c *kafkatest.Cluster, requests string, partitions int32, targets ...string) *Watched {
	t.Helper()
	own := topics.Changelog(requests)
	read := append(targets, requests, own, topics.DeadLetters(requests), topics.Events(requests))
	// Brokers may stand still.
	impatient := []kgo.Opt{kgo.RequestTimeoutOverhead(2 * time.Second), kgo.FetchMaxWait(500 * time.Millisecond)}
	return &Watched{
		t: t, adm: kadm.NewClient(c.Client(t)), all: kafkatest.CollectAs(t, c, impatient, read...),
		rules: &intake.Rules{Topic: requests, Changelog: own, Partitions: partitions, Limits: intake.DefaultLimits(),
			Allow: func(string) bool { return true }},
	}
}

// Look records what an instance reports about itself now, and the lags of its group as Kafka's tools compute them.
func (w *Watched) Look(in *Web, group string) {
	w.t.Helper()
	asked := time.Now()
	families, err := in.families()
	must(w.t, err)
	atRest := sum(families[queueMetric]) == 0
	w.said.Ledgers = append(w.said.Ledgers, ledgersOf(families, atRest)...)
	w.said.Gauges = append(w.said.Gauges, witness.Gauge{
		Instance: in.url, Name: "lanes", At: asked, Value: sum(families["waterclock_lanes"]),
		Limit: sum(families["waterclock_lanes_allowed"]),
	})
	w.Lags(group)
}

// Lags records the lags of a group as Kafka's tools compute them.
func (w *Watched) Lags(group string) {
	w.t.Helper()
	var asked time.Time
	var err error
	var positions kadm.OffsetResponses
	await.Until(w.t, rest, "no commit of offsets is open", func() bool {
		asked = time.Now()
		if positions, err = w.adm.FetchOffsets(kadm.RequireStable(w.t.Context()), group); err == nil {
			err = positions.Error()
		}
		return err == nil
	})
	ends, err := w.adm.ListCommittedOffsets(w.t.Context(), w.rules.Topic)
	must(w.t, err)
	for p := range w.rules.Partitions {
		position, ok := positions.Lookup(w.rules.Topic, p)
		end, listed := ends.Lookup(w.rules.Topic, p)
		if ok && listed && end.Err == nil {
			w.said.Lags = append(w.said.Lags, witness.Lag{
				Asked: asked, Given: time.Now(), Requests: w.rules.Topic, Partition: p, Position: position.At,
				End: end.Offset, Reported: -1,
			})
		}
	}
}

// Stored records what the local store of a stopped instance holds.
func (w *Watched) Stored(dataDir string) {
	w.t.Helper()
	s, err := statestore.OpenReadOnly(
		statestore.Options{Dir: ops.StoreDir(dataDir), Logger: slog.New(slog.DiscardHandler)})
	must(w.t, err)
	defer s.Close()
	ids, err := s.Partitions()
	must(w.t, err)
	for _, id := range ids {
		v := witness.StoreContents{Instance: dataDir, Requests: w.rules.Topic, Partition: id.Partition}
		m, err := s.Timers(id, func(t *timer.Timer) error {
			v.Timers = append(v.Timers, *observe.Timer(w.rules.Topic, w.rules.Changelog, id.Partition, t))
			return nil
		})
		must(w.t, err)
		v.Position = m.Position
		w.said.Stores = append(w.said.Stores, v)
	}
}

// History returns what was seen and not taken so far, once everything that is committed has been read. events says
// whether the request topic has events.
func (w *Watched) History(events bool) witness.History {
	w.t.Helper()
	h := w.said
	w.CatchUp()
	w.add(&h, w.all.Records())
	h.Scope.Ended, h.Scope.Events = time.Now(), map[string]bool{w.rules.Topic: events}
	return h
}

// Check fails the test for each promise that this history breaks.
func (w *Watched) Check(events bool) {
	w.t.Helper()
	Violations(w.t, witness.Check(w.History(events)))
}

// CatchUp waits until everything that is committed now is read, and reports whether it is.
func (w *Watched) CatchUp() bool { return w.all.CatchUp() }

// Take moves the records, the local stores and the lags that were seen since the last call into a history.
func (w *Watched) Take(h *witness.History) {
	w.t.Helper()
	w.add(h, w.all.Take())
	h.Stores, w.said.Stores = append(h.Stores, w.said.Stores...), nil
	h.Lags, w.said.Lags = append(h.Lags, w.said.Lags...), nil
}

func (w *Watched) add(h *witness.History, records []kafkatest.Received) {
	w.t.Helper()
	for _, r := range records {
		must(w.t, Observe(h, w.rules, r.Record, r.At))
	}
}

// Observe adds a record of a request topic, of one of its own topics or of a target to a history. rules are those of
// the topic.
func Observe(h *witness.History, rules *intake.Rules, rec *kgo.Record, seen time.Time) (err error) {
	switch rec.Topic {
	case rules.Topic:
		q := observe.Request(rules, rec, seen.UnixMilli(), seen)
		q.Acked = seen
		h.Requests = append(h.Requests, q)
	case rules.Changelog:
		var c history.ChangelogRecord
		c, err = observe.Change(rules.Topic, rec, seen)
		h.Changes = append(h.Changes, c)
	case topics.DeadLetters(rules.Topic):
		var l history.Letter
		l, err = observe.Letter(rec, seen)
		h.Letters = append(h.Letters, l)
	case topics.Events(rules.Topic):
		var e history.Event
		e, err = observe.Event(rec, seen)
		h.Events = append(h.Events, e)
	default:
		var e history.Emission
		e, err = observe.Emission(rec, seen)
		h.Emissions = append(h.Emissions, e)
	}
	return err
}

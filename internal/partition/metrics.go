package partition

import (
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/metric"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

// Metrics are those of all partitions of a process.
type Metrics struct {
	outcomes   *prometheus.CounterVec
	reasons    *prometheus.CounterVec
	sealed     *lateness // lateness of emissions when their step was sealed
	delivered  *lateness // the same when it was committed, by topic
	own        *lateness // as sealed, but counted from when the request was read if it was read after its due time
	ownToEnd   *lateness // as delivered, but counted like own, by topic
	misplacedN *prometheus.CounterVec
	lagRecords *prometheus.GaugeVec
	lagSeconds *prometheus.GaugeVec
	replayedN  prometheus.Counter
	endedN     prometheus.Counter
	lostN      *prometheus.CounterVec
	cutN       *prometheus.CounterVec
	accepted   *prometheus.CounterVec
	damagedN   prometheus.Counter
	retentionN *prometheus.CounterVec
	planningN  *prometheus.CounterVec
	astray     *prometheus.GaugeVec
	waited     prometheus.Histogram
	warnings   warnings
}

var _ ownership.Metrics = (*Metrics)(nil)

// NewMetrics registers the metrics of partitions.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	in := metric.In(reg)
	m := &Metrics{
		warnings: warnings{kinds: make(map[warning]*warned)},
		outcomes: in.Counters("waterclock_outcomes_total", "Committed decisions by outcome: scheduled, replaced, "+
			"cancelled, not_found, fired, expired, refused, undeliverable, completed, triggered, paused, resumed, "+
			"condition_not_met, unchanged.", "topic", "outcome"),
		reasons: in.Counters("waterclock_dead_letters_total", "Dead letters committed, by reason.", "topic", "reason"),
		sealed:  newLateness("waterclock_lateness_seconds", "Timestamp of an emission minus its due time."),
		delivered: newLateness("waterclock_commit_lateness_seconds",
			"Time of the answer to an emission's commit minus its due time.", "topic"),
		own: newLateness("waterclock_own_lateness_seconds", "Timestamp of an emission minus its due time or, "+
			"if its request was read later than that, minus the time of reading. Timers that were missed while no "+
			"instance ran, that waited for their targets or a rate, or that were steered do not count."),
		ownToEnd: newLateness("waterclock_own_commit_lateness_seconds",
			"The same as waterclock_own_lateness_seconds, until the commit of the emission was answered.", "topic"),
		misplacedN: in.Counters("waterclock_misplaced_requests_total",
			"Requests whose key does not lie on its murmur2 partition.", "topic"),
		lagRecords: in.Gauges("waterclock_intake_lag_records", "Request records behind the high watermark at the "+
			"last fetch, or at the last look while intake is paused.", "topic", "partition"),
		lagSeconds: in.Gauges("waterclock_intake_lag_seconds", "Age of the newest request record when it was read; "+
			"now, while more records wait or intake is paused; 0 when there are none.", "topic",
			"partition"),
		replayedN: in.Counter("waterclock_replayed_offsets_total",
			"Changelog offsets read by replays since the process started."),
		endedN: in.Counter("waterclock_hanging_transactions_ended_total",
			"Hanging transactions of former owners that were ended."),
		lostN: in.Counters("waterclock_requests_lost_total", "Requests that retention deleted before they were "+
			"read, at most: markers of transactions and aborted records count too.", "topic"),
		cutN: in.Counters("waterclock_requests_cut_total", "Offsets of a request log that was cut and has "+
			"grown again: requests there were settled before the cut, and new records there are not read.", "topic"),
		accepted: in.Counters("waterclock_accepted_total",
			"Requests that made a pending timer: scheduled and replaced together.", "topic"),
		damagedN: in.Counter("waterclock_partitions_damaged_total",
			"Partitions whose local store was damaged, and that were wiped and replayed."),
		retentionN: in.Counters("waterclock_retention_alerts_total",
			"Alerts that intake lags so far behind that retention may soon delete unread requests.", "topic"),
		planningN: in.Counters("waterclock_planning_seconds_total", "Time that the planners of a partition were at "+
			"work, as the mean of its sub-partitions. The rate is their busy share, 0 to 1.", "topic", "partition"),
		astray: in.Gauges("waterclock_timers_without_calendar", "Pending timers, neither paused nor parked, that name "+
			"a calendar that does not exist, which excludes nothing: counted after each change of a calendar.", "topic",
			"partition"),
		waited: in.Histogram("waterclock_planning_wait_seconds",
			"How long batches of requests that were read waited until they were planned.",
			prometheus.ExponentialBuckets(0.0001, 4, 9)),
	}
	reg.MustRegister(m.sealed, m.delivered, m.own, m.ownToEnd)
	return m
}

// Serve sets the counters of a request topic to 0. If a counter appeared only with its first event, an alert on its
// growth would miss that event.
func (m *Metrics) Serve(topic string) {
	for _, name := range outcomeNames {
		m.outcomes.WithLabelValues(topic, name)
	}
	for _, reason := range waterclock.Reasons() {
		m.reasons.WithLabelValues(topic, string(reason))
	}
	none := m.sealed.tally()
	m.sealed.add("", &none)
	m.own.add("", &none)
	m.delivered.add(topic, &none)
	m.ownToEnd.add(topic, &none)
	for _, c := range []*prometheus.CounterVec{m.misplacedN, m.lostN, m.cutN, m.accepted, m.retentionN} {
		c.WithLabelValues(topic)
	}
}

func (m *Metrics) misplaced(topic string) { m.misplacedN.WithLabelValues(topic).Inc() }

// Ended implements ownership.Metrics.
func (m *Metrics) Ended(n int) { m.endedN.Add(float64(n)) }

// Replayed implements ownership.Metrics.
func (m *Metrics) Replayed(n int64) { m.replayedN.Add(float64(max(0, n))) }

// Damaged implements ownership.Metrics.
func (m *Metrics) Damaged() { m.damagedN.Inc() }

// NearRetention implements ownership.Metrics.
func (m *Metrics) NearRetention(topic string) { m.retentionN.WithLabelValues(topic).Inc() }

// Lost implements ownership.Metrics.
func (m *Metrics) Lost(topic string, n int64) {
	m.lostN.WithLabelValues(topic).Add(float64(n))
}

// Cut implements ownership.Metrics.
func (m *Metrics) Cut(topic string, n int64) { m.cutN.WithLabelValues(topic).Add(float64(n)) }

func (m *Metrics) setLag(topic string, partition int32, records int64, age time.Duration) {
	p := strconv.Itoa(int(partition))
	m.lagRecords.WithLabelValues(topic, p).Set(float64(max(0, records)))
	m.lagSeconds.WithLabelValues(topic, p).Set(max(0, age.Seconds()))
}

// planningTime returns the counter of the time that a partition's planners are at work. dropSeries removes it.
func (m *Metrics) planningTime(topic string, partition int32) prometheus.Counter {
	return m.planningN.WithLabelValues(topic, strconv.Itoa(int(partition)))
}

func (m *Metrics) withoutCalendar(topic string, partition int32, timers int) {
	m.astray.WithLabelValues(topic, strconv.Itoa(int(partition))).Set(float64(timers))
}

// dropMissing removes the number of timers without a calendar of an acquisition that has ended.
func (m *Metrics) dropMissing(topic string, partition int32) {
	m.astray.DeleteLabelValues(topic, strconv.Itoa(int(partition)))
}

// dropSeries removes the series of a partition that this process no longer owns.
func (m *Metrics) dropSeries(topic string, partition int32) {
	p := strconv.Itoa(int(partition))
	m.lagRecords.DeleteLabelValues(topic, p)
	m.lagSeconds.DeleteLabelValues(topic, p)
	m.planningN.DeleteLabelValues(topic, p)
}

var outcomeNames = map[timer.Outcome]string{
	timer.Scheduled: "scheduled", timer.Replaced: "replaced", timer.Cancelled: "cancelled", timer.NotFound: "not_found",
	timer.Fired: "fired", timer.Expired: "expired", timer.Refused: "refused",
	timer.Undeliverable: "undeliverable", timer.Completed: "completed",
	timer.Triggered: "triggered", timer.Paused: "paused", timer.Resumed: "resumed", timer.Unmet: "condition_not_met",
	timer.Unchanged: "unchanged", timer.Moved: "moved",
}

// Mute stops the log lines about rejected requests. It must be called before the metrics are used.
func (m *Metrics) Mute() { m.warnings.muted = true }

// lateBounds are the upper bounds of the histogram's buckets, in milliseconds. One more bucket holds the rest.
type lateBounds [17]int64

// tally counts the firings of one step by lateness.
type tally struct {
	bounds *lateBounds
	counts [len(lateBounds{}) + 1]uint64
	sum    int64 // ms
}

func (t *tally) add(ms int64) {
	i := 0
	for i < len(t.bounds) && ms > t.bounds[i] {
		i++
	}
	t.counts[i]++
	t.sum += ms
}

// lateness is a histogram, or one for each topic, that takes a whole step at a time. A prometheus.Histogram would cost
// a search and three atomic operations for each firing, and each firing is observed twice. It implements
// prometheus.Collector.
type lateness struct {
	bounds lateBounds
	desc   *prometheus.Desc

	mu sync.Mutex // guards by
	by map[string]*tally
}

var _ prometheus.Collector = (*lateness)(nil)

// newLateness returns a histogram without labels, or with one label, the topic.
func newLateness(name, help string, labels ...string) *lateness {
	bounds := lateBounds{1, 2, 5, 10, 20, 50, 100, 250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000,
		300_000, 3_600_000}
	return &lateness{bounds: bounds, desc: prometheus.NewDesc(name, help, labels, nil), by: make(map[string]*tally)}
}

// tally returns an empty tally, for add.
func (l *lateness) tally() tally { return tally{bounds: &l.bounds} }

// add adds a step; label is the topic, or "" if there are no labels.
func (l *lateness) add(label string, step *tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.by[label]
	if all == nil {
		all = &tally{bounds: &l.bounds}
		l.by[label] = all
	}
	for i, n := range step.counts {
		all.counts[i] += n
	}
	all.sum += step.sum
}

func (l *lateness) Describe(ch chan<- *prometheus.Desc) { ch <- l.desc }

func (l *lateness) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	all := make(map[string]tally, len(l.by))
	for label, t := range l.by {
		all[label] = *t
	}
	l.mu.Unlock()
	for label, t := range all {
		buckets, n := make(map[float64]uint64, len(l.bounds)), uint64(0)
		for i, bound := range l.bounds {
			n += t.counts[i]
			buckets[float64(bound)/1000] = n
		}
		var labels []string
		if label != "" {
			labels = []string{label}
		}
		ch <- prometheus.MustNewConstHistogram(l.desc, n+t.counts[len(l.bounds)], float64(t.sum)/1000,
			buckets, labels...)
	}
}

const (
	// warnBurst is how many lines one kind of warning gets in warnEvery: enough to see a producer's mistake, too few to
	// flood a log.
	warnBurst = 5
	warnEvery = time.Minute
	// warnedID is how much of a timer's ID a line shows, in bytes.
	warnedID = 64
)

// warnings limit the log lines about rejected requests, for all partitions of a process. Metrics count all of them, and
// the next line of a kind says how many were left out.
type warnings struct {
	muted bool       // set before the first partition exists
	mu    sync.Mutex // guards kinds
	kinds map[warning]*warned
}

// warning is a kind of warning. There are no more of them than request topics times reasons.
type warning struct{ topic, reason string }

type warned struct {
	since      time.Time // when the first of the lines was written
	lines      int
	suppressed int
}

// Reasons of warnings that are not about dead letters.
const (
	misplacedWarning   = "misplaced"
	unknownZoneWarning = "unknown-zone" // no rules for the timer's time zone, so its next time cannot be worked out
)

// allow reports whether a line may be written now, and how many were left out since the last one.
func (w *warnings) allow(kind warning, now time.Time) (ok bool, suppressed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kinds[kind]
	if k == nil {
		k = &warned{}
		w.kinds[kind] = k
	}
	if now.Sub(k.since) >= warnEvery {
		k.since, k.lines = now, 0
	}
	if k.lines == warnBurst {
		k.suppressed++
		return false, 0
	}
	k.lines++
	suppressed, k.suppressed = k.suppressed, 0
	return true, suppressed
}

// logger returns the log for a warning of a kind, nil if it is left out now. A line of it says how many were left out
// before.
func (w *warnings) logger(log *slog.Logger, topic, reason string) *slog.Logger {
	ok, suppressed := w.allow(warning{topic, reason}, time.Now())
	switch {
	case !ok:
		return nil
	case suppressed > 0:
		return log.With("suppressed", suppressed)
	}
	return log
}

func shortID(id []byte) string {
	if len(id) > warnedID {
		return string(id[:warnedID]) + "…"
	}
	return string(id)
}

package partition

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// Metrics of all partitions of a process.
type Metrics struct {
	outcomes   *prometheus.CounterVec
	reasons    *prometheus.CounterVec
	lateness   prometheus.Histogram
	misplacedN *prometheus.CounterVec
	lagRecords *prometheus.GaugeVec
	lagSeconds *prometheus.GaugeVec
	replayedN  prometheus.Counter
	endedN     prometheus.Counter
	lostN      *prometheus.CounterVec
	accepted   *prometheus.CounterVec
	damagedN   prometheus.Counter
	retentionN *prometheus.CounterVec
	offset     prometheus.Gauge
	warnings   warnings
	clocks     Clocks
}

// NewMetrics registers the metrics of partitions.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		warnings: warnings{kinds: make(map[warning]*warned)},
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_outcomes_total", Help: "Committed decisions by outcome: scheduled, replaced, cancelled, not_found, fired, expired, refused, undeliverable.",
		}, []string{"topic", "outcome"}),
		reasons: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_dead_letters_total", Help: "Dead letters committed, by reason.",
		}, []string{"topic", "reason"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "waterclock_lateness_seconds", Help: "Timestamp of an emission minus its due time.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 3600},
		}),
		misplacedN: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_misplaced_requests_total", Help: "Requests whose key does not lie on its murmur2 partition.",
		}, []string{"topic"}),
		lagRecords: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waterclock_intake_lag_records", Help: "Request records behind the high watermark at the last fetch, or at the last look while intake is paused.",
		}, []string{"topic", "partition"}),
		lagSeconds: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waterclock_intake_lag_seconds", Help: "Age of the newest request record when it was read; now, while more is known to wait or intake is paused; 0 when there is nothing more.",
		}, []string{"topic", "partition"}),
		replayedN: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_replayed_offsets_total", Help: "Changelog offsets gone through by replays since the process started.",
		}),
		endedN: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_vanished_transactions_ended_total", Help: "Open transactions of vanished owners that were ended.",
		}),
		lostN: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_requests_lost_total", Help: "Requests that retention deleted before they were read.",
		}, []string{"topic"}),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_accepted_total", Help: "Requests that made a pending timer: scheduled and replaced together.",
		}, []string{"topic"}),
		damagedN: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_partitions_damaged_total", Help: "Partitions whose local store was damaged, and that were wiped and replayed.",
		}),
		retentionN: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_retention_alarms_total", Help: "Alarms that intake lags so far behind that retention may soon delete unread requests.",
		}, []string{"topic"}),
		offset: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "waterclock_clock_offset_seconds", Help: "The owner's clock minus the broker's, by the LogAppendTime of a record read back: a claim's, and one each minute.",
		}),
	}
	reg.MustRegister(m.accepted, m.damagedN, m.retentionN, m.offset)
	reg.MustRegister(m.outcomes, m.reasons, m.lateness, m.misplacedN, m.lagRecords, m.lagSeconds, m.replayedN, m.endedN, m.lostN)
	return m
}

// Serve has the counters of a request topic begin at 0: a counter that is not
// there before its first event hides that event from whoever alerts on its growth.
func (m *Metrics) Serve(topic string) {
	for _, name := range outcomeNames {
		m.outcomes.WithLabelValues(topic, name)
	}
	for _, reason := range waterclock.Reasons() {
		m.reasons.WithLabelValues(topic, string(reason))
	}
	for _, c := range []*prometheus.CounterVec{m.misplacedN, m.lostN, m.accepted, m.retentionN} {
		c.WithLabelValues(topic)
	}
}

func (m *Metrics) misplaced(topic string) { m.misplacedN.WithLabelValues(topic).Inc() }
func (m *Metrics) ended(n int)            { m.endedN.Add(float64(n)) }
func (m *Metrics) replayed(n int64)       { m.replayedN.Add(float64(max(0, n))) }

func (m *Metrics) damaged() { m.damagedN.Inc() }

func (m *Metrics) retention(topic string) { m.retentionN.WithLabelValues(topic).Inc() }

// clockOffset takes the owner's clock at two moments between which a broker
// stamped a record.
func (m *Metrics) clockOffset(before, after int64, stamped int64) {
	m.offset.Set(float64((before+after)/2-stamped) / 1000)
	m.clocks.set(time.Duration((before+after)/2-stamped) * time.Millisecond)
}

// Clocks is what is known of this machine's clock against the brokers'.
func (m *Metrics) Clocks() *Clocks { return &m.clocks }

func (m *Metrics) lostRequests(topic string, n int64) {
	m.lostN.WithLabelValues(topic).Add(float64(n))
}

func (m *Metrics) setLag(topic string, partition int32, records int64, age time.Duration) {
	p := strconv.Itoa(int(partition))
	m.lagRecords.WithLabelValues(topic, p).Set(float64(max(0, records)))
	m.lagSeconds.WithLabelValues(topic, p).Set(max(0, age.Seconds()))
}

var outcomeNames = map[timer.Outcome]string{
	timer.Scheduled: "scheduled", timer.Replaced: "replaced", timer.Cancelled: "cancelled", timer.NotFound: "not_found",
	timer.Fired: "fired", timer.Expired: "expired", timer.Refused: "refused",
	undeliverable: "undeliverable",
}

// undeliverable is the outcome of a firing that became a dead letter, beside
// those of package timer.
const undeliverable timer.Outcome = 15

// committed counts what a committed step did.
func (m *Metrics) committed(p *Partition, s *sealed) {
	topic := p.o.Topics.Request.Name
	var counts [undeliverable + 1]int
	for _, chunk := range s.segment.Chunks {
		for _, e := range chunk {
			o := e.Outcome
			if e.refusal != nil {
				o = timer.Refused
				if e.item != nil {
					o = undeliverable
				}
				m.reasons.WithLabelValues(topic, e.refusal.reason).Inc()
				m.warnRefused(p, e)
			}
			counts[o]++
		}
	}
	if n := counts[timer.Scheduled] + counts[timer.Replaced]; n > 0 {
		m.accepted.WithLabelValues(topic).Add(float64(n))
	}
	p.ledger.add(&counts)
	for o, n := range counts {
		if n > 0 && outcomeNames[timer.Outcome(o)] != "" {
			m.outcomes.WithLabelValues(topic, outcomeNames[timer.Outcome(o)]).Add(float64(n))
		}
	}
	for i := range s.share.Emissions {
		e := &s.share.Emissions[i]
		m.lateness.Observe(float64(e.Record.Timestamp.UnixMilli()-e.Due) / 1000)
	}
}

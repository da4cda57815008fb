package emitter

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/kit/metric"
)

// Metrics of all lanes of a process.
type Metrics struct {
	active        prometheus.Gauge
	steps         *prometheus.CounterVec
	duration      prometheus.Histogram
	resolved      prometheus.Counter
	retired       prometheus.Counter
	clientsOpened prometheus.Counter
	allowed       prometheus.Gauge
	busy          prometheus.Counter
	filled        prometheus.Counter
}

// NewMetrics registers the metrics of lanes.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	in := metric.In(reg)
	m := &Metrics{
		active: in.Gauge("waterclock_lanes",
			"Loops of transactions that run side by side: one joins when the steps of those there are full."),
		allowed: in.Gauge("waterclock_lanes_allowed", "How many lanes there may be."),
		busy: in.Counter("waterclock_lanes_busy_seconds_total", "Time that lanes spent on the contents "+
			"of transactions. Of a transaction that was three quarters full all of it counts, of another one "+
			"not its round trips. The rate, divided by waterclock_lanes_allowed, is the busy share, 0 to 1."),
		filled: in.Counter("waterclock_transactions_filled_total", "Transactions, each counted as the part "+
			"of its room that it used, 0 to 1. Divided by the number of transactions: how full they are."),
		steps: in.Counters("waterclock_transactions_total",
			"Transactions ended, by outcome: committed, aborted, fenced.", "outcome"),
		duration: in.Histogram("waterclock_transaction_duration_seconds",
			"Time from sealing a transaction to its known outcome.", prometheus.ExponentialBuckets(0.001, 2, 16)),
		resolved: in.Counter("waterclock_transactions_resolved_total",
			"Transactions whose commit was not answered and whose outcome was resolved."),
		retired: in.Counter("waterclock_transactional_ids_retired_total",
			"Transactional IDs that will not be used again."),
		clientsOpened: in.Counter("waterclock_transactional_clients_total", "Transactional clients opened."),
	}
	for _, outcome := range []string{"committed", "aborted", "fenced"} {
		m.steps.WithLabelValues(outcome)
	}
	return m
}

func (m *Metrics) step(err error, took time.Duration) {
	outcome := "committed"
	switch {
	case errors.Is(err, errRefused), errors.Is(err, errTokens), errors.Is(err, errCheck):
		outcome = "fenced"
	case err != nil:
		outcome = "aborted"
	}
	m.steps.WithLabelValues(outcome).Inc()
	m.duration.Observe(took.Seconds())
}

// wholeStep is the used part of its room from which a step counts as full. It is the same part that joinAfter refers
// to.
const wholeStep = 0.75

// filled returns which part of a step's room is used, 0 to 1. cut means that there was more than the step could
// take.
func filled(room, used Room, cut bool) float64 {
	if cut || room.Entries <= 0 || room.Bytes <= 0 {
		return 1
	}
	return min(1, max(0, float64(used.Entries)/float64(room.Entries), float64(used.Bytes)/float64(room.Bytes)))
}

// carried records a committed step that took the given time, including trips, the time of its round trips. These take
// as long however little the step carries.
//
// The time in transactions says little about load: a lane that makes 50 small ones a second is in one nearly all the
// time. Their round trips would not take longer with ten times as many timers. So round trips count only if the step
// was full, because then the lane could not have carried more in that time.
func (m *Metrics) carried(filled float64, took, trips time.Duration) {
	m.filled.Add(filled)
	if filled < wholeStep {
		took -= trips
	}
	m.busy.Add(max(0, took).Seconds())
}

package transaction

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/metric"
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
		active:        in.Gauge("waterclock_lanes", "Loops of transactions that run side by side: one joins when the steps of those there are full."),
		allowed:       in.Gauge("waterclock_lanes_allowed", "How many lanes there may be."),
		busy:          in.Counter("waterclock_lanes_busy_seconds_total", "Time that lanes spent on what transactions carried. Of a transaction that was three quarters full all of it counts, of another one not its round trips. The rate, divided by waterclock_lanes_allowed, is the busy share, 0 to 1."),
		filled:        in.Counter("waterclock_transactions_filled_total", "Transactions, each counted as the part of its room that it used, 0 to 1. Divided by the number of transactions: how full they are."),
		steps:         in.Counters("waterclock_transactions_total", "Transactions ended, by outcome: committed, aborted, fenced.", "outcome"),
		duration:      in.Histogram("waterclock_transaction_duration_seconds", "Time from sealing a transaction to its known outcome.", prometheus.ExponentialBuckets(0.001, 2, 16)),
		resolved:      in.Counter("waterclock_transactions_resolved_total", "Transactions whose commit was not answered and whose outcome was found out."),
		retired:       in.Counter("waterclock_transactional_ids_retired_total", "Transactional IDs that will not be used again."),
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
	case errors.Is(err, errRefused), errors.Is(err, errTokens), errors.Is(err, errFence):
		outcome = "fenced"
	case err != nil:
		outcome = "aborted"
	}
	m.steps.WithLabelValues(outcome).Inc()
	m.duration.Observe(took.Seconds())
}

package transaction

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	m := &Metrics{
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "waterclock_lanes", Help: "Loops of transactions that run side by side: one joins when the steps of those there are full.",
		}),
		allowed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "waterclock_lanes_allowed", Help: "How many lanes there may be.",
		}),
		busy: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_lanes_busy_seconds_total", Help: "Time that lanes spent on what transactions carried. Of a transaction that was three quarters full all of it counts, of another one not its round trips. The rate, divided by waterclock_lanes_allowed, is the busy share, 0 to 1.",
		}),
		filled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_transactions_filled_total", Help: "Transactions, each counted as the part of its room that it used, 0 to 1. Divided by the number of transactions: how full they are.",
		}),
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_transactions_total", Help: "Transactions ended, by outcome: committed, aborted, fenced.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "waterclock_transaction_duration_seconds", Help: "Time from sealing a transaction to its known outcome.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}),
		resolved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_transactions_resolved_total", Help: "Transactions whose commit was not answered and whose outcome was found out.",
		}),
		retired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_transactional_ids_retired_total", Help: "Transactional IDs that will not be used again.",
		}),
		clientsOpened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_transactional_clients_total", Help: "Transactional clients opened.",
		}),
	}
	for _, outcome := range []string{"committed", "aborted", "fenced"} {
		m.steps.WithLabelValues(outcome)
	}
	reg.MustRegister(m.active, m.steps, m.duration, m.resolved, m.retired, m.clientsOpened, m.allowed, m.busy, m.filled)
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

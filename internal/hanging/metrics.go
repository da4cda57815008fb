package hanging

import "github.com/prometheus/client_golang/prometheus"

// Metrics count the transactions that were ended for others, and the markers that brokers lost.
type Metrics struct {
	ended   prometheus.Counter
	missing prometheus.Gauge
	written prometheus.Counter
}

// NewMetrics registers the metrics of the repair of transactions.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		ended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_open_transactions_ended_total", Help: "Open transactions of the group that were ended because their process was gone or they were stuck.",
		}),
		missing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "waterclock_missing_markers",
			Help: "Partitions that had no leader, or another one, when a transaction on them ended, so that its marker may be missing there; it is written once the leader is back.",
		}),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waterclock_markers_written_total", Help: "Markers of ended transactions that a broker had lost and that were written.",
		}),
	}
	reg.MustRegister(m.ended, m.missing, m.written)
	return m
}

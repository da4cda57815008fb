package repair

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/kit/metric"
)

// Metrics count hanging transactions that were ended and lost markers that were written.
type Metrics struct {
	ended   prometheus.Counter
	missing prometheus.Gauge
	written prometheus.Counter
}

// NewMetrics registers the metrics of the repair of transactions.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	in := metric.In(reg)
	return &Metrics{
		ended: in.Counter("waterclock_open_transactions_ended_total",
			"Hanging transactions of the group that were ended because their process was gone or they were stuck."),
		missing: in.Gauge("waterclock_missing_markers", "Partitions whose leader was missing or changed while a "+
			"transaction on them ended, so that its marker may be missing; it is written once the leader is "+
			"back."),
		written: in.Counter("waterclock_markers_written_total",
			"Lost transaction markers that were written again."),
	}
}

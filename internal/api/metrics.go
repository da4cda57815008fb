package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kit/metric"
)

// metrics counts calls by operation.
type metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	in := metric.In(reg)
	return &metrics{
		calls: in.Counters("waterclock_api_calls_total",
			"Calls of the HTTP API that were answered, by operation and status.", "call", "status"),
		seconds: in.Histograms("waterclock_api_call_seconds",
			"Time from the headers of a call of the HTTP API to the end of its answer; but for streams.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}, "call"),
	}
}

// count counts a call under the pattern of its handler. The time of streams is not measured: they last as
// long as the caller likes.
func (m *metrics) count(pattern string, w http.ResponseWriter, serve func(*access.Recorder)) {
	began := time.Now()
	sw := &access.Recorder{ResponseWriter: w}
	defer func() {
		m.calls.WithLabelValues(pattern, strconv.Itoa(sw.Final(true))).Inc()
		if sw.Header().Get("Content-Type") != streamType {
			m.seconds.WithLabelValues(pattern).Observe(time.Since(began).Seconds())
		}
	}()
	serve(sw)
}

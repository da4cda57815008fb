package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/api/access"
)

// metrics counts calls by operation.
type metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_api_calls_total", Help: "Calls of the HTTP API that were answered, by operation and status.",
		}, []string{"call", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "waterclock_api_call_seconds", Help: "Time from the headers of a call of the HTTP API to the end of its answer; but for streams.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"call"}),
	}
	if reg != nil {
		reg.MustRegister(m.calls, m.seconds)
	}
	return m
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

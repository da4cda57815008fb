package access

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics counts the calls that the guard does not let in.
type metrics struct {
	refused *prometheus.CounterVec
}

// Reasons returns all reasons for which the guard rejects calls.
func Reasons() []string {
	return []string{
		ReasonBadRequest, ReasonUnauthenticated, ReasonForwardRefused, ReasonUnknownCaller, ReasonCrossOrigin,
		ReasonBodyTimeout, ReasonTooLarge,
		ReasonTargetTooLong, ReasonWrongHost, ReasonTooManyHeaders, ReasonRateLimited, ReasonTooManyCalls,
		ReasonTooManyFailures, ReasonOverloaded, ReasonIssuerUnavailable,
	}
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{refused: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "waterclock_api_refused_total", Help: "Calls of the API's address that were refused before their " +
			"operation was looked at, by reason.",
	}, []string{"reason"})}
	for _, r := range Reasons() {
		m.refused.WithLabelValues(r) // so that 0 is shown
	}
	return m
}

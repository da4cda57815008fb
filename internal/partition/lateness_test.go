package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestLateness(t *testing.T) {
	ms, hours := time.Millisecond, 2*time.Hour
	for _, c := range []struct {
		name string
		late []time.Duration
		want Lateness
	}{
		{"none", nil, Lateness{}},
		{"one", []time.Duration{3 * ms}, Lateness{1, .005, .005}},
		{"on a bound", []time.Duration{2 * ms}, Lateness{1, .002, .002}},
		{"one of a hundred", append(slices.Repeat([]time.Duration{ms}, 99), hours), Lateness{100, .001, .001}},
		{"two of a hundred", append(slices.Repeat([]time.Duration{ms}, 98), hours, hours), Lateness{100, .001, maxLateness}},
		{"half", []time.Duration{ms, ms, 40 * ms, 40 * ms}, Lateness{4, .001, .05}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := NewMetrics(prometheus.NewRegistry())
			m.Passed("requests", c.late)
			if got := m.Lateness(); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

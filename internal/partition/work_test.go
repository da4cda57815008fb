package partition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Requests and firings may be planned at the same time, and the busy share of a planner is never above 1.
func TestOverlappingWorkCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := work{busy: prometheus.NewCounter(prometheus.CounterOpts{}), share: 0.5}
		w.begin() // requests
		time.Sleep(time.Second)
		w.begin() // firings
		time.Sleep(time.Second)
		w.end()
		time.Sleep(time.Second)
		w.end()
		time.Sleep(time.Hour)
		w.begin()
		time.Sleep(time.Second)
		w.end()
		var m dto.Metric
		if err := w.busy.Write(&m); err != nil || m.GetCounter().GetValue() != 2 {
			t.Errorf("4 s of work of one of two planners count as %v s, %v", m.GetCounter().GetValue(), err)
		}
	})
}

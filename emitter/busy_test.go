package emitter

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A full step keeps its lane busy all the time. A step with room left keeps it busy only for the
// time of its entries.
func TestBusyShareOfLanes(t *testing.T) {
	room := Room{Entries: 1000, Bytes: 1 << 20}
	for name, tc := range map[string]struct {
		used   Room
		cut    bool
		filled float64
		busy   float64
	}{
		"small":             {Room{Entries: 10, Bytes: 1000}, false, 0.01, 0.004},
		"full":              {Room{Entries: 800, Bytes: 1000}, false, 0.8, 0.01},
		"full of bytes":     {Room{Entries: 1, Bytes: 1 << 20}, false, 1, 0.01},
		"one that is large": {Room{Entries: 1, Bytes: 1 << 22}, false, 1, 0.01},
		"cut":               {Room{Entries: 500, Bytes: 1000}, true, 1, 0.01},
		"empty":             {Room{}, false, 0, 0.004},
	} {
		m := NewMetrics(prometheus.NewRegistry())
		f := filled(room, tc.used, tc.cut)
		m.carried(f, 10*time.Millisecond, 6*time.Millisecond)
		if got := count(m.busy); f != tc.filled || got < tc.busy-1e-9 || got > tc.busy+1e-9 || count(m.filled) != f {
			t.Errorf("%s: filled %v, busy %v", name, f, got)
		}
	}
}

func count(c prometheus.Counter) float64 {
	var m dto.Metric
	_ = c.Write(&m)
	return m.GetCounter().GetValue()
}

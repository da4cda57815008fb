package node

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kit/clocks"
)

func TestClockWatch(t *testing.T) {
	for _, c := range []struct {
		name              string
		wall, mono        time.Duration // since the last look
		ahead, back, rest float64
		woken             int
	}{
		{"as usual", 250 * time.Millisecond, 250 * time.Millisecond, 0, 0, 0, 0},
		{"slewed", 260 * time.Millisecond, 250 * time.Millisecond, 0, 0, 0, 0},
		{"at the limit", 350 * time.Millisecond, 250 * time.Millisecond, 0, 0, 0, 0},
		{"one beyond", 351 * time.Millisecond, 250 * time.Millisecond, 1, 0, 0, 1},
		{"back, at the limit", 150 * time.Millisecond, 250 * time.Millisecond, 0, 0, 0, 0},
		{"back, one beyond", 149 * time.Millisecond, 250 * time.Millisecond, 0, 1, 0, 1},
		{"set ahead an hour", time.Hour, time.Second, 1, 0, 0, 1},
		{"stopped and continued", 8 * time.Second, 8 * time.Second, 0, 0, 1, 0},
		{"suspended", 8 * time.Hour, 300 * time.Millisecond, 1, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			woken := 0
			log := slog.New(slog.DiscardHandler)
			w := newClockWatch(time.Now, new(clocks.Clocks), targets.NewHealth(targets.HealthOptions{Logger: log}),
				func() { woken++ }, func() {}, log, prometheus.NewRegistry())
			start := time.Now()
			w.wall, w.mono = start.Round(0), start
			w.look(start.Round(0).Add(c.wall), start.Add(c.mono))
			got := []float64{count(t, w.jumps.WithLabelValues("ahead")), count(t, w.jumps.WithLabelValues("back")),
				count(t, w.pauses)}
			if got[0] != c.ahead || got[1] != c.back || got[2] != c.rest || woken != c.woken {
				t.Errorf("jumps and pauses %v, woken %d", got, woken)
			}
		})
	}
}

func count(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

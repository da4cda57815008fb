package partition

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/budget"
	"github.com/waterclock/waterclock/internal/ownership"
)

func TestLag(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	after := func(d time.Duration) time.Time { return start.Add(d) }
	var l lag
	shows := func(what string, now time.Duration, paused bool, behind int64, age time.Duration) {
		t.Helper()
		if b, a := l.now(after(now), paused); b != behind || a != age {
			t.Errorf("%s: %d records, %s, want %d, %s", what, b, a, behind, age)
		}
	}
	shows("nothing read yet", 0, false, 0, 0)
	l.read(0, after(-3*time.Second), start) // a request of 3 s ago, the last one
	shows("just read", 0, false, 0, 3*time.Second)
	shows("still the last", caughtUp+time.Second, false, 0, 0)
	l.read(7, after(-3*time.Second), start)
	shows("seven more", 2*time.Second, false, 7, 5*time.Second)
	l.read(0, after(-3*time.Second), start)
	shows("paused", 10*time.Second, true, 0, 13*time.Second)
	l.ends(50)
	shows("paused, and the end was asked for", 10*time.Second, true, 50, 13*time.Second)
	if !l.due(start) || l.due(after(lagLook/2)) || !l.due(after(lagLook)) {
		t.Errorf("the end is not asked for every %s", lagLook)
	}
}

// What is read last tells the lag until it is told that only markers are behind it.
func TestLagEndsWithMarkers(t *testing.T) {
	p := New(Options{
		Options: ownership.Options{Topics: &delaytopics.Set{Request: delaytopics.Topic{Name: "r"}}, Now: time.Now, Logger: slog.New(slog.DiscardHandler)},
		Metrics: NewMetrics(prometheus.NewRegistry()),
		Memory:  Memory{Requests: budget.Alone(1 << 20), Firings: budget.Alone(1 << 20)},
	})
	p.Deliver([]*kgo.Record{{Offset: 6, Timestamp: time.Now()}}, 8)
	if behind, _ := p.lag.now(time.Now().Add(time.Hour), false); behind != 1 {
		t.Errorf("%d behind, want 1", behind)
	}
	p.Deliver(nil, 7)
	if behind, age := p.lag.now(time.Now().Add(time.Hour), false); behind != 0 || age != 0 {
		t.Errorf("%d behind, for %s", behind, age)
	}
}

// The alert is one for whatever retention: three quarters of a hundred years are no
// number of nanoseconds in between.
func TestRetentionAlert(t *testing.T) {
	for _, x := range []struct {
		retention, lag time.Duration
		alert          bool
	}{
		{-1, time.Hour, false},
		{4 * time.Hour, 2 * time.Hour, false},
		{4 * time.Hour, 3*time.Hour + time.Second, true},
		{100 * 365 * 24 * time.Hour, time.Hour, false},
	} {
		p := New(Options{
			Options: ownership.Options{
				Topics: &delaytopics.Set{Request: delaytopics.Topic{Name: "r", Retention: x.retention}}, Now: time.Now,
				Health: emitter.NewHealth(emitter.HealthOptions{}), Logger: slog.New(slog.DiscardHandler),
			},
			Metrics: NewMetrics(prometheus.NewRegistry()),
		})
		p.watchRetention(time.Now().Add(-x.lag))
		if alert := !p.alerted.IsZero(); alert != x.alert {
			t.Errorf("a lag of %s of %s: alert %v", x.lag, x.retention, alert)
		}
	}
}

package partition

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/ownership"
)

// The lag is the number of records that are not read yet and the age of the newest request read.
func TestLagCountsRecordsAndAge(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	after := func(d time.Duration) time.Time { return start.Add(d) }
	var l *lag
	var u unread
	shows := func(what string, now time.Duration, paused bool, behind int64, age time.Duration) {
		t.Helper()
		if b, a := l.now(after(now), paused, u); b != behind || a != age {
			t.Errorf("%s: %d records, %s, want %d, %s", what, b, a, behind, age)
		}
	}
	shows("nothing read yet", 0, false, 0, 0)
	l = &lag{0, after(-3 * time.Second), start} // a request from 3 s ago, the last one
	shows("just read", 0, false, 0, 3*time.Second)
	shows("still the last", caughtUp+time.Second, false, 0, 0)
	l = &lag{7, after(-3 * time.Second), start}
	shows("seven more", 2*time.Second, false, 7, 5*time.Second)
	l = &lag{0, after(-3 * time.Second), start}
	shows("paused", 10*time.Second, true, 0, 13*time.Second)
	u.behind = 50
	shows("paused, and the log was looked at", 10*time.Second, true, 50, 13*time.Second)
	u.oldest = after(20 * time.Second)
	shows("an open transaction, the last request is of long ago", 22*time.Second, false, 50, 2*time.Second)
	l = &lag{7, after(-3 * time.Second), start}
	shows("some before it wait as well", 22*time.Second, false, 50, 25*time.Second)
	l = nil
	shows("an open transaction, and nothing was read since the acquisition", 25*time.Second, false, 50, 5*time.Second)
	u = unread{}
	shows("it has ended", 25*time.Second, false, 0, 0)
}

// Offsets behind an open transaction count as lag. Other offsets do not, because they are markers, or on their way.
func TestLagBehindAnOpenTransaction(t *testing.T) {
	p, s := newRooms(Options{
		Options: ownership.Options{Topics: &topics.Set{Request: topics.Topic{Name: "r"}}, Now: time.Now,
			Logger: slog.New(slog.DiscardHandler)},
		Metrics: NewMetrics(prometheus.NewRegistry()),
		Memory:  Memory{Requests: budget.Alone(1 << 20), Firings: budget.Alone(1 << 20)},
	})
	s.requests.delivered.Store(100)
	for _, x := range []struct {
		name   string
		edge   partlog.Ends
		behind int64
	}{
		{"markers at the end", partlog.Ends{Stable: 110, End: 110}, 0},
		{"open, all before it is read", partlog.Ends{Stable: 100, End: 110}, 10},
		{"open, markers before it", partlog.Ends{Stable: 105, End: 110}, 10},
		{"ended", partlog.Ends{Stable: 110, End: 110}, 0},
	} {
		p.life.Input.SetEnd(ownership.LogEnd{Ends: x.edge, Since: time.Now().Add(-time.Minute)})
		behind, age := s.requests.lagNow()
		if behind != x.behind || (age > 50*time.Second) != (behind > 0) {
			t.Errorf("%s: %d behind for %s, want %d", x.name, behind, age, x.behind)
		}
	}
}

// The last read record determines the lag until it is known that only markers follow it.
func TestLagEndsWithMarkers(t *testing.T) {
	p, s := newRooms(Options{
		Options: ownership.Options{Topics: &topics.Set{Request: topics.Topic{Name: "r"}}, Now: time.Now,
			Logger: slog.New(slog.DiscardHandler), Lanes: emitter.NewLanes(emitter.Options{})},
		Metrics: NewMetrics(prometheus.NewRegistry()),
		Memory:  Memory{Wheel: budget.Alone(1 << 20), Requests: budget.Alone(1 << 20), Firings: budget.Alone(1 << 20)},
		Rules:   new(intake.Rules),
	})
	s.requests.Deliver(partlog.Read{Records: []*kgo.Record{{Offset: 6, Timestamp: time.Now()}}, Next: 7, End: 8})
	if behind, _ := p.lag.Load().now(time.Now().Add(time.Hour), false, unread{}); behind != 1 {
		t.Errorf("%d behind, want 1", behind)
	}
	s.requests.Deliver(partlog.Read{Next: 8, End: 7})
	if behind, age := p.lag.Load().now(time.Now().Add(time.Hour), false, unread{}); behind != 0 || age != 0 {
		t.Errorf("%d behind, for %s", behind, age)
	}
}

// Only the owner of a partition shows its lag. Otherwise alerts would go on, and a scaler would count it twice.
func TestAFormerOwnerShowsNoLag(t *testing.T) {
	g := newSetup(t)
	shown := func() int {
		ch := make(chan prometheus.Metric, 10)
		g.metrics.lagRecords.Collect(ch)
		g.metrics.lagSeconds.Collect(ch)
		return len(ch)
	}
	c := newCore(t, g, 1<<20, 1000)
	c.schedule(1, 10_000)
	c.deliver(1)
	if shown() != 2 {
		t.Fatalf("an owner has %d gauges of its lag, want 2", shown())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.p.Run(ctx)
	if n := shown(); n > 0 {
		t.Errorf("%d gauges of the lag are left when the partition has gone", n)
	}
}

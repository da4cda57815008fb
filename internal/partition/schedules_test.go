package partition

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// All partitions of a topic share one cache of its timers' schedules.
func TestSchedulesAreRememberedOnceForATopic(t *testing.T) {
	rules := &intake.Rules{Topic: "r"}
	for partition := range int32(3) {
		_, s := newRooms(Options{
			Options: ownership.Options{
				Topics: &topics.Set{Request: topics.Topic{Name: "r"}}, Partition: partition, Now: time.Now,
				Logger: slog.New(slog.DiscardHandler),
			},
			Metrics: NewMetrics(prometheus.NewRegistry()), Rules: rules, Memory: Memory{Wheel: budget.Alone(1 << 20)},
		})
		daily := &timer.Timer{ID: []byte("id"), Due: 1, Occurrence: 1,
			Recurrence: &timer.Recurrence{Cron: "@daily", Until: timer.NoUntil}}
		s.subs.planners[0].Load(planner.Lowest, timer.Ref{Due: 10}, []*timer.Timer{daily})
	}
	if n := rules.Schedules().Len(); n != 1 {
		t.Errorf("%d schedules, want 1", n)
	}
}

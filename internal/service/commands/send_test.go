package commands

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/config"
)

// TestScheduleRequestDue: what is said of when a timer is first due is what the
// service would say, and what is sent asks for it.
func TestScheduleRequestDue(t *testing.T) {
	stamp := time.Date(2026, 3, 1, 9, 0, 0, 500_000_000, time.UTC)
	at := stamp.Add(-time.Hour)
	for _, tt := range []struct {
		name string
		req  ScheduleRequest
		want time.Time
	}{
		{"in", ScheduleRequest{In: time.Minute}, stamp.Add(time.Minute)},
		{"at", ScheduleRequest{At: at}, at},
		{"every", ScheduleRequest{Recur: Recurrence{Every: time.Hour}}, stamp.Add(time.Hour)},
		{"every, at", ScheduleRequest{At: at, Recur: Recurrence{Every: time.Hour, Count: 3}}, at},
		{"cron", ScheduleRequest{Recur: Recurrence{Cron: "0 10 * * *", Zone: "Africa/Lagos"}}, stamp.Truncate(time.Second).Add(24 * time.Hour)},
		{"cron in a zone that is not known here", ScheduleRequest{Recur: Recurrence{Cron: "0 10 * * *", Zone: "Mars/Olympus"}}, time.Time{}},
	} {
		if got := tt.req.due(stamp); !got.Equal(tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
	five := 5 * time.Second
	r := ScheduleRequest{Partition: -1, Recur: Recurrence{Cron: "@daily", Zone: "Africa/Lagos", Until: stamp, Count: 3, Jitter: &five, CatchUp: "all"}}
	rec, err := waterclock.Schedule("timers", "id", r.options()...)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"timer-cron", "timer-zone", "timer-until", "timer-count", "timer-jitter", "timer-catch-up"}
	for i, h := range rec.Headers {
		if h.Key != want[i] {
			t.Errorf("header %d is %s, want %s", i, h.Key, want[i])
		}
	}
	if len(rec.Headers) != len(want) {
		t.Errorf("headers %v", rec.Headers)
	}
}

// What no setting of a service allows is refused before it is sent: there is no broker here.
func TestScheduleRefusesBeforeSending(t *testing.T) {
	nobody := &config.Config{Brokers: []string{"127.0.0.1:1"}}
	hour := time.Hour
	for _, tt := range []struct {
		name string
		req  ScheduleRequest
		want waterclock.Reason // "": it is sent, in vain
	}{
		{"too often", ScheduleRequest{Recur: Recurrence{Every: 10 * time.Millisecond}}, waterclock.ReasonIntervalTooShort},
		{"over before it begins", ScheduleRequest{Recur: Recurrence{Every: hour, Until: time.Now()}}, waterclock.ReasonUntilBeforeFirst},
		{"too far ahead", ScheduleRequest{At: time.Now().AddDate(101, 0, 0)}, waterclock.ReasonBeyondHorizon},
		{"to Kafka's own topic", ScheduleRequest{In: hour, To: "__consumer_offsets"}, waterclock.ReasonTargetNotAllowed},
		{"to the request topic", ScheduleRequest{In: hour, To: "timers"}, waterclock.ReasonTargetNotAllowed},
		{"fine", ScheduleRequest{In: hour, To: "orders", Remember: &hour}, ""},
		{"fine, to the default target", ScheduleRequest{In: hour}, ""},
		{"a zone that is not known here", ScheduleRequest{Recur: Recurrence{Cron: "@daily", Zone: "Mars/Olympus"}}, ""},
	} {
		tt.req.Topic, tt.req.ID, tt.req.Partition = "timers", "a1", -1
		rec, err := waterclock.Schedule(tt.req.Topic, tt.req.ID, tt.req.options()...)
		if err != nil {
			t.Fatal(err)
		}
		refusal := refusedAnywhere(rec, tt.req.Topic, time.Now())
		if tt.want == "" {
			if refusal != nil {
				t.Errorf("%s: %+v", tt.name, refusal)
			}
			continue
		}
		sent, err := Schedule(t.Context(), nobody, tt.req)
		if sent.Topic != "" || !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "a1 is not sent, for it would be refused: "+string(tt.want)) {
			t.Errorf("%s: %+v, %v", tt.name, sent, err)
		}
	}
}

// A request in a changelog stops the service: an instance that acquires the partition cannot read it.
func TestNothingIsSentToTopicsOfTheService(t *testing.T) {
	t.Parallel()
	nobody := &config.Config{Brokers: []string{"127.0.0.1:1"}}
	for _, topic := range []string{"timers.waterclock.changelog", "timers.waterclock.dead-letters", "timers.waterclock.events", "timers.waterclock.checkpoints", "__consumer_offsets"} {
		want := topic + " is no request topic"
		_, err := Schedule(t.Context(), nobody, ScheduleRequest{Topic: topic, ID: "a1", In: time.Hour, To: "orders"})
		if !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("schedule on %s: %v", topic, err)
		}
		for _, action := range []Action{Cancel, Trigger, Pause, Resume} {
			_, err := Steer(t.Context(), nobody, SteerRequest{Topic: topic, ID: "a1", Action: action})
			if !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s on %s: %v", action, topic, err)
			}
		}
	}
}

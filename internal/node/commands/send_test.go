package commands

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/node/config"
)

// The first due time that is printed is the one that the service would compute.
func TestDue(t *testing.T) {
	stamp := time.Date(2026, 3, 1, 9, 0, 0, 500_000_000, time.UTC)
	at := stamp.Add(-time.Hour)
	for _, tt := range []struct {
		name string
		opts []waterclock.Option
		want time.Time
	}{
		{"in", []waterclock.Option{waterclock.After(time.Minute)}, stamp.Add(time.Minute)},
		{"at", []waterclock.Option{waterclock.At(at)}, at},
		{"every", []waterclock.Option{waterclock.Every(time.Hour)}, stamp.Add(time.Hour)},
		{"every, at", []waterclock.Option{waterclock.At(at), waterclock.Every(time.Hour), waterclock.Count(3)}, at},
		{"cron", []waterclock.Option{waterclock.Cron("0 10 * * *"), waterclock.Zone("Africa/Lagos"),
			waterclock.Jitter(time.Hour)}, stamp.Truncate(time.Second).Add(24 * time.Hour)},
		{"cron in a zone that is not known here",
			[]waterclock.Option{waterclock.Cron("0 10 * * *"), waterclock.Zone("Mars/Olympus")}, time.Time{}},
	} {
		rec, err := (&Request{Topic: "timers", ID: "a1", Options: tt.opts}).Record()
		if err != nil {
			t.Fatal(err)
		}
		if got := due(rec, stamp); !got.Equal(tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
	rec, err := (&Request{Topic: "timers", ID: "a1", Action: Cancel}).Record()
	if err != nil || !due(rec, stamp).IsZero() {
		t.Errorf("a cancel is due %v, %v", due(rec, stamp), err)
	}
}

// A request that every setting of a service rejects is rejected before it is sent: there is no broker here.
func TestSendRefusesBeforeSending(t *testing.T) {
	nobody := &config.Config{Brokers: []string{"127.0.0.1:1"}}
	hour := waterclock.After(time.Hour)
	for _, tt := range []struct {
		name string
		opts []waterclock.Option
		want waterclock.Reason // "": it is sent, in vain
	}{
		{"too often", []waterclock.Option{waterclock.Every(10 * time.Millisecond)}, waterclock.ReasonIntervalTooShort},
		{"over before it begins", []waterclock.Option{waterclock.Every(time.Hour), waterclock.Until(time.Now())},
			waterclock.ReasonUntilBeforeFirst},
		{"too far ahead", []waterclock.Option{waterclock.At(time.Now().AddDate(101, 0, 0))},
			waterclock.ReasonBeyondHorizon},
		{"to Kafka's own topic", []waterclock.Option{hour, waterclock.To("__consumer_offsets")},
			waterclock.ReasonTargetNotAllowed},
		{"to the request topic", []waterclock.Option{hour, waterclock.To("timers")}, waterclock.ReasonTargetNotAllowed},
		{"fine", []waterclock.Option{hour, waterclock.To("orders"), waterclock.Remember(time.Hour)}, ""},
		{"fine, to the default target", []waterclock.Option{hour}, ""},
		{"a zone that is not known here",
			[]waterclock.Option{waterclock.Cron("@daily"), waterclock.Zone("Mars/Olympus")}, ""},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if tt.want == "" {
			cancel() // the search for a broker ends at once
		}
		sent, err := Send(ctx, nobody, Request{Topic: "timers", ID: "a1", Options: tt.opts})
		cancel()
		refused := errors.Is(err, config.ErrInvalid) && strings.Contains(err.Error(),
			"not sent, because the service would reject it: "+string(tt.want))
		if sent.Topic != "" || err == nil || refused != (tt.want != "") {
			t.Errorf("%s: %+v, %v", tt.name, sent, err)
		}
	}
}

// A request in a changelog stops the service: an instance that acquires the partition cannot read it.
func TestNothingIsSentToTopicsOfTheService(t *testing.T) {
	t.Parallel()
	nobody := &config.Config{Brokers: []string{"127.0.0.1:1"}}
	for _, topic := range []string{"timers.waterclock.changelog", "timers.waterclock.dead-letters",
		"timers.waterclock.events", "timers.waterclock.checkpoints", "__consumer_offsets"} {
		want := topic + " is not a request topic"
		for _, action := range []Action{"", Cancel, Trigger, Pause, Resume} {
			r := Request{Topic: topic, ID: "a1", Action: action}
			if action == "" {
				r.Options = []waterclock.Option{waterclock.After(time.Hour), waterclock.To("orders")}
			}
			_, err := Send(t.Context(), nobody, r)
			if !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s on %s: %v", action, topic, err)
			}
		}
	}
}

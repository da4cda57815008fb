// Package commands has the commands that talk to a cluster without running an instance (such as schedule, cancel and
// topics), and those that look into the data directory of a stopped instance.
package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/calendar"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/service/connect"
	"github.com/waterclock/waterclock/internal/service/policy"
	"github.com/waterclock/waterclock/internal/topics"
)

// ScheduleRequest is one timer, as the command line gives it.
type ScheduleRequest struct {
	Topic   string // request topic
	ID      string
	At      time.Time     // due time, or
	In      time.Duration // due so long after the request's timestamp
	Recur   Recurrence    // how it recurs; the zero value: it does not
	MaxLate *time.Duration
	// Remember is how long the ID stays taken after the firing; nil: not at all.
	Remember *time.Duration
	If       string // condition; empty: none
	To       string // target topic; empty: the request topic's default
	Value    []byte // nil is a null value
	Key      []byte // nil without NullKey: the ID is the key
	NullKey  bool
	// Partition is the explicit target partition, -1 for none.
	Partition int32
	Headers   []kgo.RecordHeader
	// Wait is how long to wait for the request's outcome; 0 is not at all.
	Wait time.Duration
}

// Recurrence is how a timer recurs, as the command line gives it. A field that is zero or nil was not given.
type Recurrence struct {
	Every      time.Duration
	Cron, Zone string
	Until      time.Time
	Count      int64
	Jitter     *time.Duration
	CatchUp    string
}

// options returns the options that were given, in the order of the record's headers.
func (r *ScheduleRequest) options() (opts []waterclock.Option) {
	add := func(given bool, o waterclock.Option) {
		if given {
			opts = append(opts, o)
		}
	}
	c := &r.Recur
	add(r.Value != nil, waterclock.Value(r.Value))
	add(r.Value == nil, waterclock.NullValue())
	add(!r.At.IsZero(), waterclock.At(r.At))
	add(r.At.IsZero() && c.Every == 0 && c.Cron == "", waterclock.After(r.In))
	add(c.Every != 0, waterclock.Every(c.Every))
	add(c.Cron != "", waterclock.Cron(c.Cron))
	add(c.Zone != "", waterclock.Zone(c.Zone))
	add(!c.Until.IsZero(), waterclock.Until(c.Until))
	add(c.Count != 0, waterclock.Count(c.Count))
	if c.Jitter != nil {
		add(true, waterclock.Jitter(*c.Jitter))
	}
	add(c.CatchUp != "", waterclock.CatchUp(waterclock.CatchUpPolicy(c.CatchUp)))
	if r.MaxLate != nil {
		add(true, waterclock.MaxLate(*r.MaxLate))
	}
	if r.Remember != nil {
		add(true, waterclock.Remember(*r.Remember))
	}
	add(r.If != "", waterclock.If(r.If))
	add(r.To != "", waterclock.To(r.To))
	add(r.NullKey, waterclock.NullKey())
	add(!r.NullKey && r.Key != nil, waterclock.Key(r.Key))
	add(r.Partition >= 0, waterclock.Partition(r.Partition))
	for _, h := range r.Headers {
		add(true, waterclock.Header(h.Key, h.Value))
	}
	return opts
}

// due returns when the timer is first due, given the timestamp of its request. It returns zero if it cannot work that
// out: the service may have newer time zone rules.
func (r *ScheduleRequest) due(stamp time.Time) time.Time {
	switch {
	case !r.At.IsZero():
		return r.At
	case r.Recur.Cron == "":
		return stamp.Add(r.In + r.Recur.Every)
	}
	s, err := new(calendar.Cache).Schedule(r.Recur.Cron, r.Recur.Zone)
	if err != nil {
		return time.Time{}
	}
	instant, _ := s.Next(stamp.Unix())
	return time.Unix(instant, 0)
}

// Sent says where a request went.
type Sent struct {
	Topic     string
	Partition int32
	Offset    int64
	// Due is when the timer is first due, without jitter; zero if nothing is scheduled, or if the time is not known.
	Due time.Time
	// Note warns if the target does not exist; "" otherwise.
	Note string
	// Outcome is the outcome of the request, if the caller waited for it and there was no error; nil otherwise.
	Outcome *Outcome
}

// Schedule sends one timer. If the result is not zero, the request is in the log, even if there is an error. The error
// then says that waiting for the outcome has failed.
func Schedule(ctx context.Context, cfg *config.Config, r ScheduleRequest) (Sent, error) {
	rec, err := waterclock.Schedule(r.Topic, r.ID, r.options()...)
	if err != nil {
		return Sent{}, invalid(err)
	}
	if refusal := refusedAnywhere(rec, r.Topic, time.Now()); refusal != nil {
		return Sent{}, invalid(fmt.Errorf("%s is not sent, for it would be refused: %s: %s", r.ID, refusal.Reason, refusal.Detail))
	}
	rec.Partition = connect.ByKey
	return sendAndWait(ctx, cfg, rec, sending{wait: r.Wait, due: r.due, to: r.To})
}

// refusedAnywhere validates a request as the service does, with the widest rules that settings allow. No instance
// accepts a request that these rules refuse. An instance may refuse more, because only the service knows its targets
// and its lower limits.
func refusedAnywhere(rec *kgo.Record, topic string, now time.Time) *intake.Refusal {
	rules := &intake.Rules{
		Topic: topic, Changelog: topics.Changelog(topic), DefaultTarget: "any", Limits: intake.DefaultLimits(),
		Allow: func(string) bool { return true }, Never: policy.Never(&config.Config{Requests: []string{topic}}),
	}
	at := *rec
	at.Timestamp = now
	_, _, refusal := rules.Validate(&at, now.UnixMilli())
	if refusal != nil && refusal.Reason == waterclock.ReasonUnknownZone {
		return nil // the service may have newer time zone rules
	}
	return refusal
}

// sending says how a request is sent.
type sending struct {
	kind Action                       // "": it schedules
	wait time.Duration                // how long to wait for its outcome; 0: not at all
	due  func(at time.Time) time.Time // when its timer is due, given its timestamp; nil: it has none
	to   string                       // target topic; empty: none is named
}

// sendAndWait sends one request and waits for its outcome. It sends nothing to a topic of the service or of Kafka: a request
// in a changelog stops every instance that acquires the partition.
func sendAndWait(ctx context.Context, cfg *config.Config, rec *kgo.Record, s sending) (Sent, error) {
	if topics.IsOwn(rec.Topic) || strings.HasPrefix(rec.Topic, "__") {
		return Sent{}, invalid(fmt.Errorf("%s is no request topic, but one of the service or of Kafka: choose a request topic with --topic", rec.Topic))
	}
	cl, err := connect.Open(ctx, cfg)
	if err != nil {
		return Sent{}, err
	}
	defer cl.Close()
	var w *watcher
	if s.wait > 0 {
		if w, err = watch(ctx, cfg, cl, rec.Topic, string(rec.Key), s.kind); err != nil {
			return Sent{}, err
		}
	}
	sent, at, err := send(ctx, cfg, cl, rec)
	if err != nil {
		return Sent{}, err
	}
	if s.due != nil {
		sent.Due = s.due(at)
	}
	if s.to != "" {
		sent.Note = connect.MissingTarget(ctx, cl, s.to)
	}
	if w == nil {
		return sent, nil
	}
	outcome, err := w.await(ctx, sent, s.wait)
	if err == nil {
		sent.Outcome = &outcome
	}
	return sent, err
}

// Action is the effect of a request that does not schedule.
type Action string

// The actions.
const (
	Cancel  Action = "cancel"
	Trigger Action = "trigger"
	Pause   Action = "pause"
	Resume  Action = "resume"
)

// SteerRequest is a request that does not schedule.
type SteerRequest struct {
	Topic, ID string
	Action    Action
	If        string // condition; empty: none
	Partition *int32 // of the request topic; nil: by the ID
	// Wait is how long to wait for the request's outcome; 0 is not at all.
	Wait time.Duration
}

func (r *SteerRequest) record() (*kgo.Record, error) {
	build := waterclock.Cancel
	switch r.Action {
	case Trigger:
		build = waterclock.Trigger
	case Pause:
		build = waterclock.Pause
	case Resume:
		build = waterclock.Resume
	case Cancel:
	}
	if r.If == "" {
		return build(r.Topic, r.ID)
	}
	return build(r.Topic, r.ID, waterclock.If(r.If))
}

// Steer sends a request that does not schedule. Its results mean the same as those of Schedule.
func Steer(ctx context.Context, cfg *config.Config, r SteerRequest) (Sent, error) {
	rec, err := r.record()
	if err != nil {
		return Sent{}, invalid(err)
	}
	rec.Partition = connect.ByKey
	if r.Partition != nil {
		rec.Partition = *r.Partition
	}
	return sendAndWait(ctx, cfg, rec, sending{kind: r.Action, wait: r.Wait})
}

// invalid marks an error as a usage error: trying again will not help.
func invalid(err error) error { return &invalidError{err} }

type invalidError struct{ err error }

func (e *invalidError) Error() string { return e.err.Error() }

func (e *invalidError) Unwrap() []error { return []error{e.err, config.ErrInvalid} }

func send(ctx context.Context, cfg *config.Config, cl *kgo.Client, rec *kgo.Record) (Sent, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, connect.CommandTimeout)
	defer cancel()
	r, err := cl.ProduceSync(ctx, rec).First()
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return Sent{}, time.Time{}, noRequestTopic(rec.Topic)
	}
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		grant := topics.Access{Requests: []string{rec.Topic}}.Producers()[0]
		return Sent{}, time.Time{}, errors.New(connect.Missing(cfg, grant))
	}
	if err != nil {
		return Sent{}, time.Time{}, fmt.Errorf("send to %s: %w", rec.Topic, err)
	}
	return Sent{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}, r.Timestamp, nil
}

func noRequestTopic(topic string) error {
	return fmt.Errorf("there is no topic %s; create it, or choose another request topic with --topic", topic)
}

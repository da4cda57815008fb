// Package commands has the commands that talk to a cluster without being an instance (schedule, cancel,
// topics), or that look into the data directory of a stopped one.
package commands

import (
	"context"
	"errors"
	"fmt"
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
	// Remember is for how long the ID stays taken behind the firing; nil: not at all.
	Remember *time.Duration
	If       string // condition; empty: none
	To       string // target topic; empty: the request topic's default
	Value    []byte // nil is a null value
	Key      []byte // nil and not NullKey: the ID
	NullKey  bool
	// Partition is the explicit target partition, -1 for none.
	Partition int32
	Headers   []kgo.RecordHeader
	// Wait is how long to wait for the request's outcome; 0 is not at all.
	Wait time.Duration
}

// Recurrence is how a timer recurs, as the command line gives it. What is zero, or
// nil, is not given.
type Recurrence struct {
	Every      time.Duration
	Cron, Zone string
	Until      time.Time
	Count      int64
	Jitter     *time.Duration
	CatchUp    string
}

func (r *Recurrence) recurs() bool { return r.Every != 0 || r.Cron != "" }

func (r *Recurrence) options() (opts []waterclock.Option) {
	if r.Every != 0 {
		opts = append(opts, waterclock.Every(r.Every))
	}
	if r.Cron != "" {
		opts = append(opts, waterclock.Cron(r.Cron))
	}
	if r.Zone != "" {
		opts = append(opts, waterclock.Zone(r.Zone))
	}
	if !r.Until.IsZero() {
		opts = append(opts, waterclock.Until(r.Until))
	}
	if r.Count != 0 {
		opts = append(opts, waterclock.Count(r.Count))
	}
	if r.Jitter != nil {
		opts = append(opts, waterclock.Jitter(*r.Jitter))
	}
	if r.CatchUp != "" {
		opts = append(opts, waterclock.CatchUp(waterclock.CatchUpPolicy(r.CatchUp)))
	}
	return opts
}

func (r *ScheduleRequest) options() []waterclock.Option {
	opts := []waterclock.Option{waterclock.Value(r.Value)}
	if r.Value == nil {
		opts = []waterclock.Option{waterclock.NullValue()}
	}
	switch {
	case !r.At.IsZero():
		opts = append(opts, waterclock.At(r.At))
	case !r.Recur.recurs():
		opts = append(opts, waterclock.After(r.In))
	}
	opts = append(opts, r.Recur.options()...)
	if r.MaxLate != nil {
		opts = append(opts, waterclock.MaxLate(*r.MaxLate))
	}
	if r.Remember != nil {
		opts = append(opts, waterclock.Remember(*r.Remember))
	}
	if r.If != "" {
		opts = append(opts, waterclock.If(r.If))
	}
	if r.To != "" {
		opts = append(opts, waterclock.To(r.To))
	}
	if r.NullKey {
		opts = append(opts, waterclock.NullKey())
	} else if r.Key != nil {
		opts = append(opts, waterclock.Key(r.Key))
	}
	if r.Partition >= 0 {
		opts = append(opts, waterclock.Partition(r.Partition))
	}
	for _, h := range r.Headers {
		opts = append(opts, waterclock.Header(h.Key, h.Value))
	}
	return opts
}

// due is when the timer is first scheduled, given the timestamp of its request, or
// zero if that cannot be told here: the service may know the zone.
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
	// Due is when the timer is first due, without jitter; zero if nothing is scheduled, or if
	// it cannot be told.
	Due time.Time
	// Note warns of something unusual: that the target does not exist.
	Note string
	// Outcome is what it became, if that was waited for and no error was met.
	Outcome *Outcome
}

// Schedule sends one timer. What it returns with an error says where it is in the
// log all the same, unless that is zero: it may be waited for in vain.
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

// refusedAnywhere judges a request as the service does, by rules that no setting widens: what they
// refuse no instance takes. Targets, and limits that are lowered, only the service knows.
func refusedAnywhere(rec *kgo.Record, topic string, now time.Time) *intake.Refusal {
	rules := &intake.Rules{
		Topic: topic, Changelog: topics.Changelog(topic), DefaultTarget: "any", Limits: intake.DefaultLimits(),
		Allow: func(string) bool { return true }, Never: policy.Never(&config.Config{Requests: []string{topic}}),
	}
	at := *rec
	at.Timestamp = now
	_, _, refusal := rules.Validate(&at, now.UnixMilli())
	if refusal != nil && refusal.Reason == waterclock.ReasonUnknownZone {
		return nil // the service may have newer rules of zones
	}
	return refusal
}

// sending is how a request is sent.
type sending struct {
	kind Action                       // "": it schedules
	wait time.Duration                // how long to wait for its outcome; 0: not at all
	due  func(at time.Time) time.Time // when its timer is due, given its timestamp; nil: it has none
	to   string                       // target topic; empty: none is named
}

// sendAndWait sends one request and waits for its outcome.
func sendAndWait(ctx context.Context, cfg *config.Config, rec *kgo.Record, s sending) (Sent, error) {
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

// Action is what a request does that does not schedule.
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

// Steer sends a request that does not schedule. Its results are those of Schedule.
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

// invalid marks the error of a request that cannot be built as one of usage:
// trying again will not help.
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

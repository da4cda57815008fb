// Package commands has the commands that talk to a cluster without running an instance (such as schedule, cancel and
// topics), and those that read the data directory of a stopped instance:
//
//	sent, err := commands.Send(ctx, cfg, commands.Request{Topic: "timers", ID: "a", …})
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
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/policy"
	"github.com/waterclock/waterclock/internal/timer"
)

// Request is one request, as the command line gives it.
type Request struct {
	Topic     string // request topic
	ID        string
	Action    Action // "": it schedules
	Options   []waterclock.Option
	To        string // the target topic that the options name; empty: none
	Partition *int32 // of the request topic; nil: by the ID
	// Wait is how long to wait for the request's outcome; 0 is not at all.
	Wait time.Duration
}

// Action is the effect of a request that does not schedule.
type Action string

// The actions.
const (
	Cancel  Action = "cancel"
	Trigger Action = "trigger"
	Pause   Action = "pause"
	Resume  Action = "resume"
	Move    Action = "move"
)

// Record returns the record to be written.
func (r *Request) Record() (*kgo.Record, error) {
	request := map[Action]func(topic, id string, options ...waterclock.Option) (*kgo.Record, error){
		"": waterclock.Schedule, Cancel: waterclock.Cancel, Trigger: waterclock.Trigger, Pause: waterclock.Pause,
		Resume: waterclock.Resume, Move: waterclock.Move,
	}[r.Action]
	rec, err := request(r.Topic, r.ID, r.Options...)
	if err == nil && r.Partition != nil {
		rec.Partition = *r.Partition
	}
	return rec, err
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

// Send sends one request. If the result is not zero, the request is in the log, even if there is an error. The error
// then says that waiting for the outcome has failed. It sends nothing to a topic of the service or of Kafka: a request
// in a changelog stops every instance that acquires the partition.
func Send(ctx context.Context, cfg *config.Config, r Request) (Sent, error) {
	rec, err := r.Record()
	if err != nil {
		return Sent{}, config.Invalid(err)
	}
	// An unknown time zone may be known to the service, which may have newer rules.
	if _, refusal := validate(rec, time.Now()); r.Action == "" && refusal != nil &&
		refusal.Reason != string(waterclock.ReasonUnknownZone) {
		return Sent{}, config.Invalid(fmt.Errorf("not sent, because the service would reject it: %s: %s",
			refusal.Reason, refusal.Detail))
	}
	if topics.IsOwn(rec.Topic) || strings.HasPrefix(rec.Topic, "__") {
		return Sent{}, config.Invalid(fmt.Errorf(
			"%s is not a request topic but one of the service or of Kafka: choose a request topic with --topic",
			rec.Topic))
	}
	var opts []kgo.Opt
	if r.Partition != nil {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	cl, err := connect.Open(ctx, cfg, opts...)
	if err != nil {
		return Sent{}, err
	}
	defer cl.Close()
	var w *watcher
	if r.Wait > 0 {
		if w, err = watch(ctx, cfg, cl, &r); err != nil {
			return Sent{}, err
		}
	}
	sent, err := write(ctx, cfg, cl, rec)
	if err != nil {
		return Sent{}, err
	}
	if r.To != "" {
		sent.Note = connect.MissingTarget(ctx, cl, r.To)
	}
	if w == nil {
		return sent, nil
	}
	outcome, err := w.await(ctx, sent, r.Wait)
	if err == nil {
		sent.Outcome = &outcome
	}
	return sent, err
}

// validate validates a request as the service does, with the widest rules that settings allow. No instance accepts a
// request that these rules refuse. An instance may refuse more, because only the service knows its targets and its
// lower limits.
func validate(rec *kgo.Record, stamp time.Time) (timer.Request, *timer.Refusal) {
	rules := &intake.Rules{
		Topic: rec.Topic, Changelog: topics.Changelog(rec.Topic), DefaultTarget: "any", Limits: intake.DefaultLimits(),
		Allow: func(string) bool { return true }, Never: policy.Never(&config.Config{Requests: []string{rec.Topic}}),
	}
	at := *rec
	at.Timestamp = stamp
	req, _, refusal := rules.Validate(&at, stamp.UnixMilli())
	return req, refusal
}

// due returns when the timer of a request is first due, given the request's timestamp. It returns zero if the request
// schedules none, or if that cannot be worked out: only the service knows the calendars, and it may have newer time
// zone rules.
func due(rec *kgo.Record, stamp time.Time) time.Time {
	req, refusal := validate(rec, stamp)
	if refusal != nil || req.Schedule == nil || req.Schedule.Recurrence != nil && req.Schedule.Recurrence.NotOn != "" {
		return time.Time{}
	}
	return time.UnixMilli(req.Schedule.Scheduled())
}

func write(ctx context.Context, cfg *config.Config, cl *kgo.Client, rec *kgo.Record) (Sent, error) {
	ctx, cancel := context.WithTimeout(ctx, connect.CommandTimeout)
	defer cancel()
	r, err := cl.ProduceSync(ctx, rec).First()
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return Sent{}, noRequestTopic(rec.Topic)
	}
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		grant := topics.Access{Requests: []string{rec.Topic}}.Producers()[0]
		return Sent{}, errors.New(connect.Missing(cfg, grant))
	}
	if err != nil {
		return Sent{}, fmt.Errorf("send to %s: %w", rec.Topic, err)
	}
	return Sent{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Due: due(rec, r.Timestamp)}, nil
}

func noRequestTopic(topic string) error {
	return fmt.Errorf("topic %s does not exist; create it, or choose another request topic with --topic", topic)
}

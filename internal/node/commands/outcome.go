package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/policy"
	"github.com/waterclock/waterclock/internal/timer"
)

// Outcome is the outcome of a request, as a plain consumer of the service's own topics sees it.
type Outcome struct {
	// Type is the outcome in the words of events. For a request that schedules, it is the last change of the timer in
	// the same step: for example fired, if the timer was due immediately. NothingDone says that the request changed
	// nothing. "" says that the request was decided, but it is not known how: the timer has fired or expired, the
	// condition did not hold, or another request replaced the timer in the same step. Events, if they are written, tell
	// which.
	Type waterclock.EventType
	// EventsRead says that events were read. If so, NothingDone is certain. Without events, the timer may have come and
	// gone in the same step.
	EventsRead bool
	// Source is the request's topic, partition and offset.
	Source waterclock.Source
	// Event is the event that shows the outcome; nil if none does.
	Event *waterclock.Event
	// Refused is the dead letter of a request that was rejected, or of an emission.
	Refused *waterclock.DeadLetter
}

// NothingDone is the outcome of a request without an effect: no timer was pending, or it was already in the requested
// state. There is no event for it.
const NothingDone waterclock.EventType = "nothing-done"

// ErrUndecided says that no instance has decided the request yet.
var ErrUndecided = errors.New("request not processed yet")

// watcher learns the outcome of one request. It is created before the request is written, so that it cannot miss a
// result. The only right that it needs, in addition to those of a producer, is Read on the changelog and the dead
// letters. It reads the events if it is allowed to.
//
// A request is decided once the changelog has a checkpoint whose position lies beyond it. The records of the deciding
// step lie directly before that checkpoint, behind the previous one. The step's records on the other topics were
// committed with it. So the watcher then asks where those logs end, and reads them up to there, which includes the
// step's marker.
type watcher struct {
	cfg    *config.Config
	client *kgo.Client // asks for the ends of logs
	req    *Request    // whose outcome is watched
	// letters is the topic of dead letters, and events the topic of events. events is "" if there is no such topic, or
	// if the watcher is not allowed to read it.
	letters, events string
	from            map[string]map[int32]kgo.Offset

	sent    Sent
	outcome Outcome
	left    *timer.Timer // the timer that the current step has left under the ID
	touched bool         // the current step has written or deleted a timer under the ID
	decided bool
	read    map[string]map[int32]int64 // how far each log is read, by topic and partition
	until   map[string]map[int32]int64 // how far letters and events must be read; nil until the request is decided
}

// watch begins to watch for the outcome of a request.
func watch(ctx context.Context, cfg *config.Config, cl *kgo.Client, r *Request) (*watcher, error) {
	w := &watcher{cfg: cfg, client: cl, req: r, letters: policy.DeadLetters(cfg, r.Topic),
		events: topics.Events(r.Topic),
		from:   make(map[string]map[int32]kgo.Offset), read: make(map[string]map[int32]int64)}
	if err := w.mayRead(ctx); err != nil {
		return nil, err
	}
	if _, err := w.ends(ctx, r.Topic); errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, noRequestTopic(r.Topic)
	} else if err != nil {
		return nil, err
	}
	for _, own := range []string{topics.Changelog(r.Topic), w.letters, w.events} {
		ends, err := w.ends(ctx, own)
		switch {
		case own == w.events &&
			(errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.TopicAuthorizationFailed)):
			w.events = ""
			continue
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			return nil, fmt.Errorf("topic %s does not exist: %s has never been served as a request topic (a "+
				"fixed-delay topic takes no timers); start waterclock serve", own, r.Topic)
		case err != nil:
			return nil, err
		}
		w.from[own] = make(map[int32]kgo.Offset, len(ends))
		for p, end := range ends {
			w.from[own][p] = kgo.NewOffset().At(end)
		}
		w.read[own] = ends
	}
	return w, nil
}

func (w *watcher) mayRead(ctx context.Context) error {
	var grants []topics.Grant
	for _, own := range []string{topics.Changelog(w.req.Topic), w.letters, w.events} {
		grants = append(
			grants, topics.Grant{Resource: kmsg.ACLResourceTypeTopic, Name: own,
				Operations: []kmsg.ACLOperation{kmsg.ACLOperationRead}})
	}
	missing, err := connect.MissingTopics(ctx, w.client, grants)
	for _, g := range missing {
		if g.Name == w.events {
			w.events = ""
			continue
		}
		err = errors.Join(err, errors.New("--wait: "+connect.Missing(w.cfg, g)))
	}
	return err
}

// ends returns the high watermarks of a topic, by partition.
func (w *watcher) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	if topic == "" {
		return nil, kerr.UnknownTopicOrPartition
	}
	ends, err := connect.Offsets(kadm.NewClient(w.client).ListEndOffsets(ctx, topic))
	if err != nil {
		return nil, fmt.Errorf("list the ends of %s: %w", topic, err)
	}
	return ends, nil
}

// await returns the outcome of the request that was sent, or ErrUndecided after the limit.
func (w *watcher) await(ctx context.Context, sent Sent, limit time.Duration) (Outcome, error) {
	w.sent, w.outcome.Source = sent, waterclock.Source{Topic: sent.Topic, Partition: sent.Partition,
		Offset: sent.Offset}
	for _, log := range []string{topics.Changelog(w.req.Topic), w.events} {
		if w.from[log] != nil { // only the partition of the same number can show the outcome
			w.from[log] = map[int32]kgo.Offset{sent.Partition: w.from[log][sent.Partition]}
		}
	}
	opts, err := connect.CommandOptions(w.cfg)
	if err != nil {
		return Outcome{}, err
	}
	// Keep markers: a log may end with a marker, and its end must be reached.
	cl, err := kgo.NewClient(append(opts, kgo.ConsumePartitions(w.from), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords())...)
	if err != nil {
		return Outcome{}, fmt.Errorf("build client: %w", err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !w.done() {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return Outcome{}, fmt.Errorf("%w within %s: does waterclock serve run for %s, with these brokers?",
				ErrUndecided, span.String(limit), w.req.Topic)
		}
		fetches.EachRecord(w.record)
		if w.decided && w.until == nil {
			if err := w.readTo(ctx); err != nil {
				return Outcome{}, err
			}
		}
	}
	w.conclude()
	return w.outcome, nil
}

// readTo asks where the dead letters and events end now. That is how far they must be read.
func (w *watcher) readTo(ctx context.Context) error {
	until := make(map[string]map[int32]int64)
	for _, log := range []string{w.letters, w.events} {
		if log == "" {
			continue
		}
		ends, err := w.ends(ctx, log)
		if err != nil {
			return err
		}
		for p := range ends {
			if _, reads := w.from[log][p]; !reads {
				delete(ends, p) // a partition of other requests, or a new one
			}
		}
		until[log] = ends
	}
	w.until = until
	return nil
}

// done reports whether the outcome is known.
func (w *watcher) done() bool {
	for log, ends := range w.until {
		for p, end := range ends {
			if w.read[log][p] < end {
				return false
			}
		}
	}
	return w.until != nil
}

func (w *watcher) record(r *kgo.Record) {
	if read := w.read[r.Topic]; read != nil {
		read[r.Partition] = r.Offset + 1
	}
	switch {
	case r.Attrs.IsControl():
	case r.Topic == w.letters:
		if d, err := waterclock.ParseDeadLetter(r); err == nil && d.Source == w.outcome.Source {
			w.outcome.Refused = &d
		}
	case r.Topic == w.events:
		if e, err := waterclock.ParseEvent(r); err == nil && w.mine(&e) {
			w.outcome.Event, w.outcome.Type = &e, e.Type
		}
	case !w.decided:
		w.change(r)
	}
}

// mine reports whether an event shows the outcome of the request. If the request schedules, every event of its timer
// does.
func (w *watcher) mine(e *waterclock.Event) bool {
	is := w.outcome.Source
	return e.Request == is || e.Cancel == is || e.Type == waterclock.EventMoved && e.Source == is ||
		w.req.Action == "" && (e.Source == is || e.Previous == is)
}

// change applies a record of the changelog. It ignores unknown records, which a later version may have written.
func (w *watcher) change(r *kgo.Record) {
	kind, id, err := wire.ParseKey(r.Key)
	switch {
	case err != nil:
	case kind == wire.KindTimer && string(id) == w.req.ID:
		w.touched, w.left = true, nil
		if t, err := timer.Decode(r.Value); err == nil {
			w.left = t
		}
	case kind == wire.KindCheckpoint:
		c, err := wire.DecodeCheckpoint(r.Value)
		if err != nil {
			return
		}
		if w.decided = c.Position > w.sent.Offset; !w.decided {
			w.touched, w.left = false, nil // those records were of an earlier step
		}
	}
}

// conclude works out the outcome of the request if no event tells it.
func (w *watcher) conclude() {
	f := &w.outcome
	f.EventsRead = w.events != ""
	switch {
	case f.Type != "":
	case f.Refused != nil:
		f.Type = waterclock.EventRejected
	case w.req.Action == "":
		if w.left != nil && w.left.Offset == w.sent.Offset {
			f.Type = waterclock.EventScheduled
		}
	case !w.touched:
		f.Type = NothingDone
	case w.req.Action == Move && w.left != nil && w.left.Offset == w.sent.Offset:
		f.Type = waterclock.EventMoved
	case w.left == nil && (w.req.Action == Cancel || w.req.Action == Trigger):
		f.Type = steered[w.req.Action]
	case w.left != nil && w.left.Offset < w.sent.Offset &&
		(w.left.Steering == nil || w.left.Steering.By == w.sent.Offset):
		f.Type = steered[w.req.Action]
	}
}

// steered maps steering requests to their outcomes.
var steered = map[Action]waterclock.EventType{
	Cancel: waterclock.EventCancelled, Trigger: waterclock.EventTriggered, Pause: waterclock.EventPaused,
	Resume: waterclock.EventResumed,
}

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/recent"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/partition/questions"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

const (
	// apiBuffered and apiBufferedBytes bound the API's requests in flight to Kafka. Further requests wait.
	apiBuffered, apiBufferedBytes = 8 * apiRoom / requestMemory, 32 << 20
	// apiRoom is how many of these bytes one partition may take. requestMemory is the memory that one request takes in
	// addition to its own bytes.
	apiRoom, requestMemory = 4 << 20, 512
	// apiBatch is the largest batch that the producer makes, even if topics allow more: brokers accept no larger
	// request by default (socket.request.max.bytes), and kgo allows no larger batch.
	apiBatch = 100 << 20
	// apiDelivery is how long the producer tries to write a request.
	apiDelivery = 10 * time.Second
	// latenessOf is the time span over which an instance reports how late its firings were.
	latenessOf = 5 * time.Minute
)

// local is this instance for the API. It implements route.Local.
type local struct {
	in       *Instance
	url      string // of the API
	producer *kgo.Client
	history  *recent.History

	mu    sync.Mutex // guards rooms
	rooms map[timer.TopicPartition]*semaphore.Weighted
}

var _ route.Local = (*local)(nil)

// room returns the semaphore that bounds the bytes of a partition's requests in flight to Kafka. If a request is never
// answered, the requests behind it wait with it. They must not take the room of other partitions' requests.
func (l *local) room(at timer.TopicPartition) *semaphore.Weighted {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := l.rooms[at]
	if room == nil {
		if l.rooms == nil {
			l.rooms = make(map[timer.TopicPartition]*semaphore.Weighted)
		}
		room = semaphore.NewWeighted(apiRoom)
		l.rooms[at] = room
	}
	return room
}

// newLocal makes the client that writes requests: one idempotent producer for all callers, so that no request is
// written twice, however often it is sent.
func newLocal(in *Instance, url string) (*local, error) {
	largest := 0
	for i := range in.Topics {
		largest = max(largest, in.Topics[i].Request.MaxMessageBytes)
	}
	cl, err := kgo.NewClient(append(slices.Clone(in.Options),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(apiDelivery), kgo.MaxBufferedRecords(apiBuffered),
		kgo.MaxBufferedBytes(apiBufferedBytes),
		kgo.ProducerBatchMaxBytes(int32(min(largest, apiBatch))), kgo.UnknownTopicRetries(-1))...)
	if err != nil {
		return nil, fmt.Errorf("build the API's producer: %w", err)
	}
	return &local{in: in, url: url, producer: cl}, nil
}

// Owned implements route.Local.
func (l *local) Owned(at timer.TopicPartition) route.Partition {
	if p := l.in.Partitions.Owned(at); p != nil {
		return answering{p.Questions, p, l.in}
	}
	return nil
}

// Strays implements route.Local.
func (l *local) Strays(topic string) (strays []route.Partition) {
	for i := range l.in.Topics {
		set := &l.in.Topics[i].Request
		for n := int32(0); set.Name == topic && n < set.Partitions; n++ {
			if p := l.in.Partitions.Owned(timer.TopicPartition{Topic: topic, Partition: n}); p != nil && p.HasStrays() {
				strays = append(strays, answering{p.Questions, p, l.in})
			}
		}
	}
	return strays
}

// Produce implements route.Local. An idempotent producer keeps each record that it has sent until a broker answers,
// whatever ctx and apiDelivery say, and a broker that is down never answers. So Produce does not wait longer than ctx.
// The outcome of records without an answer by then is unknown.
func (l *local) Produce(ctx context.Context, at timer.TopicPartition, requests []route.Request) []route.Written {
	type one struct {
		i int
		w route.Written
	}
	results := make(chan one, len(requests)) // room for all, so that senders never wait
	room := l.room(at)
	for i := range requests {
		rec := recordOf(at, &requests[i])
		size := min(apiRoom, sizeOf(rec))
		if err := room.Acquire(ctx, size); err != nil {
			results <- one{i, route.Written{Offset: -1,
				Problem: fmt.Sprintf("requests for partition %d of %s wait for Kafka", at.Partition, at.Topic)}}
			continue
		}
		l.producer.Produce(ctx, rec, func(r *kgo.Record, err error) {
			room.Release(size)
			results <- one{i, writtenAt(r, err)}
		})
	}
	written := make([]route.Written, len(requests))
	for i := range written {
		written[i] = route.Written{Offset: -1, Unknown: true, Problem: "Kafka has not answered in time"}
	}
	for n := 0; n < len(requests); n++ {
		select {
		case x := <-results:
			written[x.i] = x.w
			continue
		default: // answers that have arrived count even if ctx has ended
		}
		select {
		case x := <-results:
			written[x.i] = x.w
		case <-ctx.Done():
			return written
		}
	}
	return written
}

func sizeOf(r *kgo.Record) int64 {
	n := requestMemory + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}

func recordOf(at timer.TopicPartition, r *route.Request) *kgo.Record {
	rec := &kgo.Record{Topic: at.Topic, Partition: at.Partition, Key: r.ID, Value: r.Value}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader(h))
	}
	return rec
}

// writtenAt returns the fate of a record. A record is certainly not in the log if a broker rejected it permanently, or
// if the producer had no room for it. After any other error its fate is unknown, because an answer may have been lost.
func writtenAt(r *kgo.Record, err error) route.Written {
	switch {
	case err == nil && r.Offset < 0: // sent twice, and the broker no longer knows its offset
		return route.Written{Offset: -1, Unknown: true, Problem: "written, at an unknown offset"}
	case err == nil:
		return route.Written{Offset: r.Offset}
	}
	var refused *kerr.Error
	certain := errors.Is(err, kgo.ErrMaxBuffered) || errors.As(err, &refused) && !refused.Retriable
	return route.Written{Offset: -1, Unknown: !certain, Problem: err.Error()}
}

// Status implements route.Local.
func (l *local) Status() route.Instance {
	in := l.in
	s := route.Instance{Name: in.Name, API: l.url, Version: ops.ReadBuild().Version, Started: in.Begun.UTC(),
		Member: in.Group.Joined(), Problem: in.Problem()}
	if p, some := l.history.Last(latenessOf); some && p.Count > 0 {
		s.Lateness = &route.Lateness{OverSeconds: p.To.Sub(p.From).Seconds(), Firings: p.Count,
			P50Seconds: p.P50.AtMost(), P99Seconds: p.P99.AtMost()}
	}
	delayed := make(map[string]bool)
	for i := range in.Topics {
		delayed[in.Topics[i].Request.Name] = in.Topics[i].Delay != 0
	}
	all := in.Partitions.Status()
	for at, st := range all {
		s.Partitions = append(s.Partitions, route.PartitionStatus{
			Topic: at.Topic, Partition: at.Partition, FixedDelay: delayed[at.Topic], State: st.State.String(),
			Since: st.Since.UTC(), Reason: st.Reason,
			Pending: st.Pending, Parked: st.Parked, Queued: st.Queued, LagRecords: st.Behind,
			LagSeconds: st.Lag.Seconds(), OldestDueSecs: max(st.Overdue, st.Uncommitted, st.OldestParked).Seconds(),
			OldestUnknown: st.State != ownership.Live && st.State != ownership.Gated && st.State != ownership.Stalled,
		})
	}
	s.Deferred, s.MissingCalendars = l.deferred(all), missingCalendars(all)
	for p, since := range in.Health.Unhealthy() {
		u := route.UnhealthyTarget{Topic: p.Topic, Partition: p.Label(), Since: since.UTC()}
		if p.Partition == timer.Beyond || p.Partition == timer.Unplaced && p != targets.Unexamined() {
			u.DeadLetterAfterSecs = in.Targets.MissingAfter().Seconds()
		}
		s.Unhealthy = append(s.Unhealthy, u)
	}
	return s
}

// deferred returns the targets for whose rate timers of this instance wait.
func (l *local) deferred(all map[timer.TopicPartition]ownership.Status) (list []route.DeferredTarget) {
	now := l.in.Now()
	for at, st := range all {
		for target, waiting := range st.Deferred {
			rate, share := l.in.Limiter.Rate(at.Topic, target)
			d := route.DeferredTarget{Target: target, Topic: rate.Scope, PerSecond: rate.PerSecond, Burst: rate.Burst,
				Timers: waiting.Timers}
			if waiting.Oldest > 0 {
				d.Oldest = time.UnixMilli(waiting.Oldest).UTC()
			}
			var i int
			list, i = route.AddDeferred(list, d)
			if own := rate.PerSecond * share; own > 0 {
				took := time.Duration(float64(list[i].Timers) / own * float64(time.Second))
				list[i].Through = now.Add(took).UTC().Truncate(time.Second)
			}
		}
	}
	return list
}

// missingCalendars returns the missing calendars that timers of this instance name.
func missingCalendars(all map[timer.TopicPartition]ownership.Status) (list []route.MissingCalendar) {
	for at, st := range all {
		for name, timers := range st.MissingCalendars {
			list = route.AddMissingCalendar(list,
				route.MissingCalendar{Calendar: name, Topic: at.Topic, Timers: timers})
		}
	}
	return list
}

// answering is an owned partition for the API. It implements route.Partition.
type answering struct {
	*questions.Questions
	p  *partition.Partition
	in *Instance
}

var _ route.Partition = answering{}

// Watch implements route.Partition.
func (a answering) Watch() (route.Watch, error) {
	w, err := a.Questions.Watch()
	if err != nil {
		return nil, err
	}
	return watching{w, a.p}, nil
}

type watching struct {
	*questions.Watcher
	p *partition.Partition
}

var _ route.Watch = watching{}

// Decision implements route.Watch.
func (w watching) Decision(ctx context.Context, offset int64) (query.Decision, error) {
	d, err := w.Watcher.Decision(ctx, offset)
	if errors.Is(err, context.DeadlineExceeded) {
		if status := w.p.Status(); status.State != ownership.Live {
			err = errors.Join(err,
				&route.StuckError{Detail: fmt.Sprintf("the partition is %s: %s", status.State, status.Reason)})
		}
	}
	return d, err
}

// Explain implements route.Partition. It turns an error into route.ErrMoving if another owner may answer the question.
// If no owner will, it returns the cause: the partition has failed, or the brokers do not answer.
func (a answering) Explain(err error) error {
	if err == nil || !query.Again(err) {
		return err
	}
	if notLive, ok := errors.AsType[*query.NotLiveError](err); ok && notLive.Failed {
		return &route.StuckError{Word: route.PartitionFailed, Detail: fmt.Sprintf("%v has failed at instance %s, "+
			"since %s, and does not go on by itself: %s. Mend that, then restart the instance; until then nothing "+
			"of the partition fires, and what is written waits in the log",
			a.p.Life().Requests(), a.in.Name, notLive.Since.UTC().Format(time.RFC3339),
			strings.TrimSuffix(notLive.Reason, "."))}
	}
	if silent := a.in.Group.Unresponsive(); silent != "" {
		return unreachable(silent)
	}
	return fmt.Errorf("%w: %w", route.ErrMoving, err)
}

// unreachable returns the error for brokers that do not answer.
func unreachable(why string) error {
	return &route.StuckError{Word: route.KafkaUnreachable, Detail: "Kafka cannot be reached: " + why +
		". Nothing fires meanwhile and nothing is lost; see that the brokers run, and that this instance reaches them"}
}

// horizonSlack is how much further ahead than its horizon a timer may be due for this instance. Its clock may be behind
// that of the owner, and clock estimates never reject a request.
const horizonSlack = time.Minute

// requestRules judges requests of the API by the rules of their topic, which are those of the owner unless the settings
// of the two instances differ.
type requestRules struct {
	rules *intake.Rules
	delay bool // the topic is a fixed-delay topic
	now   func() time.Time
}

var _ api.Rules = (*requestRules)(nil)

// Reject implements api.Rules. The record that it judges has no mark of a meter, and the rules do not know the pending
// timers, so limits of rate and number are left to the owner.
func (rr *requestRules) Reject(partition int32, r *route.Request) (refusal *timer.Refusal) {
	rec := recordOf(timer.TopicPartition{Topic: rr.rules.Topic, Partition: partition}, r)
	rec.Timestamp = rr.now()
	if rr.delay {
		_, refusal = rr.rules.ValidateDelayed(rec)
	} else {
		_, _, refusal = rr.rules.Validate(rec, rec.Timestamp.Add(horizonSlack).UnixMilli())
	}
	return refusal
}

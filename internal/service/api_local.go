package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/ops"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/query"
	"github.com/waterclock/waterclock/internal/recent"
	"github.com/waterclock/waterclock/internal/service/connect"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wire"
)

const (
	// apiBuffered and apiBufferedBytes are what the API's requests may hold on their way to
	// Kafka; more wait.
	apiBuffered, apiBufferedBytes = 8 * apiRoom / requestMemory, 32 << 20
	// apiRoom is what those of one partition may hold of it, in bytes, and requestMemory what
	// one takes beside its own.
	apiRoom, requestMemory = 4 << 20, 512
	// apiDelivery is how long a request is tried to be written.
	apiDelivery = 10 * time.Second
	// latenessOf is the time over which an instance tells how late its firings were.
	latenessOf = 5 * time.Minute
)

// local is this instance as the API sees it. It implements route.Local.
type local struct {
	in       *instance
	producer *kgo.Client
	history  *recent.History

	mu    sync.Mutex // guards rooms
	rooms map[timer.TopicPartition]*semaphore.Weighted
}

// room returns the room that the requests of a partition may take on their way. Requests behind one that
// is never answered stay there for as long: they must not take the room of other partitions' requests.
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

// newLocal makes the client that writes requests: one idempotent producer for all callers,
// so that no request is written twice however often it is sent.
func newLocal(in *instance, h *recent.History) (*local, error) {
	cl, err := kgo.NewClient(append(slices.Clone(in.opts),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(apiDelivery), kgo.MaxBufferedRecords(apiBuffered), kgo.MaxBufferedBytes(apiBufferedBytes),
		kgo.ProducerBatchMaxBytes(int32(in.largestRequest())), kgo.UnknownTopicRetries(-1))...)
	if err != nil {
		return nil, fmt.Errorf("build the API's producer: %w", err)
	}
	return &local{in: in, producer: cl, history: h}, nil
}

func (l *local) close() { l.producer.Close() }

// Owned implements route.Local.
func (l *local) Owned(at timer.TopicPartition) route.Partition {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	o := l.in.parts[key{at.Topic, at.Partition}]
	if o == nil || o.token.Err() != nil {
		return nil
	}
	if p, ok := o.p.(*partition.Partition); ok {
		return answering{p, l.in}
	}
	return nil
}

// Strays implements route.Local.
func (l *local) Strays(topic string) (strays []route.Partition) {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	for k, o := range l.in.parts {
		if p, ok := o.p.(*partition.Partition); ok && k.topic == topic && o.token.Err() == nil && p.HasStrays() {
			strays = append(strays, answering{p, l.in})
		}
	}
	return strays
}

// Produce implements route.Local. An idempotent producer keeps each record that it has sent
// until a broker answers, whatever ctx and apiDelivery say, and a broker that is
// gone never answers. So Produce waits no longer than ctx; records without an answer by then are unknown.
func (l *local) Produce(ctx context.Context, at timer.TopicPartition, requests []route.Request) []route.Written {
	type one struct {
		i int
		w route.Written
	}
	told := make(chan one, len(requests)) // room for all, so that senders never wait
	room := l.room(at)
	for i := range requests {
		rec := recordOf(at, &requests[i])
		size := min(apiRoom, sizeOf(rec))
		if err := room.Acquire(ctx, size); err != nil {
			told <- one{i, route.Written{Offset: -1, Problem: fmt.Sprintf("Kafka does not take what waits for partition %d of %s", at.Partition, at.Topic)}}
			continue
		}
		l.producer.Produce(ctx, rec, func(r *kgo.Record, err error) {
			room.Release(size)
			told <- one{i, writtenAt(r, err)}
		})
	}
	written := make([]route.Written, len(requests))
	for i := range written {
		written[i] = route.Written{Offset: -1, Unknown: true, Problem: "Kafka has not answered in time"}
	}
	for n := 0; n < len(requests); n++ {
		select {
		case x := <-told:
			written[x.i] = x.w
			continue
		default: // answers that are here count even if ctx has ended
		}
		select {
		case x := <-told:
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
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return rec
}

// writtenAt says what is known of a record. A record that a broker refuses for good is not in the log;
// after any other error this is unknown, because an answer may have been lost.
func writtenAt(r *kgo.Record, err error) route.Written {
	switch {
	case err == nil && r.Offset < 0: // sent twice, and the broker no longer knows its offset
		return route.Written{Offset: -1, Unknown: true, Problem: "Kafka has it, and does not tell where"}
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
	s := route.Instance{Name: in.owner(), API: in.api.URL(), Version: ops.ReadBuild().Version, Started: in.begun.UTC(), Member: in.group.Joined()}
	if p, some := l.history.Last(latenessOf); some && p.Count > 0 {
		s.Lateness = &route.Lateness{OverSeconds: p.To.Sub(p.From).Seconds(), Firings: p.Count, P50Seconds: p.P50.AtMost(), P99Seconds: p.P99.AtMost()}
	}
	s.Problem = in.membership()
	in.mu.Lock()
	parts := make(map[key]servedPartition, len(in.parts))
	for k, o := range in.parts {
		parts[k] = o.p
	}
	in.mu.Unlock()
	for k, p := range parts {
		st := p.Status()
		if st.State == ownership.Gone {
			continue
		}
		s.Partitions = append(s.Partitions, route.PartitionStatus{
			Topic: k.topic, Partition: k.partition, FixedDelay: in.topics[k.topic] == nil, State: st.State.String(), Since: st.Since.UTC(), Reason: st.Reason,
			Pending: st.Pending, Parked: st.Parked, Queued: st.Queued, LagRecords: st.Behind, LagSeconds: st.Lag.Seconds(), OldestDueSecs: max(st.Overdue, st.Uncommitted, st.OldestParked).Seconds(),
			OldestUnknown: st.State != ownership.Live && st.State != ownership.Gated && st.State != ownership.Stalled,
		})
	}
	for p, since := range in.health.Unhealthy() {
		s.Unhealthy = append(s.Unhealthy, route.UnhealthyTarget{Topic: p.Topic, Partition: p.Label(), Since: since.UTC()})
	}
	return s
}

// answering is an owned partition as the API sees it. It implements route.Partition.
type answering struct {
	p  *partition.Partition
	in *instance
}

// Get implements route.Partition.
func (a answering) Get(ctx context.Context, id []byte) (*query.Timer, error) {
	t, err := a.p.Get(ctx, id)
	return t, a.unanswered(err)
}

// List implements route.Partition.
func (a answering) List(ctx context.Context, p query.Page) (query.List, error) {
	l, err := a.p.List(ctx, p)
	return l, a.unanswered(err)
}

// Count implements route.Partition.
func (a answering) Count(ctx context.Context, f query.Filter) (query.Count, error) {
	n, err := a.p.Count(ctx, f)
	return n, a.unanswered(err)
}

// CountUntil implements route.Partition.
func (a answering) CountUntil(ctx context.Context, f query.Filter, until []int64) ([]query.Count, error) {
	n, err := a.p.CountUntil(ctx, f, until)
	return n, a.unanswered(err)
}

// Watch implements route.Partition.
func (a answering) Watch() (route.Watch, error) {
	w, err := a.p.Watch()
	if err != nil {
		return nil, a.unanswered(err)
	}
	return watching{w, a}, nil
}

type watching struct {
	w  *partition.Watcher
	of answering
}

// Decision implements route.Watch.
func (w watching) Decision(ctx context.Context, offset int64) (query.Decision, error) {
	d, err := w.w.Decision(ctx, offset)
	if errors.Is(err, context.DeadlineExceeded) {
		if is := w.of.p.Status(); is.State != ownership.Live {
			err = errors.Join(err, &route.StuckError{Detail: fmt.Sprintf("the partition is %s: %s", is.State, is.Reason)})
		}
	}
	return d, w.of.unanswered(err)
}

// Close implements route.Watch.
func (w watching) Close() { w.w.Close() }

// unanswered turns an error after which another owner may answer into route.ErrMoving. If none will, it
// returns the cause: a partition that has failed, or brokers that do not answer.
func (a answering) unanswered(err error) error {
	if err == nil || !query.Again(err) {
		return err
	}
	var notLive *query.NotLiveError
	if errors.As(err, &notLive) && notLive.Failed {
		return &route.StuckError{Word: route.PartitionFailed, Detail: fmt.Sprintf("%v has failed at instance %s, since %s, and does not go on by itself: %s. Mend that, then restart the instance; until then nothing of the partition fires, and what is written waits in the log",
			a.p.Life().Requests(), a.in.owner(), notLive.Since.UTC().Format(time.RFC3339), strings.TrimSuffix(notLive.Reason, "."))}
	}
	if silent := a.in.group.Unresponsive(); silent != "" {
		return unreachable(silent)
	}
	return fmt.Errorf("%w: %w", route.ErrMoving, err)
}

// unreachable returns the error for brokers that do not answer.
func unreachable(why string) error {
	return &route.StuckError{Word: route.KafkaUnreachable, Detail: "Kafka cannot be reached: " + why + ". Nothing fires meanwhile and nothing is lost; see that the brokers run, and that this instance reaches them"}
}

// directory reads who owns what. It implements route.Directory.
type directory struct{ in *instance }

// Owners implements route.Directory. The offsets are those of committed steps: RequireStable
// would have each of them wait for a step under way, and who has begun one may not own the
// partition yet.
func (d *directory) Owners(ctx context.Context) (map[timer.TopicPartition]route.Owner, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = d.in.cfg.Group
	names := make(map[[16]byte]string)
	for _, name := range d.in.all() {
		set := &d.in.of(name).set.Request
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.TopicID = name, set.ID
		for p := range set.Partitions {
			t.Partitions = append(t.Partitions, p)
		}
		names[set.ID] = name
		g.Topics = append(g.Topics, t)
	}
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, d.in.client)
	var refused *kerr.Error
	switch {
	case errors.As(err, &refused):
		return nil, fmt.Errorf("fetch the group's offsets: %w", err)
	case err != nil:
		return nil, unreachable(cmp.Or(d.in.group.Unresponsive(), connect.Refusal(d.in.cfg, err),
			fmt.Sprintf("no broker (%s) answers who owns the partition: %v", strings.Join(d.in.cfg.Brokers, ", "), err)))
	}
	owners := make(map[timer.TopicPartition]route.Owner)
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, fmt.Errorf("fetch the group's offsets: %w", err)
		}
		for _, t := range g.Topics {
			name := t.Topic
			if name == "" {
				name = names[t.TopicID]
			}
			for _, p := range t.Partitions {
				if p.Metadata == nil || p.Offset < 0 {
					continue
				}
				if note, err := wire.ParseCommitNote(*p.Metadata); err == nil {
					owners[timer.TopicPartition{Topic: name, Partition: p.Partition}] = route.Owner{Process: note.Process(), API: note.API}
				}
			}
		}
	}
	return owners, nil
}

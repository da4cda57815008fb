package partition

import (
	"encoding/base64"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// usualNumbers is how many bytes there is room for at first, for the numbers in one emission's header values.
const usualNumbers = 40

// emissions builds the records of one seal. Built one by one, each record would take eight allocations. Instead the
// records share lists, which live as long as the step. Each slice that a record gets is cut to its length, so that
// appending to it does not overwrite its neighbour. If a list has to grow, earlier records keep their parts of the old
// one. Values of headers never change. So a text that is part of another one, or the same as the last record's, is
// written once.
type emissions struct {
	now     time.Time
	request origin
	moved   origin // of timers that were moved here by a changelog record
	due     int64  // of the last record; the next one mostly has the same
	dueText []byte

	records []kgo.Record
	headers []kgo.RecordHeader
	text    []byte // the values of the service's own headers
}

// origin has the parts of the headers that name the record that a timer comes from.
type origin struct {
	source string // waterclock-source up to the offset
	event  string // waterclock-event up to the offset; unique forever, since a recreated topic has another UUID
}

func originOf(t *topics.Topic, partition int32) origin {
	n := strconv.Itoa(int(partition))
	return origin{t.Name + "/" + n + "/", base64.RawURLEncoding.EncodeToString(t.ID[:]) + "." + n + "."}
}

// begin prepares n emissions of p with the given number of headers in total.
func (e *emissions) begin(p *Partition, now int64, n, headers int) {
	e.now = time.UnixMilli(now)
	e.request = originOf(&p.o.Topics.Request, p.o.Partition)
	e.moved = originOf(&p.o.Topics.Changelog, p.o.Partition)
	e.records, e.headers = room(e.records, n), room(e.headers, headers)
	e.dueText = nil
	e.text = room(e.text, n*(len(e.request.source)+len(e.request.event)+usualNumbers))
}

// record builds the emission of t. Its timestamp is the owner's clock at this seal.
func (e *emissions) record(t *timer.Timer, partition int32) *kgo.Record {
	from, at := &e.request, t.Offset
	if offset, moved := timer.MovedAt(t.Offset); moved {
		from, at = &e.moved, offset
	}
	first := len(e.headers)
	for _, h := range t.Headers {
		e.headers = append(e.headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	if due := t.FiresAt(); due != e.due || e.dueText == nil {
		e.due, e.dueText = due, e.number("", due)
	}
	source := e.number(from.source, at)
	event := len(e.text)
	e.text = append(append(append(e.text, from.event...), source[len(from.source):]...), '.')
	n := t.FiresAs()
	occurrence := e.number("", n)
	if n == 0 { // a triggered firing: the request that triggered it makes it unique
		e.number(".", t.Steering.By)
	}
	e.headers = append(e.headers,
		kgo.RecordHeader{Key: waterclock.HeaderID, Value: t.ID},
		kgo.RecordHeader{Key: waterclock.HeaderDue, Value: e.dueText},
		kgo.RecordHeader{Key: waterclock.HeaderOccurrence, Value: occurrence},
		kgo.RecordHeader{Key: waterclock.HeaderSource, Value: source},
		kgo.RecordHeader{Key: waterclock.HeaderEvent, Value: e.text[event:len(e.text):len(e.text)]})
	e.records = append(e.records, kgo.Record{
		Topic: t.Target.Topic, Partition: partition, Key: t.Target.Key, Value: t.Value,
		Timestamp: e.now, Headers: e.headers[first:len(e.headers):len(e.headers)],
	})
	return &e.records[len(e.records)-1]
}

// recordHeaders converts a timer's headers to a record's.
func recordHeaders(headers []timer.Header) []kgo.RecordHeader {
	list := make([]kgo.RecordHeader, len(headers))
	for i := range headers {
		list[i] = kgo.RecordHeader(headers[i])
	}
	return list
}

// number adds a prefix and a number to the text, and returns them.
func (e *emissions) number(prefix string, n int64) []byte {
	first := len(e.text)
	e.text = strconv.AppendInt(append(e.text, prefix...), n, 10)
	return e.text[first:len(e.text):len(e.text)]
}

// RefusalOf describes a target's error as a refusal.
func RefusalOf(err error, r *kgo.Record) *timer.Refusal {
	switch {
	case targets.TooLarge(err):
		return intake.Refuse(waterclock.ReasonTargetTooLarge,
			"topic %s refuses a record of this size: raise its max.message.bytes or send less", r.Topic)
	case targets.NotAuthorized(err):
		return intake.Refuse(waterclock.ReasonTargetNotAuthorized, "%s", topics.MayNotWrite(r.Topic))
	case targets.UnknownTopic(err):
		return intake.Refuse(waterclock.ReasonTargetUnknown,
			"topic %s did not exist when the timer fired: create it", r.Topic)
	}
	return intake.Refuse(waterclock.ReasonTargetRefused, "topic %s refuses the record: %v; change the topic's "+
		"settings or what is sent, and schedule the timer again", r.Topic, err)
}

// NoKey describes why a compacted target refuses something without a key.
func NoKey(topic, what string) *timer.Refusal {
	return intake.Refuse(waterclock.ReasonTargetRefused,
		"topic %s is compacted and takes no record without a key: give the %s a key", topic, what)
}

func noPartition(topic string, partition, n int32) *timer.Refusal {
	return intake.Refuse(waterclock.ReasonTargetPartitionUnknown, "topic %s had %d partitions when the timer fired, "+
		"and no partition %d: give it more, or name one that it has", topic, n, partition)
}

// ownHeaders is how many headers the service adds to an emission.
const ownHeaders = 5

// room returns an empty list with room for n elements: the old one if it is large enough.
func room[T any](old []T, n int) []T {
	if cap(old) < n {
		return make([]T, 0, n)
	}
	return old[:0]
}

// alwaysKept is how many elements a list may always have room for while it waits for the next step.
const alwaysKept = 160

// reuse empties a list for the next step. It drops a large list of which less than half was used, so that lists in the
// pool are about as large as the last steps.
func reuse[T any](s []T) []T {
	if cap(s) > max(alwaysKept, 2*len(s)) {
		return nil
	}
	clear(s)
	return s[:0]
}

// route chooses the partition of an emission, as a Java client would. It asks no broker.
//
// to is that partition. If none can be chosen yet, its number stands for the missing information, and Health does not
// allow it: metadata of the topic, a turn to ask for it, or partitions that the topic does not have yet.
//
// refused is the reason if the target refuses the timer; nil if it does not.
func (p *Partition) route(t *timer.Target, permit *targets.Permit) (to timer.TopicPartition, refused *timer.Refusal) {
	to = timer.TopicPartition{Topic: t.Topic, Partition: timer.Unplaced}
	target, known := p.o.Targets.Cached(t.Topic)
	if !known {
		return p.o.Targets.Examine(t.Topic), nil
	}
	if target.Err != nil {
		return to, RefusalOf(target.Err, &kgo.Record{Topic: t.Topic, Partition: t.Partition})
	}
	n := int32(len(target.Leader))
	switch {
	case target.Compacted && t.Key == nil:
		return to, NoKey(t.Topic, "timer")
	case t.Partition >= n:
		if p.o.Targets.Lacks(timer.TopicPartition{Topic: t.Topic, Partition: t.Partition}) {
			return to, noPartition(t.Topic, t.Partition, n)
		}
		to.Partition = timer.Beyond
	case t.Partition != timer.AnyPartition:
		to.Partition = t.Partition
	case t.Key != nil:
		to.Partition = intake.Murmur2Partition(t.Key, n)
	case permit != nil && permit.To.Topic == t.Topic && p.o.Health.Allow(permit.To, permit):
		return permit.To, nil
	default:
		to.Partition = p.anyPartition(t.Topic, target.Leader)
	}
	return to, nil
}

// anyPartition chooses a healthy partition that has a leader, for a null key, and another one each millisecond.
func (p *Partition) anyPartition(topic string, leader []bool) int32 {
	n := int32(len(leader))
	for i := range n {
		k := (int32(p.clock.millis()&0xffff) + i) % n
		if leader[k] && p.o.Health.Allow(timer.TopicPartition{Topic: topic, Partition: k}, nil) {
			return k
		}
	}
	return timer.AnyPartition
}

// hold is the planner's Hold. While everything is healthy it does not route: an unknown target is noticed when the
// firing is sealed.
func (p *Partition) hold(t *timer.Timer, permit any) (timer.TopicPartition, bool) {
	if p.o.Health.AllHealthy() {
		return timer.TopicPartition{}, false
	}
	to, refused := p.route(&t.Target, permitOf(permit))
	return to, refused == nil && !p.o.Health.Allow(to, permitOf(permit))
}

// permitOf returns the permit that the planner carried, nil if there is none.
func permitOf(tag any) *targets.Permit {
	permit, _ := tag.(*targets.Permit)
	return permit
}

const (
	// eventBytes is about the size of an event. eventBuffer limits the bytes of events that are allocated together.
	eventBytes  = 512
	eventBuffer = 64 << 10
)

func sizeOfEvents(n int) timer.Size { return timer.Size{Entries: n, Bytes: int64(n) * eventBytes} }

// event returns the event of an entry that is sealed at the given time; false if nothing happened to a timer: see
// wire.EventOf.
//
// Events are records of the step that they report. They are committed with it or not at all, and are made anew each
// time it is sealed, so time and lateness are those of the attempt that was committed. They are made from the entries,
// one by one: the changelog has only the net change of an ID, and nothing of a timer that was scheduled and cancelled
// in one step.
//
// All events of a request partition go to the events partition of the same number, in the order of the sequence. So a
// reader gets the events of an ID in the order in which they happened. An events partition that takes no writes holds
// up its request partition, as the changelog does. Dead letters could go to another partition. Events there would lose
// their order, and without them the history would have gaps. Other request partitions are not held up, because the
// quarantine tries the share apart from theirs.
func (p *Partition) event(e *planner.Entry, at int64, emission *kgo.Record) (ev wire.Event, happened bool) {
	result := e.Result()
	ev, happened = wire.EventOf(&e.Entry, result, at, p.source)
	switch result {
	case timer.Fired:
		ev.Partition, ev.Emission = emission.Partition, emission.Headers[len(emission.Headers)-1].Value
	case timer.Undeliverable:
		ev.Reason, ev.Detail = e.Refusal.Reason, e.Refusal.Detail
	case timer.Refused:
		rec := e.Tag.(*kgo.Record)
		ev.ID, ev.Source, ev.Unknown = rec.Key, p.source(rec.Offset), true
		ev.Reason, ev.Detail = e.Refusal.Reason, e.Refusal.Detail
	}
	return ev, happened
}

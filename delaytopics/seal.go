package delaytopics

import (
	"encoding/base64"
	"errors"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/clocks"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer"
)

// ownHeaders is the number of headers that the service adds to a record; ownText bounds the digits of their values.
const ownHeaders, ownText = 4, 128

// sealed is the front of the queue as a share of a step.
type sealed struct {
	r       *relay
	n       int   // items
	emitted []int // indexes of items, parallel to share.Emissions
	dead    []dead
	at      int64       // when it was sealed, Unix ms
	mark    clocks.Mark // the same
	next    int64       // the position after the items
	share   *emitter.Share
	made    emissions // from the first one on
	firings []tracing.Firing
}

// dead is an item that becomes a dead letter.
type dead struct {
	rec         *kgo.Record // the queue may grow while the step ends
	refusal     *timer.Refusal
	undelivered bool
}

// Wait implements emitter.Source: Run wakes the lanes when a record is due.
func (r *relay) Wait() time.Duration { return ownership.Forever }

// Seal implements emitter.Source, behind an ownership.Source. It takes the items that are due, up to the first that may
// not go now. It asks no broker, and waits for none.
func (r *relay) Seal(step string, room *emitter.Room) *emitter.Share {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.Now()
	s := &sealed{r: r, mark: clocks.At(now)}
	s.at = s.mark.Wall
	n, passes := r.ready(s.at, room), r.passesMarkers(now)
	asked := r.o.ClockSkew.Asks()
	if n == 0 && !passes && !asked {
		return nil
	}
	s.share, s.next = &emitter.Share{Done: s.done}, r.position
	for s.n < n && s.take(s.n, n) {
		it := &r.queue.items[s.n]
		*room = room.Minus(timer.Size{Entries: 1, Bytes: it.bytes})
		s.next = it.next
		s.n++
	}
	switch {
	case passes:
		s.next = r.queue.end
	case s.n == 0 && !asked:
		return nil
	}
	r.stepped = now
	s.share.Offset = r.life.Records.Offset(s.next, wire.CommitNote{Step: step})
	s.share.Records = append(s.share.Records, r.life.Records.Checkpoint(s.next, step, s.at))
	s.share.Records = append(s.share.Records, s.letters()...)
	return s.share
}

// ready returns how many items at the front are due and fit. A suspect goes alone.
func (r *relay) ready(now int64, room *emitter.Room) (n int) {
	bytes := room.Bytes
	for n < len(r.queue.items) && n < room.Entries {
		it := &r.queue.items[n]
		if it.due > now || n > 0 && (bytes < it.bytes || it.suspect) {
			break
		}
		bytes -= it.bytes
		if n++; it.suspect {
			break
		}
	}
	return n
}

// take adds the ready item i, unless its target is unhealthy. It allocates for all ready items with the first that
// may
// go: lanes ask at each step, even while no item may go.
func (s *sealed) take(i, ready int) bool {
	r, it := s.r, &s.r.queue.items[i]
	if it.refusal != nil {
		s.dead = append(s.dead, dead{it.rec, it.refusal, it.undelivered})
		return true
	}
	to, refusal := r.route(it)
	if refusal != nil {
		s.dead = append(s.dead, dead{it.rec, refusal, true})
		return true
	}
	permit, ok := r.mayGo(to, it.next)
	if !ok {
		return false
	}
	if s.share.Emissions == nil {
		s.made, s.share.Emissions = r.newEmissions(s.at, r.queue.items[i:ready]), make([]emitter.Emission, 0, ready-i)
	}
	rec := s.made.record(it, to.Partition)
	if r.o.Traces != nil {
		s.firings = r.o.Traces.Fire(s.firings, rec, r.o.Targets)
	}
	s.emitted = append(s.emitted, i)
	s.share.Emissions = append(s.share.Emissions, emitter.Emission{
		Record: rec, Due: it.due, Seq: it.rec.Offset, Permit: permit, Alone: it.suspect,
	})
	return true
}

// letters makes the dead letters.
func (s *sealed) letters() (all []*kgo.Record) {
	if len(s.dead) == 0 {
		return nil
	}
	r, at := s.r, s.r.life.Records.DeadLetterPartition()
	now, to := r.o.Clocks.Brokers(s.mark), r.life.Records.DeadLetterTopic()
	for _, d := range s.dead {
		l := wire.DeadRequest(to, d.rec, d.refusal)
		l.Partition, l.Timestamp = at, now
		all = append(all, l)
	}
	return all
}

// done takes the outcome of the step.
func (s *sealed) done(o emitter.Outcome) {
	r := s.r
	switch o {
	case emitter.Committed:
		r.o.ClockSkew.Offer(r.life.Changelog(), s.share.Records[0].Offset, s.mark, clocks.At(r.o.Now()))
		tracing.Commit(s.firings, r.o.Now().Sub(time.UnixMilli(s.at)))
		s.count()
		r.mu.Lock()
		r.queue.drop(s.n)
		r.position = s.next
		r.end = max(r.end, s.next)
		r.unblock()
		r.mu.Unlock()
	case emitter.Aborted:
		s.verdicts()
	}
	r.life.Wake.Send()
}

// verdicts records the answers of targets to the emissions of an aborted step.
func (s *sealed) verdicts() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.blocked != nil {
		s.r.blocked.used = 0
	}
	for i := range s.share.Emissions {
		em, it := &s.share.Emissions[i], &s.r.queue.items[s.emitted[i]]
		if em.Err != nil && !errors.Is(em.Err, emitter.ErrUnhealthy) {
			it.refusal, it.undelivered = partition.RefusalOf(em.Err, em.Record), true
		}
		it.suspect = em.Suspect || it.suspect && !em.Cleared
	}
}

// count counts the outcomes of a committed step.
func (s *sealed) count() {
	r := s.r
	due := make([]int64, len(s.share.Emissions))
	for i := range s.share.Emissions {
		due[i] = s.share.Emissions[i].Due
	}
	r.o.Metrics.Passed(r.o.Topics.Request.Name, s.at, max(s.at, r.o.Now().UnixMilli()), due)
	for _, d := range s.dead {
		r.o.Metrics.Refused(r.life.Log, r.o.Topics.Request.Name, d.refusal.Reason, d.undelivered,
			"detail", d.refusal.Detail, "offset", d.rec.Offset)
	}
}

// emissions builds the records of one seal. The headers that the service adds share memory.
type emissions struct {
	now           time.Time
	source, event string // up to the offset
	headers       []kgo.RecordHeader
	text          []byte
}

func (r *relay) newEmissions(now int64, items []item) emissions {
	t, n := &r.o.Topics.Request, strconv.Itoa(int(r.o.Partition))
	m := emissions{
		now: time.UnixMilli(now), source: t.Name + "/" + n + "/",
		event: base64.RawURLEncoding.EncodeToString(t.ID[:]) + "." + n + ".",
	}
	headers := 0
	for i := range items {
		headers += len(items[i].says.Headers) + ownHeaders
	}
	m.headers = make([]kgo.RecordHeader, 0, headers)
	m.text = make([]byte, 0, len(items)*(len(m.source)+len(m.event)+ownText))
	return m
}

// record returns the emission: key, value and headers as they came, plus the service's headers. Its timestamp is the
// owner's clock at this seal.
func (e *emissions) record(it *item, partition int32) *kgo.Record {
	first := len(e.headers)
	e.headers = append(e.headers, it.says.Headers...)
	e.own(waterclock.HeaderDue, "", it.due)
	e.own(waterclock.HeaderAttempt, "", it.says.Attempt)
	e.own(waterclock.HeaderSource, e.source, it.rec.Offset)
	e.own(waterclock.HeaderEvent, e.event, it.rec.Offset)
	return &kgo.Record{
		Topic: it.says.Target, Partition: partition, Key: it.rec.Key, Value: it.rec.Value,
		Timestamp: e.now, Headers: e.headers[first:len(e.headers):len(e.headers)],
	}
}

// own adds a header: a prefix, then a number.
func (e *emissions) own(key, prefix string, number int64) {
	first := len(e.text)
	e.text = strconv.AppendInt(append(e.text, prefix...), number, 10)
	e.headers = append(e.headers, kgo.RecordHeader{Key: key, Value: e.text[first:len(e.text):len(e.text)]})
}

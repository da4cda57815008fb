package delaytopics

import (
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/clocks"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/transaction"
	"github.com/waterclock/waterclock/internal/wire"
)

// ownHeaders is how many headers the service adds to a record, and ownText bounds the
// digits of their values.
const ownHeaders, ownText = 4, 128

// forever is longer than any lane sleeps.
const forever = math.MaxInt64 * time.Nanosecond

// sealed is what the front of the queue was made into.
type sealed struct {
	p       *Partition
	n       int   // items
	emitted []int // indexes of items, parallel to share.Emissions
	dead    []dead
	at      int64       // when it was sealed, Unix ms
	mark    clocks.Mark // the same
	next    int64       // the position behind it
	share   *transaction.Share
	made    emissions // from the first one on
}

// dead is an item that becomes a dead letter, and why by what is known now.
type dead struct {
	rec         *kgo.Record // the queue may grow while the step ends
	refusal     *intake.Refusal
	undelivered bool
}

// Seal implements transaction.Source. It asks no broker, and waits for none.
func (p *Partition) Seal(step string, room *transaction.Room) *transaction.Share {
	return p.life.Steps.Seal(step, room, p.seal)
}

// Wait implements transaction.Source: Run wakes the lane when something is due.
func (p *Partition) Wait() time.Duration { return forever }

// seal takes what is due, up to what may not go now.
func (p *Partition) seal(step string, room *transaction.Room) *transaction.Share {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.o.Now()
	s := &sealed{p: p, mark: clocks.At(now)}
	s.at = s.mark.Wall
	n, passes := p.ready(s.at, room), p.passes(now)
	if n == 0 && !passes {
		return nil
	}
	s.share = &transaction.Share{Token: p.o.Token, Done: s.done}
	for s.n < n && s.take(s.n, n) {
		it := &p.queue.items[s.n]
		room.Entries--
		room.Bytes -= it.bytes
		s.next = it.next
		s.n++
	}
	switch {
	case passes:
		s.next = p.queue.end
	case s.n == 0:
		return nil
	}
	p.stepped = now
	s.share.Offset = p.life.Records.Offset(s.next, wire.CommitNote{Step: step})
	s.share.Records = append(s.share.Records, p.life.Records.Checkpoint(s.next, step, s.at))
	s.share.Records = append(s.share.Records, s.letters()...)
	s.share.Fence = func() error { return p.life.Steps.Fence(s.share.Records[:1]) }
	return s.share
}

// ready is how many items at the front are due and have room. A suspect goes alone.
func (p *Partition) ready(now int64, room *transaction.Room) (n int) {
	bytes := room.Bytes
	for n < len(p.queue.items) && n < room.Entries {
		it := &p.queue.items[n]
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

// take adds an item, of so many that are ready, unless its target is unhealthy. There is
// room made for all with the first that may go: the lane asks with each of its steps, also
// while none may.
func (s *sealed) take(i, ready int) bool {
	p, it := s.p, &s.p.queue.items[i]
	if it.refusal != nil {
		s.dead = append(s.dead, dead{it.rec, it.refusal, it.undelivered})
		return true
	}
	to, refusal := p.route(it)
	if refusal != nil {
		s.dead = append(s.dead, dead{it.rec, refusal, true})
		return true
	}
	permit, ok := p.pass(to, it.next)
	if !ok {
		return false
	}
	if s.share.Emissions == nil {
		s.made, s.share.Emissions = p.newEmissions(s.at, p.queue.items[i:ready]), make([]transaction.Emission, 0, ready-i)
	}
	s.emitted = append(s.emitted, i)
	s.share.Emissions = append(s.share.Emissions, transaction.Emission{
		Record: s.made.record(it, to.Partition), Due: it.due, Seq: it.rec.Offset, Permit: permit, Alone: it.suspect,
	})
	return true
}

// letters makes the dead letters, for the partition that takes them.
func (s *sealed) letters() (all []*kgo.Record) {
	if len(s.dead) == 0 {
		return nil
	}
	p, at := s.p, s.p.life.Records.DeadLetterPartition()
	now, to := p.o.Metrics.Clocks().Brokers(s.mark), p.life.Records.DeadLetterTopic()
	for _, d := range s.dead {
		l := wire.DeadRequest(to, d.rec, string(d.refusal.Reason), d.refusal.Detail)
		l.Partition, l.Timestamp = at, now
		all = append(all, l)
	}
	return all
}

// done takes the outcome of the step.
func (s *sealed) done(o transaction.Outcome) {
	p := s.p
	switch o {
	case transaction.Committed:
		p.o.Stamps.Offer(p.life.Changelog(), s.share.Records[0].Offset, s.mark, clocks.At(p.o.Now()))
		s.count()
		p.mu.Lock()
		p.queue.drop(s.n)
		p.position = s.next
		p.end = max(p.end, s.next)
		p.unblock()
		p.mu.Unlock()
	case transaction.Aborted:
		s.verdicts()
	}
	p.life.Steps.Ended(s.share, s.share.Records[:1], o)
	p.life.Kick()
}

// verdicts notes what the targets said of the emissions of an aborted step.
func (s *sealed) verdicts() {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.p.blocked != nil {
		s.p.blocked.used = 0
	}
	for i := range s.share.Emissions {
		em, it := &s.share.Emissions[i], &s.p.queue.items[s.emitted[i]]
		if em.Err != nil && !errors.Is(em.Err, transaction.ErrUnhealthy) {
			reason, detail := partition.TargetRefusal(em.Err, em.Record)
			it.refusal, it.undelivered = &intake.Refusal{Reason: waterclock.Reason(reason), Detail: detail}, true
		}
		it.suspect = em.Suspect || it.suspect && !em.Cleared
	}
}

// count counts what a committed step did.
func (s *sealed) count() {
	p := s.p
	due := make([]int64, len(s.share.Emissions))
	for i := range s.share.Emissions {
		due[i] = s.share.Emissions[i].Due
	}
	p.o.Metrics.Passed(p.o.Topics.Request.Name, s.at, max(s.at, p.o.Now().UnixMilli()), due)
	for _, d := range s.dead {
		p.o.Metrics.Refused(p.life.Log, p.o.Topics.Request.Name, string(d.refusal.Reason), d.undelivered,
			"detail", d.refusal.Detail, "offset", d.rec.Offset)
	}
}

// emissions builds the records of one seal, with shared memory for what the service adds.
type emissions struct {
	now           time.Time
	source, event string // up to the offset
	headers       []kgo.RecordHeader
	text          []byte
}

func (p *Partition) newEmissions(now int64, items []item) emissions {
	t, n := &p.o.Topics.Request, strconv.Itoa(int(p.o.Partition))
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

// record is what appears on the target: key, value and headers as they came, and those
// of the service. Its timestamp is the owner's clock at this seal.
func (m *emissions) record(it *item, partition int32) *kgo.Record {
	first := len(m.headers)
	m.headers = append(m.headers, it.says.Headers...)
	m.own(waterclock.HeaderDue, "", it.due)
	m.own(waterclock.HeaderAttempt, "", it.says.Attempt)
	m.own(waterclock.HeaderSource, m.source, it.rec.Offset)
	m.own(waterclock.HeaderEvent, m.event, it.rec.Offset)
	return &kgo.Record{
		Topic: it.says.Target, Partition: partition, Key: it.rec.Key, Value: it.rec.Value,
		Timestamp: m.now, Headers: m.headers[first:len(m.headers):len(m.headers)],
	}
}

// own adds a header: a prefix, then a number.
func (m *emissions) own(key, prefix string, number int64) {
	first := len(m.text)
	m.text = strconv.AppendInt(append(m.text, prefix...), number, 10)
	m.headers = append(m.headers, kgo.RecordHeader{Key: key, Value: m.text[first:len(m.text):len(m.text)]})
}

package partition

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// emissionSlab is how many records of emissions are allocated at a time at
	// most, with their headers and the text of those.
	emissionSlab = 128
	// emissionNumbers bounds the digits and separators of one emission's header
	// values: due, occurrence and offset twice, of at most 20 bytes each.
	emissionNumbers = 128
	// ownHeaders is how many headers an emission gets.
	ownHeaders = 5
)

// emissions builds the records of one seal. One at a time each would take eight
// allocations, which were a tenth of what sealing costs; here they share slabs
// and live as long as the step. A slab is for as many as there are already: most
// seals have few. What a record is given is cut to its length, so that nobody
// appends into its neighbour.
type emissions struct {
	n       int // records so far
	now     time.Time
	request origin
	moved   origin // of timers that came by a record of the changelog
	records []kgo.Record
	headers []kgo.RecordHeader
	text    []byte
}

// origin is what the headers say of where a timer comes from.
type origin struct {
	source string // waterclock-source up to the offset
	event  string // waterclock-event up to the offset: unique for ever, a re-created topic has another UUID
}

func originOf(t *delaytopics.Topic, partition int32) origin {
	n := strconv.Itoa(int(partition))
	return origin{t.Name + "/" + n + "/", base64.RawURLEncoding.EncodeToString(t.ID[:]) + "." + n + "."}
}

func (p *Partition) newEmissions(now int64) emissions {
	return emissions{
		now:     time.UnixMilli(now),
		request: originOf(&p.o.Topics.Request, p.o.Partition),
		moved:   originOf(&p.o.Topics.Changelog, p.o.Partition),
	}
}

// record builds the record that fires t. Its timestamp is the owner's clock at
// this seal.
func (m *emissions) record(t *timer.Timer, partition int32) *kgo.Record {
	slab := min(max(1, m.n), emissionSlab)
	m.n++
	if len(m.records) == cap(m.records) {
		m.records = make([]kgo.Record, 0, slab)
	}
	if n := len(t.Headers) + ownHeaders; cap(m.headers)-len(m.headers) < n {
		m.headers = make([]kgo.RecordHeader, 0, max(n, slab*ownHeaders))
	}
	from, at := &m.request, t.Offset
	if offset, moved := timer.MovedAt(t.Offset); moved {
		from, at = &m.moved, offset
	}
	if n := len(from.source) + len(from.event) + emissionNumbers; cap(m.text)-len(m.text) < n {
		m.text = make([]byte, 0, slab*n)
	}
	first := len(m.headers)
	for _, h := range t.Headers {
		m.headers = append(m.headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	m.headers = append(m.headers, kgo.RecordHeader{Key: waterclock.HeaderID, Value: t.ID})
	m.own(waterclock.HeaderDue, "", t.Due)
	m.own(waterclock.HeaderOccurrence, "", t.Occurrence)
	m.own(waterclock.HeaderSource, from.source, at)
	m.own(waterclock.HeaderEvent, from.event, at, t.Occurrence)
	m.records = append(m.records, kgo.Record{
		Topic: t.Target.Topic, Partition: partition, Key: t.Target.Key, Value: t.Value,
		Timestamp: m.now, Headers: m.headers[first:len(m.headers):len(m.headers)],
	})
	return &m.records[len(m.records)-1]
}

// own adds a header: a prefix, then numbers with dots between them.
func (m *emissions) own(key, prefix string, numbers ...int64) {
	first := len(m.text)
	m.text = append(m.text, prefix...)
	for i, n := range numbers {
		if i > 0 {
			m.text = append(m.text, '.')
		}
		m.text = strconv.AppendInt(m.text, n, 10)
	}
	m.headers = append(m.headers, kgo.RecordHeader{Key: key, Value: m.text[first:len(m.text):len(m.text)]})
}

// refusalOf words a target's verdict.
func refusalOf(err error, r *kgo.Record) *refusal {
	switch {
	case emitter.TooLarge(err):
		return &refusal{string(waterclock.ReasonTargetTooLarge), fmt.Sprintf("topic %s refuses a record of this size: raise its max.message.bytes or send less", r.Topic)}
	case emitter.NotAuthorized(err):
		return &refusal{string(waterclock.ReasonTargetNotAuthorized), delaytopics.MayNotWrite(r.Topic)}
	case emitter.UnknownTopic(err):
		return &refusal{string(waterclock.ReasonTargetUnknown), fmt.Sprintf("topic %s did not exist when the timer fired: create it", r.Topic)}
	}
	return &refusal{string(waterclock.ReasonTargetRefused), fmt.Sprintf("topic %s refuses the record: %v", r.Topic, err)}
}

func noPartition(topic string, partition, n int32) *refusal {
	return &refusal{string(waterclock.ReasonTargetPartitionUnknown),
		fmt.Sprintf("topic %s had %d partitions when the timer fired, and no partition %d", topic, n, partition)}
}

func noKey(topic string) *refusal {
	return &refusal{string(waterclock.ReasonTargetRefused),
		fmt.Sprintf("topic %s is compacted and takes no record without a key: give the timer a key", topic)}
}

package audit

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
)

// codec writes the fields of a fact to a value of the spill, or reads them. One function per type does both, so the
// order is the same. The format lives only as long as one audit.
type codec struct {
	b       []byte
	reading bool
	bad     bool   // a field was missing
	names   *names // of a reader
}

// names keeps one copy of each text that is in many facts about an ID: names of topics, and digests. Other texts are
// unique, so only the first maxNames are kept.
type names map[string]string

const maxNames = 256

func (n *names) of(b []byte) string {
	if s, ok := (*n)[string(b)]; ok {
		return s
	}
	s := string(b)
	if *n == nil {
		*n = make(names)
	}
	if len(*n) < maxNames {
		(*n)[s] = s
	}
	return s
}

var errSpill = errors.New("the audit's directory is damaged, or of another version: remove it")

func encode[T any](fields func(*codec, *T), fact T) []byte {
	var c codec
	fields(&c, &fact)
	return c.b
}

func decode[T any](fields func(*codec, *T), b []byte, known *names) (fact T, err error) {
	c := codec{b: b, reading: true, names: known}
	fields(&c, &fact)
	if c.bad || len(c.b) > 0 {
		err = errSpill
	}
	return fact, err
}

func numbers[T ~int32 | ~int64](c *codec, fields ...*T) {
	for _, v := range fields {
		n, size := int64(*v), 0
		if !c.reading {
			c.b = binary.AppendVarint(c.b, n)
			continue
		}
		if n, size = binary.Varint(c.b); size <= 0 {
			c.bad = true
			return
		}
		*v, c.b = T(n), c.b[size:]
	}
}

func texts[T ~string](c *codec, fields ...*T) {
	for _, v := range fields {
		if !c.reading {
			c.b = append(binary.AppendUvarint(c.b, uint64(len(*v))), *v...)
			continue
		}
		n, size := binary.Uvarint(c.b)
		if size <= 0 || n > uint64(len(c.b)-size) {
			c.bad = true
			return
		}
		*v, c.b = T(c.names.of(c.b[size:size+int(n)])), c.b[size+int(n):]
	}
}

func (c *codec) flags(fields ...*bool) {
	for _, v := range fields {
		n := map[bool]int32{true: 1}[*v]
		numbers(c, &n)
		*v = n != 0
	}
}

func (c *codec) time(v *time.Time) {
	ms := v.UnixMilli()
	numbers(c, &ms)
	*v = time.UnixMilli(ms).UTC()
}

func (c *codec) place(p *history.Place) {
	texts(c, &p.Topic)
	numbers(c, &p.Partition)
	numbers(c, &p.Offset)
}

// payload writes the target of an emission, and digests of its contents.
func (c *codec) payload(p *history.Payload) {
	if !c.reading {
		nulls := map[bool]string{true: "null"}
		p.Key, p.Value, p.Headers = digest(p.Key, nulls[p.NullKey]), digest(p.Value, nulls[p.NullValue]),
			digest(p.Headers)
		p.Labels = labelsDigest(p.Labels)
	}
	texts(c, &p.Topic)
	numbers(c, &p.Partition)
	texts(c, &p.Key, &p.Value, &p.Headers, &p.Labels)
}

// labelsDigest is empty if there are no labels, as most timers have none.
func labelsDigest(labels string) string {
	if labels == "" {
		return ""
	}
	return digest(labels)
}

// digest stands for a text: both sides of a comparison are digests.
func digest(parts ...string) string {
	var b []byte
	for _, p := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	return string(binary.BigEndian.AppendUint64(nil, xxhash.Sum64(b)))
}

func (c *codec) request(q *history.Request) {
	numbers(c, &q.Timestamp)
	texts(c, &q.Action)
	texts(c, &q.If)
	c.flags(&q.OtherSettings)
	if q.Action == history.Moves {
		numbers(c, &q.Due)
	}
	if q.Action != history.Schedules {
		return
	}
	numbers(c, &q.Due, &q.MaxLate, &q.Remember, &q.Jitter)
	c.payload(&q.Emits)
	recurs := q.Recurs != nil
	if c.flags(&recurs); !recurs {
		return
	}
	if c.reading {
		q.Recurs = new(history.Recurrence)
	}
	numbers(c, &q.Recurs.Every, &q.Recurs.Until, &q.Recurs.Count, &q.Recurs.Jitter)
	texts(c, &q.Recurs.CatchUp)
}

func (c *codec) emission(e *history.Emission) {
	if !c.reading {
		e.Event = digest(e.Event)
	}
	numbers(c, &e.Timestamp, &e.Due, &e.Occurrence)
	c.flags(&e.Stamped)
	c.place(&e.Source)
	texts(c, &e.Event)
	c.payload(&e.Carries)
}

func (c *codec) letter(l *history.Letter) {
	numbers(c, &l.Timestamp)
	c.place(&l.Source)
	texts(c, &l.Reason)
	c.flags(&l.Emission)
	numbers(c, &l.Occurrence)
}

func (c *codec) event(e *history.Event) {
	if !c.reading {
		e.Emission, e.Labelled = digest(e.Emission), labelsDigest(e.Labelled)
	}
	numbers(c, &e.Timestamp)
	texts(c, &e.Type)
	texts(c, &e.Labelled)
	c.time(&e.At)
	for _, p := range []*history.Place{&e.Source, &e.Previous, &e.Cancel, &e.Request} {
		c.place(p)
	}
	c.time(&e.Due)
	numbers(c, &e.Event.Occurrence)
	texts(c, &e.Target, &e.Emission)
	texts(c, &e.Reason)
	numbers(c, &e.Event.Partition)
	c.flags(&e.Unknown)
	pending := e.Pending != nil
	if c.flags(&pending); !pending {
		return
	}
	if c.reading {
		e.Pending = new(waterclock.Pending)
	}
	c.time(&e.Pending.Due)
	numbers(c, &e.Pending.Occurrence)
	c.flags(&e.Pending.Paused)
}

func (c *codec) timer(t *history.Timer) {
	c.place(&t.Source)
	numbers(c, &t.Due, &t.Occurrence)
	c.flags(&t.Paused, &t.Triggered, &t.Remembered)
	c.payload(&t.Emits)
}

func (c *codec) step(s *history.ChangelogRecord) {
	texts(c, &s.Topic)
	texts(c, &s.Kind)
	texts(c, &s.Step, &s.Group, &s.Owner, &s.Incarnation)
	numbers(c, &s.Position)
}

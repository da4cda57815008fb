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

func number[T ~int32 | ~int64](c *codec, v *T) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, int64(*v))
		return
	}
	n, size := binary.Varint(c.b)
	if size <= 0 {
		c.bad = true
		return
	}
	*v, c.b = T(n), c.b[size:]
}

func text[T ~string](c *codec, v *T) {
	if !c.reading {
		c.b = append(binary.AppendUvarint(c.b, uint64(len(*v))), *v...)
		return
	}
	n, size := binary.Uvarint(c.b)
	if size <= 0 || n > uint64(len(c.b)-size) {
		c.bad = true
		return
	}
	*v, c.b = T(c.names.of(c.b[size:size+int(n)])), c.b[size+int(n):]
}

func (c *codec) flag(v *bool) {
	n := map[bool]int32{true: 1}[*v]
	number(c, &n)
	*v = n != 0
}

func (c *codec) time(v *time.Time) {
	ms := v.UnixMilli()
	number(c, &ms)
	*v = time.UnixMilli(ms).UTC()
}

func (c *codec) place(p *history.Place) {
	text(c, &p.Topic)
	number(c, &p.Partition)
	number(c, &p.Offset)
}

// payload writes the target of an emission, and digests of its contents.
func (c *codec) payload(p *history.Payload) {
	if !c.reading {
		nulls := map[bool]string{true: "null"}
		p.Key, p.Value, p.Headers = digest(p.Key, nulls[p.NullKey]), digest(p.Value, nulls[p.NullValue]),
			digest(p.Headers)
		p.Labels = labelsDigest(p.Labels)
	}
	text(c, &p.Topic)
	number(c, &p.Partition)
	text(c, &p.Key)
	text(c, &p.Value)
	text(c, &p.Headers)
	text(c, &p.Labels)
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
	number(c, &q.Timestamp)
	text(c, &q.Action)
	text(c, &q.If)
	c.flag(&q.OtherSettings)
	if q.Action == history.Moves {
		number(c, &q.Due)
	}
	if q.Action != history.Schedules {
		return
	}
	number(c, &q.Due)
	number(c, &q.MaxLate)
	number(c, &q.Remember)
	number(c, &q.Jitter)
	c.payload(&q.Emits)
	recurs := q.Recurs != nil
	if c.flag(&recurs); !recurs {
		return
	}
	if c.reading {
		q.Recurs = new(history.Recurrence)
	}
	number(c, &q.Recurs.Every)
	number(c, &q.Recurs.Until)
	number(c, &q.Recurs.Count)
	number(c, &q.Recurs.Jitter)
	text(c, &q.Recurs.CatchUp)
}

func (c *codec) emission(e *history.Emission) {
	if !c.reading {
		e.Event = digest(e.Event)
	}
	number(c, &e.Timestamp)
	number(c, &e.Due)
	number(c, &e.Occurrence)
	c.flag(&e.Stamped)
	c.place(&e.Source)
	text(c, &e.Event)
	c.payload(&e.Carries)
}

func (c *codec) letter(l *history.Letter) {
	number(c, &l.Timestamp)
	c.place(&l.Source)
	text(c, &l.Reason)
	c.flag(&l.Emission)
	number(c, &l.Occurrence)
}

func (c *codec) event(e *history.Event) {
	if !c.reading {
		e.Emission, e.Labelled = digest(e.Emission), labelsDigest(e.Labelled)
	}
	number(c, &e.Timestamp)
	text(c, &e.Type)
	text(c, &e.Labelled)
	c.time(&e.At)
	for _, p := range []*history.Place{&e.Source, &e.Previous, &e.Cancel, &e.Request} {
		c.place(p)
	}
	c.time(&e.Due)
	number(c, &e.Event.Occurrence)
	text(c, &e.Target)
	text(c, &e.Emission)
	text(c, &e.Reason)
	number(c, &e.Event.Partition)
	c.flag(&e.Unknown)
	pending := e.Pending != nil
	if c.flag(&pending); !pending {
		return
	}
	if c.reading {
		e.Pending = new(waterclock.Pending)
	}
	c.time(&e.Pending.Due)
	number(c, &e.Pending.Occurrence)
	c.flag(&e.Pending.Paused)
}

func (c *codec) timer(t *history.Timer) {
	c.place(&t.Source)
	number(c, &t.Due)
	number(c, &t.Occurrence)
	c.flag(&t.Paused)
	c.flag(&t.Triggered)
	c.flag(&t.Remembered)
	c.payload(&t.Emits)
}

func (c *codec) step(s *history.ChangelogRecord) {
	text(c, &s.Topic)
	text(c, &s.Kind)
	text(c, &s.Step)
	text(c, &s.Group)
	text(c, &s.Owner)
	text(c, &s.Incarnation)
	number(c, &s.Position)
}

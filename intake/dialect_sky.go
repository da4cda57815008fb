package intake

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// skySchedule is a value of kafka-message-scheduler by sky-uk (github.com/sky-uk/kafka-message-scheduler): Avro without
// a schema in front, or JSON with key, value and headers in base64.
type skySchedule struct {
	time    int64 // Unix milliseconds
	topic   string
	key     []byte // never nil
	value   []byte // nil: a tombstone
	headers []kgo.RecordHeader
	refusal *timer.Refusal // there are more headers than limits allow: the rest was not read
}

// skyDecoder decodes a value. A fault completes the sentence "it …".
type skyDecoder func(value []byte, limits *Limits) (s skySchedule, fault string)

// fromSky uses the record's key as the ID, as that scheduler does, and its value as the schedule. Headers of the
// record itself are not passed on. A null value cancels. So does the tombstone that the scheduler writes after a
// schedule has fired, although that has a header.
func fromSky(rec *kgo.Record, limits *Limits, decode skyDecoder) (*kgo.Record, *timer.Refusal) {
	switch {
	case speaksOurs(rec.Headers):
		return rec, nil
	case rec.Value == nil:
		return (&foreign{}).record(rec), nil
	}
	s, fault := decode(rec.Value, limits)
	if s.refusal != nil {
		return nil, s.refusal
	}
	if fault == "" && s.topic == "" {
		fault = "names no topic"
	}
	if fault != "" {
		return nil, Refuse(waterclock.ReasonBadValue,
			"the value is not a schedule of kafka-message-scheduler: it %s. Send its schema's fields, without a "+
				"schema ID in front, or correct the dialect of the request topic.", fault)
	}
	f := foreign{others: make([]kgo.RecordHeader, 0, len(s.headers)+maxAdded)}
	for _, h := range s.headers {
		if isOurs(h.Key) {
			return nil, Refuse(waterclock.ReasonUnknownHeader,
				"the schedule has a header %s to pass on, and those that begin with %s are not: rename it.",
				quote(h.Key), waterclock.RequestPrefix)
		}
		f.others = append(f.others, h)
	}
	f.others = append(f.others,
		kgo.RecordHeader{Key: waterclock.HeaderAt, Value: instantText(max(s.time, 0))}, // all past times are the same
		kgo.RecordHeader{Key: waterclock.HeaderTargetTopic, Value: []byte(s.topic)},
		kgo.RecordHeader{Key: waterclock.HeaderTargetKey, Value: s.key})
	out := f.record(rec)
	out.Value = s.value
	return out, nil
}

// decodeSkyAvro reads the fields in the order of the schema:
//
//	time long · topic string · key bytes · value union{null, bytes} · headers map of bytes
//
// The schema of older producers has no headers. A fault completes the sentence "it …".
func decodeSkyAvro(b []byte, limits *Limits) (s skySchedule, fault string) {
	r := avro{rest: b}
	s.time = r.long()
	topic := r.bytes()
	s.topic, s.key = string(topic), r.bytes()
	switch branch := r.long(); {
	case r.short:
	case branch == 1:
		s.value = r.bytes()
	case branch != 0:
		return s, "has a value that is neither null nor bytes"
	}
	if !r.short && len(r.rest) > 0 {
		s.headers, s.refusal = r.headers(limits)
	}
	switch {
	case s.refusal != nil:
		return s, ""
	case r.short:
		return s, "ends too soon, or is not in Avro"
	case len(r.rest) > 0:
		return s, "goes on behind its last field"
	case !utf8.Valid(topic):
		return s, "has a topic that is not UTF-8"
	}
	return s, ""
}

// avro reads Avro's binary encoding. Once short is set, every value is zero.
type avro struct {
	rest  []byte
	short bool // a value was cut off or malformed
}

// long reads a zig-zag number of at most ten bytes.
func (a *avro) long() int64 {
	n, size := binary.Varint(a.rest) // its zig-zag is Avro's
	if size <= 0 {
		a.rest, a.short = nil, true
		return 0
	}
	a.rest = a.rest[size:]
	return n
}

// bytes reads bytes after their length; the result is nil only if short.
func (a *avro) bytes() []byte {
	n := a.long()
	if a.short || n < 0 || n > int64(len(a.rest)) {
		a.rest, a.short = nil, true
		return nil
	}
	b := a.rest[:n:n]
	a.rest = a.rest[n:]
	return b
}

// headers reads a map: blocks of entries, the last one empty. A negative count is followed by the block's size in
// bytes. An entry may have two bytes, so headers stops at the first one too many.
func (a *avro) headers(limits *Limits) (list []kgo.RecordHeader, refusal *timer.Refusal) {
	room := allowance{limits: limits}
	for {
		n := a.long()
		if n < 0 {
			n = -n
			a.long()
		}
		if a.short || n == 0 {
			return list, nil
		}
		const least = 2 // bytes of an entry
		if n < 0 || n > int64(len(a.rest)/least) {
			a.rest, a.short = nil, true
			return nil, nil
		}
		for range n {
			name := a.bytes()
			h := kgo.RecordHeader{Key: string(name), Value: a.bytes()}
			if a.short {
				return nil, nil
			}
			if classify(h.Key) == ownHeader { // dropped later anyway
				continue
			}
			if refusal = room.take(&h); refusal != nil {
				return nil, refusal
			}
			list = append(list, h)
		}
	}
}

// decodeSkyJSON reads the JSON form. Headers come in the order of their names.
func decodeSkyJSON(b []byte, limits *Limits) (s skySchedule, fault string) {
	var doc struct {
		Time    *int64
		Topic   *string
		Key     *string
		Value   *string
		Headers skyHeaders
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return s, "is not JSON of the right shape (" + err.Error() + ")"
	}
	if doc.Headers.members > maxSkyMembers {
		count, _ := limits.headers()
		s.refusal = tooManyHeaders(count)
		return s, ""
	}
	if doc.Time == nil || doc.Topic == nil || doc.Key == nil {
		return s, "lacks time, topic or key"
	}
	s.time, s.topic = *doc.Time, *doc.Topic
	var ok bool
	if s.key, ok = base64Text(*doc.Key); !ok {
		return s, "has a key that is not in base64"
	}
	if doc.Value != nil {
		if s.value, ok = base64Text(*doc.Value); !ok {
			return s, "has a value that is not in base64"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Headers.values)) {
		value, ok := base64Text(doc.Headers.values[name])
		if !ok {
			return s, "has a header " + quote(name) + " that is not in base64"
		}
		s.headers = append(s.headers, kgo.RecordHeader{Key: name, Value: value})
	}
	return s, ""
}

// skyHeaders are the headers of the JSON form. They are counted before they are decoded: an entry may have six bytes,
// and takes a hundred in a map.
type skyHeaders struct {
	values  map[string]string
	members int // in all objects of that name
}

var _ json.Unmarshaler = (*skyHeaders)(nil)

// maxSkyMembers limits the headers of the JSON form that are decoded. It is higher than any limit on headers, because
// some of them may not count.
const maxSkyMembers = 1000

// UnmarshalJSON implements json.Unmarshaler. b is valid JSON.
func (s *skyHeaders) UnmarshalJSON(b []byte) error {
	if s.members += members(b); s.members > maxSkyMembers {
		return nil
	}
	return json.Unmarshal(b, &s.values)
}

// members returns how many members the object in b has, which is valid JSON; 0 if it is something else.
func members(b []byte) (n int) {
	depth, text := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ':' && depth == 1:
			n++
		}
	}
	return n
}

// base64Text decodes base64, whose padding may be left out; never nil if ok.
func base64Text(text string) (b []byte, ok bool) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if b == nil {
		b = []byte{}
	}
	return b, err == nil
}

package commands

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// tailTime is the format of times: RFC 3339 with milliseconds.
	tailTime = "2006-01-02T15:04:05.000Z07:00"
	// tailShown is how many bytes of a value are printed as text. With JSON the whole value is.
	tailShown = 2000
)

// decoded are the headers that a printed emission shows decoded.
var decoded = []string{
	waterclock.HeaderID, waterclock.HeaderDue, waterclock.HeaderOccurrence, waterclock.HeaderSource,
	waterclock.HeaderEvent,
}

// tailPrinter prints records: as text for people, or as one JSON object a line.
type tailPrinter struct {
	out  io.Writer
	json bool
}

func (t *tailPrinter) print(r *kgo.Record) error {
	e, err := waterclock.ParseEmission(r)
	emission := &e
	if err != nil {
		emission = nil // another program's record, shown as it is
	}
	if t.json {
		return t.object(r, emission)
	}
	return t.text(r, emission)
}

// text prints a record: a headline, then its parts.
func (t *tailPrinter) text(r *kgo.Record, e *waterclock.Emission) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s/%d/%d ", r.Timestamp.UTC().Format(tailTime), r.Topic, r.Partition, r.Offset)
	if e == nil {
		b.WriteString("not from a timer\n")
	} else {
		fmt.Fprintf(&b, "timer %s, due %s, %s, occurrence %d\n",
			textLine([]byte(e.ID)), e.Due.Format(tailTime), lateness(r, e), e.Occurrence)
	}
	row := func(name, value string) { fmt.Fprintf(&b, "  %-8s %s\n", name, value) }
	row("key", textLine(r.Key))
	for _, h := range tailHeaders(r, e) {
		row("header", textLine([]byte(h.Key))+"="+textLine(h.Value))
	}
	row("payload", payloadLine(r.Value))
	_, err := io.WriteString(t.out, b.String())
	return err
}

// lateness says how long after its due time an emission was written.
func lateness(r *kgo.Record, e *waterclock.Emission) string {
	late := r.Timestamp.Sub(e.Due)
	if late < 0 { // the topic has timestamps of its own
		return span.String(-late) + " early by its timestamp"
	}
	return span.String(late) + " late"
}

// tailHeaders returns the headers that are printed as they are.
func tailHeaders(r *kgo.Record, e *waterclock.Emission) []kgo.RecordHeader {
	if e == nil {
		return r.Headers
	}
	return slices.DeleteFunc(slices.Clone(r.Headers), func(h kgo.RecordHeader) bool {
		return slices.Contains(decoded, h.Key)
	})
}

// payloadLine returns a value on one line: JSON without its line breaks, text as it is, bytes in base64.
func payloadLine(value []byte) string {
	var compact bytes.Buffer
	switch {
	case value == nil:
		return "null, a tombstone"
	case len(value) == 0:
		return "empty"
	case utf8.Valid(value) && json.Compact(&compact, value) == nil && printable(compact.Bytes()):
		return cut(compact.String())
	case utf8.Valid(value):
		return cut(textLine(value))
	}
	return fmt.Sprintf("%d bytes, in base64: %s", len(value), cut(base64.StdEncoding.EncodeToString(value)))
}

// cut returns the beginning of a long text.
func cut(text string) string {
	if len(text) <= tailShown {
		return text
	}
	return strings.ToValidUTF8(text[:tailShown], "") + " ... (all of it with --json)"
}

// textLine returns bytes as text on one line, without anything that a terminal could take for a command.
func textLine(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 0 && printable(b):
		return string(b)
	}
	return strconv.Quote(string(b))
}

func printable(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) })
}

// tailObject is a record as JSON. Bytes that are not UTF-8 are in base64, in the field of the same name with Base64.
type tailObject struct {
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	At        string       `json:"at"` // the record's timestamp
	Timer     *tailTimer   `json:"timer,omitempty"`
	Key       *string      `json:"key"`
	KeyBase64 []byte       `json:"keyBase64,omitempty"`
	Headers   []api.Header `json:"headers"`
	Payload   tailPayload  `json:"payload"`
}

// tailTimer is the timer of an emission.
type tailTimer struct {
	ID         *string `json:"id,omitempty"`
	IDBase64   []byte  `json:"idBase64,omitempty"`
	Due        string  `json:"due"`
	Lateness   int64   `json:"lateness"` // in milliseconds
	Occurrence int64   `json:"occurrence"`
	Source     string  `json:"source"`
	Event      string  `json:"event,omitempty"`
}

// tailPayload is a value: as JSON if it is JSON, else as text, else in base64.
type tailPayload struct {
	Bytes  int             `json:"bytes"`
	JSON   json.RawMessage `json:"json,omitempty"`
	Text   *string         `json:"text,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
	Null   bool            `json:"null,omitempty"`
}

// object prints a record as JSON, on one line.
func (t *tailPrinter) object(r *kgo.Record, e *waterclock.Emission) error {
	o := tailObject{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, At: r.Timestamp.UTC().Format(tailTime),
		Headers: []api.Header{}, Payload: tailPayload{Bytes: len(r.Value)},
	}
	o.Key, o.KeyBase64 = api.Text(r.Key)
	if e != nil {
		o.Timer = &tailTimer{
			Due: e.Due.Format(tailTime), Lateness: r.Timestamp.Sub(e.Due).Milliseconds(),
			Occurrence: e.Occurrence, Source: e.Source.String(), Event: e.Event,
		}
		o.Timer.ID, o.Timer.IDBase64 = api.Text([]byte(e.ID))
	}
	for _, h := range tailHeaders(r, e) {
		o.Headers = append(o.Headers, api.HeaderOf(timer.Header(h)))
	}
	switch {
	case r.Value == nil:
		o.Payload.Null = true
	case utf8.Valid(r.Value) && json.Valid(r.Value):
		o.Payload.JSON = r.Value
	default:
		o.Payload.Text, o.Payload.Base64 = api.Text(r.Value)
	}
	lines := json.NewEncoder(t.out)
	lines.SetEscapeHTML(false)
	return lines.Encode(o)
}

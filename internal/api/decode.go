package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
)

// Limits of decoding a body. Two bytes of JSON may become a struct of more than fifty, so the limit of the
// body's size does not bound the memory that decoding takes.
const (
	maxTimers   = 1000 // of a POST
	maxFaults   = 20   // wrong timers of a POST, after which the rest is not checked
	maxHeaders  = 1000 // of a timer; the tenant's limits decide how many a request may have
	maxFaultLen = 200  // bytes of the message about one fault
	// headerBytes is the memory of a decoded header. In a body it may have three bytes.
	headerBytes = 100
)

// NewTimers are the timers of a POST.
type NewTimers struct {
	Timers []NewTimer `json:"timers" minItems:"1" maxItems:"1000" nullable:"false"`
}

// Headers are headers to be sent. The number that is decoded is limited.
type Headers []Header

var _ json.Unmarshaler = (*Headers)(nil)

// UnmarshalJSON implements json.Unmarshaler.
func (h *Headers) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	d := strict(b)
	if err := open(d, '['); err != nil {
		return errors.New("headers needs a list")
	}
	for d.More() {
		if len(*h) == maxHeaders {
			return fmt.Errorf("headers has more than %d entries", maxHeaders)
		}
		var one *Header
		if err := d.Decode(&one); err != nil {
			return err
		}
		if one == nil {
			return fmt.Errorf("headers[%d] is null: leave it out", len(*h))
		}
		*h = append(*h, *one)
	}
	return nil // the decoder reads the rest of the list
}

// strict decodes JSON without unknown fields.
func strict(b []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d
}

// open reads the beginning of an object or a list.
func open(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	switch {
	case err != nil || t == want:
	case t == nil:
		err = fmt.Errorf("it is null, and needs %v", want)
	default:
		err = fmt.Errorf("it begins with %.40v, and needs %v", t, want)
	}
	return err
}

// ended returns an error if something follows a value.
func ended(d *json.Decoder) error {
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("trailing data after the JSON value")
	}
	return nil
}

// decodeTimer reads the body of a PUT that is a timer.
func decodeTimer(body []byte) (*NewTimer, error) {
	d := strict(body)
	var n *NewTimer
	err := d.Decode(&n)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the body is not a timer as JSON (a payload that is JSON is sent as "+
			"application/octet-stream, or as value): %s", fault(err, body))
	case n == nil:
		return nil, fmt.Errorf("the body is not a timer as JSON: it is null")
	}
	if err := ended(d); err != nil {
		return nil, fmt.Errorf("the body has more than the timer: %w", err)
	}
	if err := lossless(body); err != nil {
		return nil, fmt.Errorf("body: %s", fault(err, nil))
	}
	return n, nil
}

// decodeObject reads a body that is one JSON object.
func decodeObject[T any](body []byte) (object *T, err error) {
	d := strict(body)
	if err = d.Decode(&object); err == nil && object == nil {
		err = errors.New("it is null, and needs an object")
	}
	if err == nil {
		err = ended(d)
	}
	if err == nil {
		err = lossless(body)
	}
	return object, err
}

// decodeCorrection reads the body of a POST that sends a dead letter again; nil if there is none.
func decodeCorrection(body []byte, contentType string) (*Correction, error) {
	if len(body) == 0 {
		return nil, nil
	}
	if err := isJSON(contentType); err != nil {
		return nil, err
	}
	c, err := decodeObject[Correction](body)
	if err != nil {
		return nil, invalid("body: %s", fault(err, body))
	}
	return c, nil
}

// decodeTimers reads the body of a POST, one timer after the other. It stops at the first timer beyond the limit, and
// after a number of wrong ones. So neither its memory nor its response grows with the body. The decoded headers count
// as the caller's memory.
func decodeTimers(ctx context.Context, body []byte) ([]NewTimer, error) {
	var at int64 // start of the part being decoded
	wrong := func(where string, err error) *Problem {
		text := fault(err, body[at:])
		p := invalid("%s: %s", where, text)
		p.Errors = []*huma.ErrorDetail{{Message: text, Location: where}}
		return p
	}
	d := strict(body)
	if err := open(d, '{'); err != nil {
		return nil, wrong("body", err)
	}
	if field, err := d.Token(); err != nil || field != "timers" {
		if err == nil {
			err = fmt.Errorf("it has %.60q, and needs timers, a list, and nothing else", field)
		}
		return nil, wrong("body", err)
	}
	if err := open(d, '['); err != nil {
		return nil, wrong("body.timers", err)
	}
	var timers []NewTimer
	var faults *Problem
	for n := 0; d.More(); n++ {
		if n == maxTimers {
			return nil, wrong("body.timers",
				fmt.Errorf("it has more than %d timers: send them in several calls", maxTimers))
		}
		var one *NewTimer
		at = d.InputOffset()
		err := d.Decode(&one)
		if err == nil && one == nil {
			err = errors.New("it is null, and needs a timer")
		}
		if err == nil {
			err = lossless(body[at:d.InputOffset()])
		}
		if err == nil {
			if err := access.Reserve(ctx, int64(len(one.Headers)*headerBytes)); err != nil {
				return nil, err
			}
			timers = append(timers, *one)
			continue
		}
		p := wrong(fmt.Sprintf("body.timers[%d]", n), err)
		if faults == nil {
			faults = p
		} else {
			faults.Detail += "; " + p.Detail
			faults.Errors = append(faults.Errors, p.Errors...)
		}
		if isSyntax(err) || len(faults.Errors) == maxFaults {
			return nil, faults
		}
	}
	for _, end := range []json.Delim{']', '}'} {
		if err := open(d, end); err != nil {
			return nil, wrong("body", err)
		}
	}
	switch err := ended(d); {
	case err != nil:
		return nil, wrong("body", err)
	case faults != nil:
		return nil, faults
	case len(timers) == 0:
		return nil, wrong("body.timers", errors.New("it has no timers"))
	}
	return timers, nil
}

// isSyntax reports whether nothing can be read after an error.
func isSyntax(err error) bool {
	var syntax *json.SyntaxError
	return errors.As(err, &syntax) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// fault describes an error of package json in terms of JSON. body is the decoded text, possibly with more after it.
func fault(err error, body []byte) string {
	var kind *json.UnmarshalTypeError
	var corrupt base64.CorruptInputError
	text := strings.TrimPrefix(err.Error(), "json: ")
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		text = "it ends early"
	case errors.As(err, &corrupt):
		text = fmt.Sprintf("%s is not base64: byte %d of it is none of A to Z, a to z, 0 to 9, + and /, or = is "+
			"missing at its end", notBase64(body), int64(corrupt))
	case errors.As(err, &kind):
		needs := "another type"
		switch kind.Type.Kind().String() {
		case "string":
			needs = "a text"
		case "bool":
			needs = "true or false"
		case "int64", "int32":
			needs = "a whole number"
		case "slice":
			needs = "a list"
			if kind.Type.Elem().Kind().String() == "uint8" {
				needs = "base64 as text"
			}
		case "struct":
			needs = "an object"
		}
		what := kind.Field
		if what == "" {
			what = "it"
		}
		text = fmt.Sprintf("%s is %s, and needs %s", what, kind.Value, needs)
	}
	return strings.ToValidUTF8(text[:min(len(text), maxFaultLen)], "")
}

// listIndex is the index of an element in the path of a field.
var listIndex = regexp.MustCompile(`\[\d+\]`)

// notBase64 names the first field of JSON that must be base64 and is not, because the decoder's error has no name.
func notBase64(body []byte) string {
	name := "a field"
	s := scan{b: body, text: func(path string, l literal) error {
		if !strings.HasSuffix(strings.ToLower(path), "base64") {
			return nil
		}
		_, err := base64.StdEncoding.DecodeString(l.unquoted())
		if err != nil {
			name = listIndex.ReplaceAllString(path, "")
		}
		return err
	}}
	_ = s.value("") // it ends at the field
	return name
}

// isJSON returns an error unless the body may be JSON in UTF-8: by its type, or because it has no type.
func isJSON(contentType string) error {
	media, _, _ := strings.Cut(contentType, ";")
	switch media = strings.ToLower(strings.TrimSpace(media)); media {
	case "", "application/json", "json":
		return isUTF8(contentType)
	}
	return problem(http.StatusUnsupportedMediaType, ReasonBadRequest,
		"the body is JSON: send it with Content-Type: application/json")
}

// request returns the request of a dead letter with the correction applied. For a fixed-delay topic it keeps the
// count of attempts, unless that was the problem.
func (c *Correction) request(r *Record, delay bool) (route.Request, error) {
	q := route.Request{ID: r.Key, Value: r.Value}
	if c == nil {
		c = &Correction{}
	}
	var typed *string
	if c.ID != "" {
		typed = &c.ID
	}
	id, err := oneOf("id", typed, c.IDBase64, false)
	if err != nil {
		return q, err
	}
	if len(id) > 0 {
		if len(q.ID) > 0 && !bytes.Equal(q.ID, id) {
			return q, fmt.Errorf("the dead letter has an ID, which stays: leave it out, or schedule another timer")
		}
		q.ID = id
	}
	value, err := oneOf("value", c.Value, c.ValueBase64, c.ValueNull)
	switch {
	case err != nil:
		return q, err
	case value != nil, c.ValueNull:
		q.Value = value
	case missing(r) != nil:
		return q, fmt.Errorf("the payload of this dead letter did not fit and is gone: give it as value")
	}
	if c.Headers == nil {
		if slices.Contains(missing(r), "headers") {
			return q, fmt.Errorf(
				"headers of this dead letter did not fit and are gone: give as headers all that are to be sent")
		}
		for _, h := range r.Headers {
			counts := delay && h.Key == waterclock.HeaderAttempt &&
				r.header(waterclock.HeaderReason) != string(waterclock.ReasonBadAttempt)
			if !strings.HasPrefix(h.Key, waterclock.OwnPrefix) || counts {
				q.Headers = append(q.Headers, h)
			}
		}
		return q, nil
	}
	for _, h := range *c.Headers {
		if h.Name == "" {
			return q, fmt.Errorf("a header has no name")
		}
		header, err := h.header()
		if err != nil {
			return q, err
		}
		q.Headers = append(q.Headers, header)
	}
	return q, nil
}

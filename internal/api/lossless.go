package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// A caller's input is taken unchanged, or rejected. Packages json, url and http are lenient: they replace bytes that
// are not UTF-8 and half surrogate pairs, take the last of two fields or the first of two parameters, leave out
// parameters that they cannot read, and take null for nothing. Then two IDs become one, or a filter selects too much.

// lossless returns an error if decoding a JSON value, which was decoded without an error, has changed something.
func lossless(b []byte) error {
	s := scan{b: b, strict: true, text: func(path string, l literal) error { return l.check(path) }}
	return s.value("")
}

// scan goes through valid JSON. A strict scan is of JSON that was decoded: the Go types bound its depth, and the fields
// of its objects.
type scan struct {
	b      []byte
	at     int
	strict bool                                  // an object that decoding would change is an error
	text   func(path string, text literal) error // is called with each string that is not a field's name
}

// space skips the white space between two tokens.
func (s *scan) space() {
	for s.at < len(s.b) && strings.IndexByte(" \t\r\n,:", s.b[s.at]) >= 0 {
		s.at++
	}
}

// value goes through the next value. path names it, as in headers[2].value; a long one is cut.
func (s *scan) value(path string) error {
	path = path[:min(len(path), maxFaultLen)]
	s.space()
	switch {
	case s.at == len(s.b):
		return nil
	case s.b[s.at] == '{':
		return s.object(path)
	case s.b[s.at] == '[':
		return s.list(path)
	case s.b[s.at] == '"':
		return s.text(path, s.literal())
	}
	end := bytes.IndexAny(s.b[s.at:], " \t\r\n,]}") // of a number, true, false or null
	if end < 0 {
		end = len(s.b) - s.at
	}
	s.at += end
	return nil
}

func (s *scan) list(path string) error {
	s.at++
	for n := 0; ; n++ {
		if s.space(); s.at == len(s.b) || s.b[s.at] == ']' {
			s.at++
			return nil
		}
		if err := s.value(path + "[" + strconv.Itoa(n) + "]"); err != nil {
			return err
		}
	}
}

// field is a field of an object.
type field struct {
	name  string
	first byte // of its value: n is null
}

func (s *scan) object(path string) error {
	s.at++
	var fields []field
	for {
		if s.space(); s.at == len(s.b) || s.b[s.at] == '}' {
			s.at++
			return ambiguousNull(path, fields)
		}
		name := s.literal().unquoted()
		at := strings.TrimPrefix(path+"."+name, ".")
		s.space()
		if s.strict {
			same := func(f field) bool { return strings.EqualFold(f.name, name) } // compared like json does
			if slices.ContainsFunc(fields, same) {
				return fmt.Errorf("%s is given twice: leave one out", at)
			}
			fields = append(fields, field{name, s.b[min(s.at, len(s.b)-1)]})
		}
		if err := s.value(at); err != nil {
			return err
		}
	}
}

// kafkaNulls are the fields that may be null in Kafka, each with the field that marks the null and the fields that
// give the same value.
var kafkaNulls = []struct {
	names  []string
	null   string
	others []string
	means  string
}{
	{[]string{"value", "valueBase64"}, "valueNull", []string{"payload"}, "Kafka's null"},
	{[]string{"key", "keyBase64"}, "keyNull", nil, "a null key"},
	{[]string{"text", "base64"}, "null", nil, "Kafka's null"},
}

// ambiguousNull returns an error if an object has null and it is not clear whether Kafka's null is meant, or nothing.
// "valueNull": false makes it clear; clients of typed languages that send all fields send it along with "value":
// null.
func ambiguousNull(path string, fields []field) error {
	says := func(name string) bool {
		return slices.ContainsFunc(fields, func(f field) bool {
			return strings.EqualFold(f.name, name) && f.first != 'n'
		})
	}
	for _, k := range kafkaNulls {
		if says(k.null) || slices.ContainsFunc(slices.Concat(k.names, k.others), says) {
			continue
		}
		for _, f := range fields {
			if f.first == 'n' && slices.ContainsFunc(k.names,
				func(name string) bool { return strings.EqualFold(f.name, name) }) {
				at := strings.TrimPrefix(path+"."+f.name, ".")
				return fmt.Errorf("%s is null: give %s: true for %s, or leave it out", at, k.null, k.means)
			}
		}
	}
	return nil
}

// literal is a text of JSON in its quotes.
type literal []byte

// literal returns the next text.
func (s *scan) literal() literal {
	from := s.at
	for s.at++; s.at < len(s.b) && s.b[s.at] != '"'; s.at++ {
		if s.b[s.at] == '\\' {
			s.at++
		}
	}
	s.at = min(s.at+1, len(s.b))
	return s.b[from:s.at]
}

func (l literal) unquoted() (s string) {
	_ = json.Unmarshal(l, &s) // it was decoded before
	return s
}

// check returns an error if some bytes or escapes of the text are not a character.
func (l literal) check(path string) error {
	if !utf8.Valid(l) {
		valid := 0
		for r, n := utf8.DecodeRune(l); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(l[valid:]) {
			valid += n
		}
		return fmt.Errorf("%s is not UTF-8 at byte %d: %s", path, valid-1, insteadOf(path))
	}
	for rest := []byte(l); ; {
		escape := bytes.IndexByte(rest, '\\')
		if escape < 0 {
			return nil
		}
		rest = rest[escape:]
		r, n := codeUnit(rest)
		if !utf16.IsSurrogate(r) {
			rest = rest[n:]
			continue
		}
		low, m := codeUnit(rest[n:])
		if utf16.DecodeRune(r, low) == utf8.RuneError {
			return fmt.Errorf("%s has %s, which is half of a character: %s", path, rest[:n], insteadOf(path))
		}
		rest = rest[n+m:]
	}
}

// codeUnit returns the value of an escape \uXXXX at the beginning of b, and its length. Any other escape has the
// value 0.
func codeUnit(b []byte) (r rune, n int) {
	const unit = len(`\u0000`)
	if len(b) < unit || b[0] != '\\' || b[1] != 'u' {
		return 0, min(2, len(b))
	}
	v, err := strconv.ParseUint(string(b[2:unit]), 16, 16)
	if err != nil {
		return 0, 2
	}
	return rune(v), unit
}

// insteadOf explains how to give bytes that text cannot have.
func insteadOf(path string) string {
	switch name := path[strings.LastIndexByte(path, '.')+1:]; strings.ToLower(name) {
	case "id", "value", "key":
		return "give its bytes in base64, as " + name + "Base64"
	case "text":
		return "give its bytes in base64, as base64"
	}
	return "correct it"
}

// asSent rejects a call if a part of it would be left out or changed: parameters that cannot be read or are given
// twice, single headers that are given twice, and a body that is encoded. It is a middleware of all operations.
func asSent(c huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(c)
	if p := notAsSent(r, c.Operation()); p != nil {
		p.Write(w)
		return
	}
	next(c)
}

// repeats reports whether a parameter of an operation may be given more than once.
func repeats(op *huma.Operation, name string) bool {
	return slices.ContainsFunc(op.Parameters,
		func(p *huma.Param) bool { return p.In == "query" && p.Name == name && p.Explode != nil && *p.Explode })
}

// notAsSent returns the reason why a call of an operation cannot be taken unchanged.
func notAsSent(r *http.Request, op *huma.Operation) *Problem {
	hasBody := op.RequestBody != nil
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("the parameters cannot be read: %v; percent-encode them, a semicolon as %%3B", err)
	}
	for name, values := range query {
		if len(values) > 1 && !repeats(op, name) {
			return invalid("the parameter %.40q is given %d times: give it once", name, len(values))
		}
	}
	for _, name := range []string{"Content-Type", keyHeader, windowHeader, "Last-Event-ID"} {
		if n := len(r.Header.Values(name)); n > 1 {
			return invalid("%s is given %d times: give it once", name, n)
		}
	}
	for _, coding := range r.Header.Values("Content-Encoding") {
		if coding = strings.TrimSpace(coding); hasBody && coding != "" && !strings.EqualFold(coding, "identity") {
			return problem(http.StatusUnsupportedMediaType, ReasonBadRequest,
				"the body has Content-Encoding: %.40s, and none is decoded: send the body as it is; "+
					"to have a payload fire compressed, leave the header out and pass content-encoding on", coding)
		}
	}
	return nil
}

// isUTF8 returns a problem if a media type has another charset than that of JSON.
func isUTF8(contentType string) error {
	_, params, err := mime.ParseMediaType(contentType)
	charset, given := params["charset"]
	switch {
	case contentType == "", err == nil && !given:
		return nil
	case err == nil && slices.Contains([]string{"utf-8", "utf8", "us-ascii"}, strings.ToLower(charset)):
		return nil
	case err != nil:
		return problem(http.StatusUnsupportedMediaType, ReasonBadRequest, "Content-Type is %.80q: %v", contentType, err)
	}
	return problem(http.StatusUnsupportedMediaType, ReasonBadRequest,
		"the charset is %.40q, and JSON is UTF-8: send it so", charset)
}

package console

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
)

// blankHeaders is the number of headers that can be added at a time.
const blankHeaders = 3

// Encodings of a header's value in its field.
const (
	asText, asBase64, asNull = "text", "base64", "null"
)

// correction is the content of a dead letter's form, as it was typed.
type correction struct {
	ID      string
	Headers []field
	Payload string
}

// field is a header in the form.
type field struct{ Name, Value, As string }

// deadLetterPage is a dead letter with its correction. With Sure the page shows the request to be sent, and asks.
type deadLetterPage struct {
	Typed correction
	Row   deadRow

	Topic   string
	Delay   bool // of a fixed-delay topic, whose records have no IDs
	Text    bool // the payload can be corrected here: it is text, or missing
	Changed bool // the payload differs from the dead letter's
	Sure    bool
	Wrong   *api.Problem
}

// letter fetches the dead letter that the page's address names.
func (v *visit) letter() (d api.DeadLetter, topic string, path []string, err error) {
	topic = v.query("topic")
	path = []string{"topics", topic, "dead-letters", v.query("partition"), v.query("offset")}
	if slices.Contains(path, "") {
		return d, topic, path, bad("the address of a dead letter's page has topic, partition and offset; find it on " +
			"the page of dead letters")
	}
	return d, topic, path, v.ask(call{path: path}, &d)
}

// deadLetter shows a dead letter with the form that corrects it.
func (c *Console) deadLetter(v *visit) error {
	d, topic, _, err := v.letter()
	if err != nil {
		return err
	}
	return v.showLetter(topic, &d, correctionOf(&d), false, nil)
}

// correctionOf returns the initial form. It has a field for the target even if the dead letter names none.
func correctionOf(d *api.DeadLetter) correction {
	c := correction{Payload: payloadOf(d)}
	targeted := false
	for _, h := range d.Headers {
		value, as := inField(h.Value, h.ValueBase64, h.ValueNull, "")
		targeted = targeted || h.Name == waterclock.HeaderTargetTopic
		c.Headers = append(c.Headers, field{h.Name, value, as})
	}
	if !targeted {
		c.Headers = append(c.Headers, field{Name: waterclock.HeaderTargetTopic, As: asText})
	}
	return c
}

// inField returns the encoding in which a form returns a value unchanged: text, or base64 if it is no text, or has
// control characters other than those that the field keeps.
func inField(text *string, raw []byte, null bool, keeps string) (value, as string) {
	switch {
	case null:
		return "", asNull
	case text == nil:
		return base64.StdEncoding.EncodeToString(raw), asBase64
	case hasControl(*text, keeps):
		return base64.StdEncoding.EncodeToString([]byte(*text)), asBase64
	}
	return *text, asText
}

// hasControl reports whether a text has a control character other than those in except.
func hasControl(text, except string) bool {
	return strings.ContainsFunc(text,
		func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune(except, r) })
}

// isTyped reports whether the payload is text that a form returns unchanged. Browsers replace some characters that do
// not print.
func isTyped(d *api.DeadLetter) bool {
	return d.Payload != nil && d.Payload.Text != nil && !hasControl(*d.Payload.Text, "\r\n\t")
}

// payloadOf returns the payload as a form returns it; empty if it is not text.
func payloadOf(d *api.DeadLetter) string {
	if !isTyped(d) {
		return ""
	}
	return asTyped(*d.Payload.Text)
}

// asTyped ends all lines with a line feed, whatever they ended with.
func asTyped(text string) string { return strings.ReplaceAll(lines10(text), "\r", "\n") }

// showLetter shows the form or, with sure, the request that it would send.
func (v *visit) showLetter(topic string, d *api.DeadLetter, c correction, sure bool, wrong *api.Problem) error {
	p := &deadLetterPage{Typed: c, Row: rowOfDead(*d), Topic: topic, Sure: sure, Wrong: wrong}
	p.Delay = v.isDelay(topic)
	p.Text = d.Truncated || isTyped(d)
	p.Changed = d.Truncated || c.Payload != payloadOf(d)
	if !sure {
		for range blankHeaders {
			p.Typed.Headers = append(p.Typed.Headers, field{As: asText})
		}
	}
	return v.show(wrong, "dead-letter", "Dead letter", p)
}

// correct shows the request of a correction, or sends it.
func (c *Console) correct(v *visit) error {
	d, topic, path, err := v.letter()
	if err != nil {
		return err
	}
	typed, err := v.correction()
	if err != nil {
		p := bad(err.Error())
		p.Title = "Not sent"
		return v.showLetter(topic, &d, typed, false, p)
	}
	if do := v.r.PostForm.Get("do"); do != "send" {
		return v.showLetter(topic, &d, typed, do == "check", nil)
	}
	var result api.Result
	if err := v.ask(call{method: http.MethodPost, path: append(path, "resend"), body: typed.of(&d)},
		&result); err != nil {
		return v.showLetter(topic, &d, typed, false, asProblem(err))
	}
	id := rowOfDead(d).Raw
	if id == "" {
		id = typed.ID
	}
	return v.redirect(topic, id, &result)
}

// correction returns the form's content, without headers that have neither a name nor a value.
func (v *visit) correction() (c correction, err error) {
	form := v.r.PostForm
	c = correction{ID: form.Get("id"), Payload: asTyped(form.Get("payload"))}
	names, values, as := form["name"], form["value"], form["as"]
	if len(values) != len(names) || len(as) != len(names) {
		return c, fmt.Errorf("the form is not whole: load the page again")
	}
	for i, name := range names {
		f := field{Name: name, Value: values[i], As: as[i]}
		if name == "" && f.Value != "" && err == nil {
			err = fmt.Errorf("a header with the value %.100q has no name: give it one, or empty both", f.Value)
		}
		if name == waterclock.HeaderTargetTopic && f.Value == "" && f.As == asText {
			continue // the default of the request topic
		}
		if name == "" && f.Value == "" {
			continue
		}
		if _, bad := base64.StdEncoding.DecodeString(f.Value); f.As == asBase64 && bad != nil && err == nil {
			err = fmt.Errorf("header %q is not base64: choose text if it is text", name)
		}
		if f.As == asNull && f.Value != "" && err == nil {
			err = fmt.Errorf("header %q is to be null and has a value: empty that, or choose text", name)
		}
		c.Headers = append(c.Headers, f)
	}
	return c, err
}

// of returns the correction in the form for the API. An unchanged payload is left out, because the form may have
// changed its line ends.
func (c *correction) of(d *api.DeadLetter) *api.Correction {
	headers := make(api.Headers, 0, len(c.Headers))
	for _, f := range c.Headers {
		h := api.Header{Name: f.Name}
		switch f.As {
		case asNull:
			h.ValueNull = true
		case asBase64:
			h.ValueBase64, _ = base64.StdEncoding.DecodeString(f.Value) // correction has checked it
		default:
			h.Value = &f.Value
		}
		headers = append(headers, h)
	}
	out := &api.Correction{Headers: &headers}
	if d.ID == nil && d.IDBase64 == nil || d.ID != nil && *d.ID == "" {
		out.ID = c.ID
	}
	if d.Truncated || isTyped(d) && c.Payload != payloadOf(d) {
		out.Value = &c.Payload
	}
	return out
}

package console

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/internal/api"
)

const deadLettersOnPage = "50"

type deadLettersPage struct {
	Now    time.Time
	Topic  string
	Topics []string
	Rows   []deadRow
	Next   template.URL
	First  template.URL
	Wrong  *api.Problem
}

type deadRow struct {
	api.DeadLetter
	Raw     string // the timer's ID
	Values  []headerRow
	Payload *shown
	Resend  template.URL
	Correct template.URL
	Timer   template.URL // what is pending under its ID; empty: it has none
}

// Lacks reports whether something of the request did not fit into the dead letter: value, headers
// (with key all of them, without those that are passed on), key.
func (r *deadRow) Lacks(what string) bool { return slices.Contains(r.Missing, what) }

func rowOfDead(topic string, d api.DeadLetter) deadRow {
	r := deadRow{DeadLetter: d, Raw: string(d.IDBase64)}
	if d.ID != nil {
		r.Raw = *d.ID
	}
	for _, h := range d.Headers {
		r.Values = append(r.Values, headerRow{h.Name, show(h.Value, h.ValueBase64, h.ValueNull, false)})
	}
	if p := d.Payload; p != nil {
		s := show(p.Text, p.Base64, p.Null, false)
		s.Cut += p.Bytes - s.Bytes // of a long one the list has the beginning
		r.Payload = &s
	}
	if r.Raw != "" {
		r.Timer = link("/timer", "topic", topic, "id", r.Raw)
	}
	r.Correct = link("/dead-letter", "topic", topic, "partition", strconv.Itoa(int(d.Partition)), "offset", strconv.FormatInt(d.Offset, 10))
	r.Resend = link("/dead-letters", "topic", topic, "id", r.Raw)
	return r
}

func (c *Console) deadLetters(v *visit) {
	p := &deadLettersPage{Now: v.now}
	status := http.StatusOK
	var err error
	if p.Topic, p.Topics, err = v.chosen(); err == nil && p.Topic != "" {
		err = p.find(v)
	}
	if err != nil {
		p.Wrong = asProblem(err)
		status = p.Wrong.Status
		v.retryAfter(p.Wrong)
	}
	v.show(status, "dead-letters", "Dead letters", p)
}

// find fills the page.
func (p *deadLettersPage) find(v *visit) error {
	q := url.Values{"limit": {deadLettersOnPage}}
	if cursor := v.query("cursor"); cursor != "" {
		q.Set("cursor", cursor)
		p.First = link("/dead-letters", "topic", p.Topic)
	}
	var list api.DeadLetterList
	if err := v.ask(call{path: []string{"v1", "topics", p.Topic, "dead-letters"}, query: q}, &list); err != nil {
		return err
	}
	for _, d := range list.DeadLetters {
		p.Rows = append(p.Rows, rowOfDead(p.Topic, d))
	}
	if list.Cursor != "" {
		p.Next = link("/dead-letters", "topic", p.Topic, "cursor", list.Cursor)
	}
	return nil
}

// resend writes the request of a dead letter again, as it was.
func (c *Console) resend(v *visit) {
	topic, id := v.query("topic"), v.raw("id")
	partition, offset := v.r.PostForm.Get("partition"), v.r.PostForm.Get("offset")
	if topic == "" || partition == "" || offset == "" {
		v.fail(wrong(http.StatusBadRequest, "the form does not say which dead letter; go back to the page of dead letters"))
		return
	}
	var result api.Result
	err := v.ask(call{method: http.MethodPost, path: []string{"v1", "topics", topic, "dead-letters", partition, offset, "resend"}}, &result)
	if err != nil {
		v.fail(asProblem(err))
		return
	}
	v.redirect(topic, id, &result)
}

package console

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"

	"github.com/waterclock/waterclock/internal/api"
)

const deadLettersOnPage = "50"

type deadLettersPage struct {
	search
	Delay  bool                  // the topic is a fixed-delay topic
	Counts *api.DeadLetterCounts // nil: not known
	Rows   []deadRow
	Next   template.URL
	First  template.URL
	Resend template.URL // the page that asks whether to send all of them again
	Done   string
	Review reviewed
	Wrong  *api.Problem
}

// Filtered reports whether the search leaves out some of the new letters.
func (dlp *deadLettersPage) Filtered() bool {
	return dlp.Reason+dlp.Prefix+dlp.Label+dlp.From+dlp.To != ""
}

type deadRow struct {
	api.DeadLetter
	Raw     string // the timer's ID
	Values  []headerRow
	Payload *shown
	Seen    bool // it has been reviewed
}

// Lacks reports whether a part of the request did not fit into the dead letter: value, headers or key. If the key
// is missing, so are all headers; if only headers are missing, those that are passed on are.
func (d *deadRow) Lacks(what string) bool { return slices.Contains(d.Missing, what) }

func rowOfDead(d api.DeadLetter) deadRow {
	r := deadRow{DeadLetter: d, Raw: string(d.IDBase64), Seen: d.Reviewed != nil && *d.Reviewed}
	if d.ID != nil {
		r.Raw = *d.ID
	}
	for _, h := range d.Headers {
		r.Values = append(r.Values, headerRow{h.Name, show(h.Value, h.ValueBase64, h.ValueNull, false)})
	}
	if p := d.Payload; p != nil {
		s := show(p.Text, p.Base64, p.Null, false)
		s.Cut += p.Bytes - s.Bytes // the list has the beginning of a long payload
		r.Payload = &s
	}
	return r
}

func (c *Console) deadLetters(v *visit) error {
	p := &deadLettersPage{search: v.search("prefix"), Done: doneWords(v.query("done"), v.query("request"))}
	var err error
	if p.Topic, p.Topics, err = v.chosen(); err == nil {
		p.count(v)
		if p.Topic != "" {
			err = p.find(v)
		}
	}
	if err != nil {
		p.Wrong = asProblem(err)
	}
	return v.show(p.Wrong, "dead-letters", "Dead letters", p)
}

// count fills in the counts of the topic, and adds fixed-delay topics to those that can be chosen.
func (dlp *deadLettersPage) count(v *visit) {
	all := v.deadLetters()
	if all == nil {
		return
	}
	for _, t := range all.Topics {
		if t.FixedDelay {
			dlp.Topics = append(dlp.Topics, t.Topic)
		}
		if dlp.Topic == "" {
			dlp.Topic = t.Topic
		}
		if t.Topic == dlp.Topic {
			dlp.Delay, dlp.Counts = t.FixedDelay, &t
		}
	}
}

// isDelay reports whether a topic is a fixed-delay topic.
func (a *asker) isDelay(topic string) bool {
	all := a.deadLetters()
	return all != nil &&
		slices.ContainsFunc(all.Topics, func(t api.DeadLetterCounts) bool { return t.Topic == topic && t.FixedDelay })
}

// find fills the page.
func (dlp *deadLettersPage) find(v *visit) error {
	q, err := dlp.ofLetters(v.now.In(v.zone))
	if err != nil {
		return err
	}
	again := dlp.pairs(q)
	dlp.Resend = link("/resend", again...)
	q.Set("limit", deadLettersOnPage)
	if cursor := v.query("cursor"); cursor != "" {
		q.Set("cursor", cursor)
		dlp.First = link("/dead-letters", again...)
	}
	var list api.DeadLetterList
	ask := func() error { return v.ask(call{path: []string{"topics", dlp.Topic, "dead-letters"}, query: q}, &list) }
	err = ask()
	// Maybe only the marks cannot be read.
	if err != nil && dlp.Seen == "" && asProblem(err).Reason == api.ReasonKafka {
		q.Del("reviewed")
		if dlp.Review.Wrong = asProblem(err).Detail; ask() == nil {
			err, dlp.Seen = nil, "all"
		}
	}
	if err != nil {
		return err
	}
	dlp.Review.Action, dlp.Review.Undo = link("/dead-letters", again...), deadPosition(v.query("undo"))
	if len(list.DeadLetters) > 0 && dlp.Seen != "reviewed" && dlp.Review.Wrong == "" {
		dlp.Review.All = list.Position
	}
	for _, d := range list.DeadLetters {
		dlp.Rows = append(dlp.Rows, rowOfDead(d))
	}
	if list.Cursor != "" {
		dlp.Next = link("/dead-letters", append(again, "cursor", list.Cursor)...)
	}
	return nil
}

// resend writes the request of a dead letter again, unchanged.
func (c *Console) resend(v *visit) error {
	topic, id := v.query("topic"), v.raw("id")
	partition, offset := v.r.PostForm.Get("partition"), v.r.PostForm.Get("offset")
	if topic == "" || partition == "" || offset == "" {
		return bad("the form does not say which dead letter; go back to the page of dead letters")
	}
	var result api.Result
	err := v.ask(call{method: http.MethodPost, path: []string{"topics", topic, "dead-letters", partition, offset,
		"resend"}}, &result)
	if err != nil {
		return err
	}
	return v.redirect(topic, id, &result)
}

// Letters that have been reviewed are not new: pages show, count and resend the new ones, unless others are
// requested.

// newLetters are the dead letters of a topic that are new: those that have not been reviewed or, if none of the topic
// ever has been, those of the last hour.
type newLetters struct {
	N       int64
	More    bool // there are more than N
	Reasons []newReason
}

// newReason is how many new dead letters have the same reason.
type newReason struct {
	Reason string
	N      int64
}

func newLettersOf(t *api.DeadLetterCounts) newLetters {
	fresh := newLetters{N: t.LastHour, More: !t.Exact}
	if t.New != nil {
		fresh = newLetters{N: t.New.Count, More: !t.New.Exact}
		for reason, n := range t.New.Reasons {
			fresh.Reasons = append(fresh.Reasons, newReason{reason, n})
		}
	} else {
		for _, r := range t.Reasons {
			fresh.Reasons = append(fresh.Reasons, newReason{r.Reason, r.LastHour})
		}
	}
	fresh.Reasons = slices.DeleteFunc(fresh.Reasons, func(r newReason) bool { return r.N == 0 })
	slices.SortFunc(fresh.Reasons, func(a, b newReason) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Reason, b.Reason))
	})
	return fresh
}

// New returns how many dead letters with a reason are new.
func (dlp *deadLettersPage) New(reason string) string {
	if dlp.Counts.New == nil {
		return "–"
	}
	text := number(dlp.Counts.New.Reasons[reason])
	if !dlp.Counts.New.Exact {
		text += "+"
	}
	return text
}

// postLetters sends a letter again, or sets marks, as a form of the page of dead letters asks.
func (c *Console) postLetters(v *visit) error {
	form := v.r.PostForm
	topic, partition, offset := v.query("topic"), form.Get("partition"), form.Get("offset")
	path, q := []string{"topics", topic, "dead-letters"}, url.Values{}
	switch form.Get("do") {
	case "":
		return c.resend(v)
	case "one":
		path = append(path, partition, offset)
	case "older":
		path = append(path, partition, offset)
		q.Set("older", "true")
	case "all":
		q.Set("position", form.Get("position"))
	case "undo":
		q.Set("position", form.Get("position"))
		q.Set("back", "true")
	default:
		return bad("the form asks for something that this page does not do; go back to the page of dead letters")
	}
	if topic == "" || len(path) > 3 && (partition == "" || offset == "") {
		return bad("the form does not say which dead letter; go back to the page of dead letters")
	}
	var done api.DeadLetterReview
	if err := v.ask(call{method: http.MethodPost, path: append(path, "reviewed"), query: q}, &done); err != nil {
		return err
	}
	s := v.search("prefix")
	shown, _ := s.ofLetters(v.now.In(v.zone)) // without it the page shows the error
	return v.lead(link("/dead-letters", s.pairs(shown, "done", "reviewed", "undo", done.Before)...))
}

// reviewed holds the data with which the page of dead letters sets marks.
type reviewed struct {
	All    string       // position after all letters; empty: there is nothing to review
	Undo   string       // position before the last call; empty: there was none
	Action template.URL // the address to which forms are sent
	Wrong  string       // the reason why the marks are unknown; empty: they are known
}

// deadPosition returns a position in the form for the API; empty if it is none.
func deadPosition(text string) string {
	for _, r := range text {
		if (r < '0' || r > '9') && r != ':' && r != '.' {
			return ""
		}
	}
	return text[:min(len(text), 8<<10)]
}

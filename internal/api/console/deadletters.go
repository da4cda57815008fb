package console

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/internal/api"
)

const deadLettersOnPage = "50"

// deadSearch is the content of the search form, as it was typed.
type deadSearch struct {
	Topic, Reason, Prefix, From, To string
	Seen                            string // empty: new ones; all; or reviewed
	labelFilter
	Topics []string
}

// Filtered reports whether the search leaves out some of the new letters.
func (d *deadSearch) Filtered() bool { return d.Reason+d.Prefix+d.Label+d.From+d.To != "" }

type deadLettersPage struct {
	deadSearch
	Now     time.Time
	Delay   bool                  // the topic is a fixed-delay topic
	Counts  *api.DeadLetterCounts // nil: not known
	Reasons []reasonRow
	Rows    []deadRow
	Next    template.URL
	First   template.URL
	Resend  template.URL // the page that asks whether to send all of them again
	Done    string
	Review  reviewed
	Wrong   *api.Problem
}

// reasonRow is one reason, and how many dead letters of the topic have it.
type reasonRow struct {
	api.ReasonCount
	Link   template.URL // a search for this reason
	Resend template.URL
	On     bool
}

type deadRow struct {
	api.DeadLetter
	Raw     string // the timer's ID
	Values  []headerRow
	Payload *shown
	Seen    bool         // it has been reviewed
	Resend  template.URL // empty: it cannot be sent as it was
	Correct template.URL
	Timer   template.URL // the timer pending under its ID; empty: there is no ID
}

// Lacks reports whether a part of the request did not fit into the dead letter: value, headers or key. If the key
// is missing, so are all headers; if only headers are missing, those that are passed on are.
func (d *deadRow) Lacks(what string) bool { return slices.Contains(d.Missing, what) }

func rowOfDead(topic string, delay bool, d api.DeadLetter) deadRow {
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
	if r.Raw != "" && !delay {
		r.Timer = link("/timer", "topic", topic, "id", r.Raw)
	}
	r.Correct = link("/dead-letter", "topic", topic, "partition", strconv.Itoa(int(d.Partition)), "offset",
		strconv.FormatInt(d.Offset, 10))
	if !d.Truncated && (r.Raw != "" || delay) {
		r.Resend = link("/dead-letters", "topic", topic, "id", r.Raw)
	}
	return r
}

func (c *Console) deadLetters(v *visit) error {
	p := &deadLettersPage{Now: v.now, deadSearch: v.deadSearch(), Done: doneWords(v.query("done"), v.query("request"))}
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
		if t.Topic != dlp.Topic {
			continue
		}
		dlp.Delay, dlp.Counts = t.FixedDelay, &t
		for _, r := range t.Reasons {
			dlp.Reasons = append(dlp.Reasons, reasonRow{
				r, link("/dead-letters", "topic", dlp.Topic, "reason", r.Reason), link("/resend", "topic", dlp.Topic,
					"reason", r.Reason, "seen", dlp.Seen), r.Reason == dlp.Reason,
			})
		}
	}
}

// isDelay reports whether a topic is a fixed-delay topic.
func (a *asker) isDelay(topic string) bool {
	all := a.deadLetters()
	return all != nil &&
		slices.ContainsFunc(all.Topics, func(t api.DeadLetterCounts) bool { return t.Topic == topic && t.FixedDelay })
}

// deadSearch returns the search in the page's address.
func (v *visit) deadSearch() deadSearch {
	return deadSearch{Topic: v.query("topic"), Reason: v.query("reason"), Prefix: v.raw("prefix"),
		From: v.query("from"), To: v.query("to"), Seen: v.query("seen"), labelFilter: v.labelFilter()}
}

// pairs returns the search as parameters of a page: see search.pairs.
func (d *deadSearch) pairs(q url.Values) []string {
	return []string{"topic", d.Topic, "reason", d.Reason, "prefix", d.Prefix, "from", asInstant(q.Get("after")), "to",
		asInstant(q.Get("before")), "label", d.Label, "seen", d.Seen}
}

// filter returns the search as parameters of the API.
func (d *deadSearch) filter(now time.Time) (url.Values, error) {
	q, err := between(now, "after", d.From, "before", d.To)
	if err != nil {
		return nil, err
	}
	labels, err := d.labels()
	if err != nil {
		return nil, err
	}
	for _, x := range [][2]string{{"reason", d.Reason}, {"prefix", d.Prefix}, {"label", labels}} {
		if x[1] != "" {
			q.Set(x[0], x[1])
		}
	}
	if d.Seen != "all" {
		q.Set("reviewed", strconv.FormatBool(d.Seen == "reviewed"))
	}
	return q, nil
}

// find fills the page.
func (dlp *deadLettersPage) find(v *visit) error {
	q, err := dlp.filter(v.now.In(v.zone))
	if err != nil {
		return wrong(http.StatusBadRequest, err.Error())
	}
	// Times relative to now become instants, so that all pages of the search have the same filter.
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
		dlp.Rows = append(dlp.Rows, rowOfDead(dlp.Topic, dlp.Delay, d))
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
		return wrong(http.StatusBadRequest,
			"the form does not say which dead letter; go back to the page of dead letters")
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

// New returns how many dead letters with the row's reason are new.
func (dlp *deadLettersPage) New(r reasonRow) string {
	if dlp.Counts.New == nil {
		return "–"
	}
	text := number(dlp.Counts.New.Reasons[r.Reason])
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
		return wrong(http.StatusBadRequest,
			"the form asks for something that this page does not do; go back to the page of dead letters")
	}
	if topic == "" || len(path) > 3 && (partition == "" || offset == "") {
		return wrong(http.StatusBadRequest,
			"the form does not say which dead letter; go back to the page of dead letters")
	}
	var done api.DeadLetterReview
	if err := v.ask(call{method: http.MethodPost, path: append(path, "reviewed"), query: q}, &done); err != nil {
		return err
	}
	s := v.deadSearch()
	shown, _ := s.filter(v.now.In(v.zone)) // without it the page shows the error
	return v.lead(link("/dead-letters", append(s.pairs(shown), "done", "reviewed", "undo", done.Before)...))
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

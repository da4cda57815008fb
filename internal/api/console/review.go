package console

import (
	"html/template"
	"net/http"
	"net/url"

	"github.com/waterclock/waterclock/internal/api"
)

// What has been reviewed of the dead letters of a topic is not new: pages show what is new first, count it, and resend
// nothing else unless they are asked to.

// unreviewed returns the number of new dead letters of a topic, by the reviewers' mark if there is one, else those of
// the last hour, and how many there are of a reason.
func unreviewed(t *api.DeadLetterCounts) (n int64, more bool, of func(api.ReasonCount) int64) {
	if t.New == nil {
		return t.LastHour, !t.Exact, func(r api.ReasonCount) int64 { return r.LastHour }
	}
	return t.New.Count, !t.New.Exact, func(r api.ReasonCount) int64 { return t.New.Reasons[r.Reason] }
}

// newReasons returns the reasons of new dead letters, including those that no dead letter of the last day has.
func newReasons(t *api.DeadLetterCounts) (all []api.ReasonCount) {
	_, _, of := unreviewed(t)
	listed := make(map[string]bool)
	for _, r := range t.Reasons {
		listed[r.Reason] = true
		if r.LastHour = of(r); r.LastHour > 0 {
			all = append(all, r)
		}
	}
	if t.New != nil {
		for reason, n := range t.New.Reasons {
			if !listed[reason] && n > 0 {
				all = append(all, api.ReasonCount{Reason: reason, LastHour: n})
			}
		}
	}
	return all
}

// New returns how many dead letters with the row's reason are new.
func (p *deadLettersPage) New(r reasonRow) string {
	if p.Counts.New == nil {
		return "–"
	}
	text := number(p.Counts.New.Reasons[r.Reason])
	if !p.Counts.New.Exact {
		text += "+"
	}
	return text
}

// postLetters does what a form of the page of dead letters says.
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
	var shown url.Values
	if f, err := s.filter(v.now.In(v.zone)); err == nil {
		shown = f
	}
	return v.lead(link("/dead-letters", append(s.pairs(shown), "done", "reviewed", "undo", done.Before)...))
}

// reviewed is what the page says of what has been reviewed.
type reviewed struct {
	All    string       // position behind all that there are; empty: there is nothing to review
	Undo   string       // position to which the last call can be undone
	Action template.URL // what forms are sent to
	Wrong  string       // why what has been reviewed is not known
}

// deadPosition returns a position as the API takes it; empty if it is none.
func deadPosition(text string) string {
	for _, r := range text {
		if (r < '0' || r > '9') && r != ':' && r != '.' {
			return ""
		}
	}
	return text[:min(len(text), 8<<10)]
}

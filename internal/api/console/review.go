package console

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"

	"github.com/waterclock/waterclock/internal/api"
)

// Letters that have been reviewed are not new: pages show, count and resend the new ones, unless they are asked for
// others.

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

// reviewed is what the page of dead letters needs to set marks.
type reviewed struct {
	All    string       // position behind all letters; empty: there is nothing to review
	Undo   string       // position before the last call; empty: there was none
	Action template.URL // the address to which forms are sent
	Wrong  string       // why the marks are not known; empty: they are
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

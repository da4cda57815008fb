package console

import (
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kit/span"
)

// A move makes the next occurrence of a timer due at another time.
//
// The form has the source and the due time that were shown. The source is not enough: a timer that recurs keeps it when
// it fires, and "10 minutes later" would then be counted from a time that is over. So the console reads the timer
// again, compares both, and moves it on condition that the source is still the same. If it fires between the two calls,
// the move is of its next occurrence, to the time that the caller has seen.

// snooze is a choice of a button: later by so much.
type snooze struct{ By, Label string }

func snoozes() []snooze {
	return []snooze{{"10m", "10 min"}, {"1h", "1 h"}, {dayLater, "1 day, same time"}}
}

// dayLater is the choice of the same time of the clock a day later.
const dayLater = "1d"

// snoozeForm has the choices of a move.
type snoozeForm struct {
	Zone    string
	Action  template.URL
	Source  string
	Due     int64  // as shown, Unix ms
	List    string // the query of the list to go back to; empty: the timer's page
	At      string // the time, as it was typed
	Wrong   *api.Problem
	Choices []snooze
}

func (v *visit) snoozeForm(topic, id string, t *api.Timer) snoozeForm {
	return snoozeForm{Zone: v.Zone(), Action: link("/timer", "topic", topic, "id", id), Source: t.Source,
		Due: t.DueMillis, Choices: snoozes()}
}

// movePage is the page of the choices.
type movePage struct {
	ID    string
	T     *api.Timer
	Form  snoozeForm
	Back  template.URL
	Wrong *api.Problem
}

// moveAsk shows the choices, for a timer of a list.
func (v *visit) moveAsk(topic, id string, t *api.Timer, typed snoozeForm) error {
	p := &movePage{ID: id, T: t, Form: v.snoozeForm(topic, id, t), Wrong: typed.Wrong}
	p.Form.At, p.Form.List, p.Back = typed.At, typed.List, p.Form.Action
	if typed.List != "" {
		p.Back = listOf(typed.List)
	}
	return v.show(p.Wrong, "move", "Snooze", p)
}

// listOf returns the address of a list of timers with a search.
func listOf(query string) template.URL {
	q, err := url.ParseQuery(query)
	if err != nil {
		return "/timers"
	}
	return link("/timers", pairsOf(q)...)
}

// later returns the time that a choice stands for. A timer that is overdue is moved from now on.
func later(by string, due, now time.Time) (time.Time, error) {
	due = due.In(now.Location())
	if by == dayLater {
		if due.Before(now) {
			year, month, day := now.Date()
			due = time.Date(year, month, day, due.Hour(), due.Minute(), due.Second(), due.Nanosecond(), now.Location())
		}
		return due.AddDate(0, 0, 1), nil
	}
	d, err := span.Parse(by)
	if err != nil {
		return due, fmt.Errorf("the form does not say by how much: %w", err)
	}
	if due.Before(now) {
		due = now
	}
	return due.Add(d), nil
}

// previewAge is how long the time of a move of several may be over, so that a move to now can still be confirmed. Its
// timers fire immediately, as the preview says.
const previewAge = 15 * time.Minute

// newDue reads the time of a move as it was typed. It may be over for so long.
func newDue(text string, now time.Time, over time.Duration) (time.Time, error) {
	at, err := parseWhen(strings.TrimSpace(text), now)
	switch {
	case err != nil:
		return now, err
	case at == nil:
		return now, errors.New("no time is given: write one, or choose by how much")
	case at.Before(now.Add(-over)):
		return now, fmt.Errorf("%q is in the past: write a later time", text)
	}
	return *at, nil
}

// move moves a timer as a form says.
func (v *visit) move(topic, id string) error {
	form := v.r.PostForm
	typed := snoozeForm{At: form.Get("at"), List: form.Get("list")}
	shown, err := strconv.ParseInt(form.Get("due"), 10, 64)
	if err != nil || form.Get("source") == "" {
		return bad("the form does not say which timer was shown; go back to the timer's page")
	}
	t, err := v.timerOf(topic, id)
	if err != nil {
		return err
	}
	was, here := time.UnixMilli(shown).UTC(), v.now.In(v.zone)
	to, err := newDue(typed.At, here, 0)
	if by := form.Get("by"); by != "" {
		to, err = later(by, was, here)
	}
	var result *api.Result
	switch {
	case (t.Source != form.Get("source") || t.DueMillis != shown) &&
		v.may(access.Write, topic, id): // else the API says why
		typed.Wrong = v.changed(t)
	case err != nil:
		typed.Wrong = bad(err.Error())
		typed.Wrong.Title = "Not moved"
	default:
		result, typed.Wrong = v.moveTo(topic, id, form.Get("source"), to)
	}
	if typed.Wrong != nil {
		return v.moveAsk(topic, id, t, typed)
	}
	done := []string{"done", result.Outcome, "request", sourceOf(result), "was", strconv.FormatInt(shown, 10), "due",
		strconv.FormatInt(to.UnixMilli(), 10)}
	if q, err := url.ParseQuery(typed.List); err == nil && typed.List != "" {
		return v.lead(link("/timers", append(pairsOf(q), append(done, "topic", topic, "id", id)...)...))
	}
	return v.lead(link("/timer", append(done, "topic", topic, "id", id)...))
}

// changed is the problem of a timer that is not as it was shown.
func (v *visit) changed(t *api.Timer) *api.Problem {
	p := wrong(http.StatusPreconditionFailed, fmt.Sprintf(
		"it has fired, or was changed, since you looked: it is due at %s %s now. It was not moved", v.Exact(t.Due),
		v.Zone()))
	p.Title = "Not moved"
	return p
}

// moveTo moves a timer to a time, on condition that it has a source.
func (a *asker) moveTo(topic, id, source string, to time.Time) (*api.Result, *api.Problem) {
	var result api.Result
	err := a.ask(call{method: http.MethodPatch, path: []string{"topics", topic, "timers", id},
		header: http.Header{"If-Match": {strconv.Quote(source)}, "Content-Type": {"application/json"}},
		body:   api.NewTime{At: to.UTC().Format(time.RFC3339Nano)}}, &result)
	p := asConflict(err)
	if p != nil {
		p.Title = "Not moved"
	}
	return &result, p
}

// moved describes the move that led to a page.
type moved struct {
	ID       string
	Link     template.URL
	Was, Due time.Time
	Undo     *snoozeForm // nil: the old due time is over
}

// movedBy returns the move in the page's address; nil if there is none. The address may come from anyone, so it only
// has times and an ID.
func (v *visit) movedBy(topic, id string) *moved {
	was, err := strconv.ParseInt(v.query("was"), 10, 64)
	due, errDue := strconv.ParseInt(v.query("due"), 10, 64)
	if v.query("done") != "moved" || err != nil || errDue != nil || id == "" {
		return nil
	}
	m := &moved{ID: id, Link: link("/timer", "topic", topic, "id", id), Was: time.UnixMilli(was).UTC(),
		Due: time.UnixMilli(due).UTC()}
	if m.Was.After(v.now) {
		m.Undo = &snoozeForm{Action: m.Link, Source: v.query("request"), Due: due, At: iso(m.Was)}
	}
	return m
}

// bulkMove is the choice of a move of all timers that a filter chooses, or that were ticked.
type bulkMove struct {
	By, At string // as typed, one of them
	Zone   string
	Hidden []pair // the filter, for the form
	Since  string // the position of a job that is continued; empty: none is
	Ready  bool   // the choice is made, and can be confirmed
	by     time.Duration
	at     time.Time
}

// bulkMove reads the choice in the page's address, or in a form.
func (v *visit) bulkMove(get func(string) string) (*bulkMove, error) {
	m := &bulkMove{By: strings.TrimSpace(get("by")), At: strings.TrimSpace(get("at")), Since: get("since"),
		Zone: v.Zone()}
	switch {
	case m.By == "" && m.At == "":
		return m, nil
	case m.By != "" && m.At != "":
		return m, errors.New("a duration and a time are given: leave one of them empty")
	case m.At != "":
		var err error
		over := previewAge
		if m.Since != "" { // it was once to come
			over = math.MaxInt64
		}
		m.at, err = newDue(m.At, v.now.In(v.zone), over)
		m.Ready = err == nil
		return m, err
	}
	var err error
	if m.by, err = span.ParseSigned(strings.TrimPrefix(m.By, "+")); err != nil {
		return m, fmt.Errorf("%q is not a duration: write it as 1h30m, 3d or -30m", m.By)
	}
	m.Ready = true
	return m, nil
}

// parameter returns the choice as a parameter of the API.
func (b *bulkMove) parameter() (name, value string) {
	if b.At != "" {
		return "to", strconv.FormatInt(b.at.UnixMilli(), 10)
	}
	return "by", strings.TrimPrefix(b.By, "+")
}

// pairs returns the choice as parameters of the page.
func (b *bulkMove) pairs() []string {
	chosen := b.Chosen()
	return []string{"do", "move", "since", b.Since, chosen.Name, chosen.Value}
}

// Chosen returns the choice as a field of a form. A time relative to now becomes an instant.
func (b *bulkMove) Chosen() pair {
	if b.At != "" {
		return pair{"at", iso(b.at)}
	}
	return pair{"by", b.By}
}

// of returns the new due time of a timer.
func (b *bulkMove) of(t *api.Timer) time.Time {
	if b.At != "" {
		return b.at
	}
	return t.Due.Add(b.by)
}

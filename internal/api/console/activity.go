package console

import (
	"cmp"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/api"
)

// activityRows is how many events a page has, and activityLetters how many dead letters it has if the topic writes no
// events.
const activityRows, activityLetters = "100", "20"

// activityPage shows the latest events of a request topic. Its script adds new ones as they happen.
type activityPage struct {
	Topic, Prefix, From, To string
	Topics                  []string
	Kinds                   []eventKind
	Chosen                  bool // some of Kinds are on

	Rows    []activityRow
	Deleted bool         // retention has deleted older events
	Go      template.URL // the stream of the API from which the script adds events; empty: none
	Older   template.URL // empty: there are none
	Newest  template.URL
	Wrong   *api.Problem

	Off     bool // the request topic writes no events
	Letters []deadRow
	Dead    template.URL // the page of dead letters; empty: the caller may not see it
	Ends    template.URL // the page of remembered timers
}

// eventKind is a type of events.
type eventKind struct {
	Name string
	On   bool // only events of such types are shown
}

// activityRow is an event and its timer.
type activityRow struct {
	eventRow
	ID   string
	Link template.URL // empty: it has none
}

func (c *Console) activity(v *visit) error {
	p := &activityPage{From: v.query("from"), To: v.query("to")}
	var kinds []string // a form has one field for each, a link has all in one
	for _, names := range v.r.URL.Query()["type"] {
		kinds = append(kinds, strings.FieldsFunc(names, func(r rune) bool { return r == ',' })...)
	}
	for _, name := range api.EventTypes() {
		p.Kinds = append(p.Kinds, eventKind{name, slices.Contains(kinds, name)})
	}
	p.Chosen = len(kinds) > 0
	var err error
	if p.Topic, p.Topics, err = v.chosen(); err == nil && p.Topic != "" {
		p.Prefix = v.within(p.Topic, v.raw("prefix"))
		err = p.find(v, kinds)
	}
	if err != nil {
		p.Wrong = asProblem(err)
	}
	if p.Wrong != nil && p.Wrong.Reason == api.ReasonNoEvents {
		p.Off = true
		p.without(v)
		return v.show(nil, "activity", "Activity", p)
	}
	return v.show(p.Wrong, "activity", "Activity", p)
}

// find fills the page with events.
func (a *activityPage) find(v *visit, kinds []string) error {
	q, err := between(v.now.In(v.zone), "after", a.From, "before", a.To)
	if err != nil {
		return wrong(http.StatusBadRequest, err.Error())
	}
	// Times relative to now become instants, so that all pages have the same filter.
	again := []string{"topic", a.Topic, "prefix", a.Prefix, "from", asInstant(q.Get("after")), "to",
		asInstant(q.Get("before")), "type", strings.Join(kinds, ",")}
	if a.Prefix != "" {
		q.Set("prefix", a.Prefix)
	}
	if len(kinds) > 0 {
		q.Set("type", strings.Join(kinds, ","))
	}
	follow := url.Values{}
	for _, name := range []string{"prefix", "type"} {
		if q.Has(name) {
			follow[name] = q[name]
		}
	}
	cursor := v.query("cursor")
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	q.Set("limit", activityRows)
	var found api.Activity
	if err := v.ask(call{path: []string{"topics", a.Topic, "activity"}, query: q}, &found); err != nil {
		return err
	}
	for i := range found.Events {
		a.Rows = append(a.Rows, activityOf(a.Topic, &found.Events[i].TimerEvent))
	}
	a.Deleted = found.Deleted && found.Cursor == ""
	if found.Cursor != "" {
		a.Older = link("/activity", append(again, "cursor", found.Cursor)...)
	}
	switch {
	case cursor != "":
		a.Newest = link("/activity", again...)
	case a.To == "":
		follow.Set("position", found.Position)
		stream := call{path: []string{"topics", a.Topic, "events"}, query: follow}
		a.Go = template.URL(stream.target()) //nolint:gosec // escaped
	}
	return nil
}

// activityOf returns an event in words, with its timer.
func activityOf(topic string, one *api.TimerEvent) activityRow {
	row := activityRow{eventRow: eventOf(one)}
	var e struct {
		ID       string
		IDBase64 []byte
	}
	if json.Unmarshal(one.Event, &e) == nil {
		row.ID = cmp.Or(e.ID, string(e.IDBase64))
	}
	if row.ID != "" {
		row.Link = link("/timer", "topic", topic, "id", row.ID)
	}
	return row
}

// without fills the page for a topic that writes no events: with its dead letters and a link to remembered timers.
func (a *activityPage) without(v *visit) {
	a.Ends = link("/timers", "topic", a.Topic, "q", a.Prefix, "state", "remembered")
	q := url.Values{"limit": {activityLetters}}
	if a.Prefix != "" {
		q.Set("prefix", a.Prefix)
	}
	var list api.DeadLetterList
	if v.ask(call{path: []string{"topics", a.Topic, "dead-letters"}, query: q}, &list) != nil {
		return
	}
	a.Dead = link("/dead-letters", "topic", a.Topic, "prefix", a.Prefix)
	for _, d := range list.DeadLetters {
		a.Letters = append(a.Letters, rowOfDead(a.Topic, false, d))
	}
}

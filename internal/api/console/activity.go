package console

import (
	"cmp"
	"context"
	"encoding/json"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/api"
)

// activityRows is the number of events on a page; activityLetters is the number of dead letters on it if the topic
// writes no events.
const activityRows, activityLetters = "100", "20"

// activityPage shows the latest events of a request topic. Its script adds new ones live.
type activityPage struct {
	search
	Kinds  []eventKind
	Chosen bool // some of Kinds are on

	Rows    []activityRow
	Deleted bool         // retention has deleted older events
	Go      template.URL // the stream of the API from which the script adds events; empty: none
	Older   template.URL // empty: there are none
	Newest  template.URL
	Wrong   *api.Problem

	Off     bool // the request topic writes no events
	Letters []deadRow
	Dead    bool // the caller may see dead letters
}

// eventKind is a type of events.
type eventKind struct {
	Name string
	On   bool // only events of selected types are shown
}

// activityRow is an event and its timer.
type activityRow struct {
	eventRow
	ID string // empty: there is no timer
}

func (c *Console) activity(v *visit) error {
	p := &activityPage{search: v.search("prefix")}
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
	types, cursor := strings.Join(kinds, ","), v.query("cursor")
	q, err := a.filter(v.now.In(v.zone), "after", "before", "prefix", a.Prefix, "type", types, "target", a.Target)
	if err != nil {
		return err
	}
	again, follow := a.pairs(q, "type", types), maps.Clone(q)
	set(q, "cursor", cursor, "limit", activityRows)
	var found api.Activity
	if err := v.ask(call{path: []string{"topics", a.Topic, "activity"}, query: q}, &found); err != nil {
		return err
	}
	for i := range found.Events {
		a.Rows = append(a.Rows, v.activityOf(&found.Events[i].TimerEvent))
	}
	a.Deleted = found.Deleted && found.Cursor == ""
	if found.Cursor != "" {
		a.Older = link("/activity", append(again, "cursor", found.Cursor)...)
	}
	switch {
	case cursor != "":
		a.Newest = link("/activity", again...)
	case a.To == "":
		follow.Del("after")
		follow.Set("position", found.Position)
		stream := call{path: []string{"topics", a.Topic, "events"}, query: follow}
		a.Go = template.URL(stream.target()) //nolint:gosec // escaped
	}
	return nil
}

// activityOf describes an event and its timer in words.
func (c clock) activityOf(one *api.TimerEvent) activityRow {
	row := activityRow{eventRow: c.eventOf(one)}
	var e struct {
		ID       string
		IDBase64 []byte
	}
	if json.Unmarshal(one.Event, &e) == nil {
		row.ID = cmp.Or(e.ID, string(e.IDBase64))
	}
	return row
}

// without fills the page for a topic that writes no events: with its dead letters and a link to remembered timers.
func (a *activityPage) without(v *visit) {
	q := set(url.Values{"limit": {activityLetters}}, "prefix", a.Prefix)
	var list api.DeadLetterList
	if v.ask(call{path: []string{"topics", a.Topic, "dead-letters"}, query: q}, &list) != nil {
		return
	}
	a.Dead = true
	for _, d := range list.DeadLetters {
		a.Letters = append(a.Letters, rowOfDead(d))
	}
}

const (
	// eventsShown is the number of events on a timer's page.
	eventsShown = "20"
	// historyTime limits the page's wait for events.
	historyTime = 4 * time.Second
	// liveHeader marks calls by which the script of a page refreshes parts of it. None of these parts has events, so
	// they are not read from Kafka, except once when the timer is no longer pending, to show how it ended.
	liveHeader = "Waterclock-Live"
)

// events holds those of a timer, the newest first.
type events struct {
	Rows   []eventRow
	Wrong  *api.Problem // instead of Rows
	Off    bool         // the request topic writes none
	Log    api.EventLog
	Older  template.URL // the page with older ones; empty: there are none
	Newest template.URL // on a page of older events: back to the newest
	Watch  template.URL // the page that adds events live
	Go     template.URL // the API's address from which the script of that page continues
}

// Looked is the number of offsets that the page has searched.
func (e *events) Looked() int64 { return e.Log.Ends - e.Log.LookedTo }

type eventRow struct {
	At     time.Time
	Type   string
	Detail string
	// Ends describes how the timer ended; empty: it may still be pending. How has the details.
	Ends, How string
	moved     *event // the event, if it is a move
}

// movedFrom returns when the pending occurrence of a timer was due before its last move; zero: not known.
func (e *events) movedFrom(t *api.Timer) time.Time {
	if e != nil {
		for _, r := range e.Rows {
			if m := r.moved; m != nil && m.Source == t.Source && m.Occurrence == t.Occurrence {
				return time.UnixMilli(m.Due).UTC()
			}
		}
	}
	return time.Time{}
}

// ends describes the types of events that may end a timer.
var ends = map[string]string{
	"fired": "Fired", "cancelled": "Cancelled", "expired": "Expired, for it was later than it may be,",
	"undeliverable": "Became a dead letter", "completed": "Completed",
}

// history returns a page of a timer's events.
func (v *visit) history(topic, id string) *events {
	ctx, cancel := context.WithTimeout(v.r.Context(), historyTime)
	defer cancel()
	cursor := v.query("events")
	q := url.Values{"limit": {eventsShown}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	var page api.TimerEvents
	if err := v.askWithin(ctx, call{path: []string{"topics", topic, "timers", id, "events"}, query: q},
		&page); err != nil {
		p := asProblem(err)
		return &events{Wrong: p, Off: p.Reason == api.ReasonNoEvents}
	}
	e := &events{Log: page.Log}
	for _, one := range page.Events {
		e.Rows = append(e.Rows, v.eventOf(&one))
	}
	if page.Cursor != "" {
		e.Older = link("/timer", "topic", topic, "id", id, "events", page.Cursor)
	}
	switch {
	case cursor != "":
		e.Newest = link("/timer", "topic", topic, "id", id)
	case v.query("watch") != "":
		stream := call{path: []string{"topics", topic, "events"},
			query: url.Values{"id": {id}, "position": {page.Log.Position}}}
		e.Go = template.URL(stream.target()) //nolint:gosec // escaped
	default:
		e.Watch = link("/timer", "topic", topic, "id", id, "watch", "1")
	}
	return e
}

// event is an outcome event, see docs/EVENTS.md.
type event struct {
	Type       string `json:"type"`
	At         int64  `json:"at"` // Unix ms
	Occurrence int64  `json:"occurrence"`
	Lateness   int64  `json:"lateness"` // ms
	Target     string `json:"target"`
	Source     string `json:"source"`
	Request    string `json:"request"`
	Cancel     string `json:"cancel"`
	Reason     string `json:"reason"`
	Detail     string `json:"detail"`
	Due        int64  `json:"due"` // Unix ms; of a move, before it
	Pending    *struct {
		Due int64 `json:"due"` // Unix ms
	} `json:"pending"` // nil: nothing is
}

// eventOf describes an event in words. The script has the same words. An event that cannot be read, because another
// program wrote it for example, is shown as unreadable.
func (c clock) eventOf(one *api.TimerEvent) eventRow {
	var e event
	if json.Unmarshal(one.Event, &e) != nil || e.Type == "" {
		return eventRow{At: one.At, Type: "unreadable", Detail: "offset " + strconv.FormatInt(one.Offset, 10)}
	}
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+value)
		}
	}
	if e.Occurrence > 0 {
		add("occurrence ", strconv.FormatInt(e.Occurrence, 10))
	}
	row := eventRow{At: time.UnixMilli(e.At).UTC(), Type: e.Type}
	switch {
	case e.Type == "moved" && e.Pending != nil:
		add("due ", c.Exact(time.UnixMilli(e.Due))+" → "+c.Exact(time.UnixMilli(e.Pending.Due)))
		row.moved = &e
	case e.Occurrence > 0:
		add("late ", strconv.FormatInt(e.Lateness, 10)+" ms")
	}
	add("to ", e.Target)
	add("", e.Reason)
	add("", e.Detail)
	add("request ", cmp.Or(e.Request, e.Cancel, e.Source))
	row.Detail = strings.Join(parts, " · ")
	if e.Pending == nil {
		row.Ends = ends[e.Type]
	}
	switch e.Type {
	case "fired", "expired":
		row.How = strconv.FormatInt(e.Lateness, 10) + " ms late, to " + e.Target
	case "undeliverable":
		row.How = e.Reason + ", " + e.Detail
	}
	return row
}

package console

import (
	"cmp"
	"context"
	"encoding/json"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/api"
)

const (
	// eventsShown is how many events a timer's page has.
	eventsShown = "20"
	// historyTime is how long the page waits for them: it has more to say.
	historyTime = 4 * time.Second
	// liveHeader is a header of the calls by which a page's script refreshes parts of the page.
	// None of these parts has events, so for such a call they are not read from Kafka: but once, to say
	// what has become of a timer that is pending no more.
	liveHeader = "Waterclock-Live"
)

// events is what has happened to a timer, the newest first.
type events struct {
	Rows   []eventRow
	Wrong  *api.Problem // instead
	Off    bool         // the request topic writes none
	Log    api.EventLog
	Older  template.URL // the page with older ones; empty: there are none
	Newest template.URL // of older ones: back to the newest
	Watch  template.URL // the page that goes on with what happens
	Go     template.URL // of the API: where the script of that page goes on
}

// Looked is how many offsets the page has looked at.
func (e *events) Looked() int64 { return e.Log.Ends - e.Log.LookedTo }

type eventRow struct {
	At     time.Time
	Type   string
	Detail string
	// Ends says in words what left nothing pending; empty: something may be. How says more.
	Ends, How string
}

// ends are the types of events that may leave nothing pending, in words.
var ends = map[string]string{
	"fired": "Fired", "cancelled": "Cancelled", "expired": "Expired, for it was later than it may be,", "undeliverable": "Became a dead letter", "completed": "Completed",
}

// history is a page of what has happened to a timer.
func (v *visit) history(topic, id string) *events {
	ctx, cancel := context.WithTimeout(v.r.Context(), historyTime)
	defer cancel()
	cursor := v.query("events")
	q := url.Values{"limit": {eventsShown}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	var page api.TimerEvents
	if err := v.askWithin(ctx, call{path: []string{"topics", topic, "timers", id, "events"}, query: q}, &page); err != nil {
		p := asProblem(err)
		return &events{Wrong: p, Off: p.Reason == api.ReasonNoEvents}
	}
	e := &events{Log: page.Log}
	for _, one := range page.Events {
		e.Rows = append(e.Rows, eventOf(&one))
	}
	if page.Cursor != "" {
		e.Older = link("/timer", "topic", topic, "id", id, "events", page.Cursor)
	}
	switch {
	case cursor != "":
		e.Newest = link("/timer", "topic", topic, "id", id)
	case v.query("watch") != "":
		stream := call{path: []string{"topics", topic, "events"}, query: url.Values{"id": {id}, "position": {page.Log.Position}}}
		e.Go = template.URL(stream.target()) //nolint:gosec // escaped
	default:
		e.Watch = link("/timer", "topic", topic, "id", id, "watch", "1")
	}
	return e
}

// event is an outcome event, see docs/FORMAT.md.
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
	Pending    any    `json:"pending"` // nil: nothing is
}

// eventOf is an event in words; the script has the same ones. One that cannot be read, of
// another program for instance, is shown as that.
func eventOf(one *api.TimerEvent) eventRow {
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
		add("late ", strconv.FormatInt(e.Lateness, 10)+" ms")
	}
	add("to ", e.Target)
	add("", e.Reason)
	add("", e.Detail)
	add("request ", cmp.Or(e.Request, e.Cancel, e.Source))
	row := eventRow{At: time.UnixMilli(e.At).UTC(), Type: e.Type, Detail: strings.Join(parts, " · ")}
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

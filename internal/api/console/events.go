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
	// historyTime is how long the page waits for events.
	historyTime = 4 * time.Second
	// liveHeader marks calls by which the script of a page refreshes parts of it. None of these parts has events, so
	// they are not read from Kafka, except once when the timer is no longer pending, to say how it ended.
	liveHeader = "Waterclock-Live"
)

// events are those of a timer, the newest first.
type events struct {
	Rows   []eventRow
	Wrong  *api.Problem // instead of Rows
	Off    bool         // the request topic writes none
	Log    api.EventLog
	Older  template.URL // the page with older ones; empty: there are none
	Newest template.URL // on a page of older events: back to the newest
	Watch  template.URL // the page that adds events as they happen
	Go     template.URL // the API's address from which the script of that page continues
}

// Looked is how many offsets the page has looked at.
func (e *events) Looked() int64 { return e.Log.Ends - e.Log.LookedTo }

type eventRow struct {
	At     time.Time
	Type   string
	Detail string
	// Ends says in words how the timer ended; empty: it may still be pending. How says more.
	Ends, How string
}

// ends has, in words, the types of events by which a timer may end.
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
		e.Rows = append(e.Rows, eventOf(&one))
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
	Pending    any    `json:"pending"` // nil: nothing is
}

// eventOf returns an event in words. The script has the same words. An event that cannot be read, because another
// program wrote it for example, is shown as unreadable.
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

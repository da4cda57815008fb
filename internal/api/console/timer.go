package console

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

const nextShown = 10

// action is the effect of a button on a timer.
type action struct {
	Do, Label string
	Done      string // the outcome, in words
	Question  string
	Many      string // the question about many
	Danger    bool
	method    string
	segment   string
}

// Verb is the label without its noun.
func (a *action) Verb() string { return strings.TrimSuffix(a.Label, " timer") }

func actions() []action {
	return []action{
		{"pause", "Pause", "paused", "It stays pending and does not fire until it is resumed.",
			"They stay pending and do not fire until they are resumed.", false, http.MethodPost, "pause"},
		{"resume", "Resume", "resumed", "It fires when it is due, or immediately if that is past.",
			"They fire when they are due, or immediately if that is past.", false, http.MethodPost, "resume"},
		{"trigger", "Fire now", "triggered", "It fires now. One that recurs goes on as if nothing had been.", "",
			false, http.MethodPost, "trigger"},
		{"move", "Move timer", "moved", "",
			"Each fires at the new time. Of one that recurs only the next occurrence moves.", false, "", ""},
		{"cancel", "Cancel timer", "cancelled", "It will not fire. This cannot be taken back.",
			"They will not fire. This cannot be taken back.", true, http.MethodDelete, ""},
	}
}

func actionOf(do string) *action {
	for _, a := range actions() {
		if a.Do == do {
			return &a
		}
	}
	return nil
}

type timerPage struct {
	Topic, ID string
	T         *api.Timer
	Labels    []labelLink  // each leads to the list of timers with that label
	List      template.URL // the list that led here; empty: none did
	Key       *shown
	Payload   shown
	As        string // the form of the payload: empty, with JSON indented; raw, unchanged; hex, as bytes
	IsJSON    bool
	Raw       *string // the text for Copy; nil: the payload is not text, or not complete
	Commands  []command
	NoCommand string // the reason why a command is missing
	Headers   []headerRow
	Next      []time.Time
	NextClock clock // of a timer with a zone of its own: that zone
	NextNote  string
	Words     string                // its cron expression in words
	Pace      *route.DeferredTarget // the rate for which it waits; nil: not known
	NextWrong *api.Problem
	Actions   []action
	Snooze    *snoozeForm // nil: the caller may not move it
	Moved     *moved      // the move that led here; nil: none did
	MovedFrom time.Time   // when it was due before the last move; zero: not known
	Done      string      // the outcome of the form that led here
	Over      *over       // nothing is pending, which is not an error
	Wrong     *api.Problem
	Events    *events    // nil: they were not requested
	Views     []viewLink // other ways to show the payload
}

type headerRow struct {
	Name  string
	Value shown
}

type viewLink struct{ As, Label string }

type actionLink struct {
	action
	Link template.URL
}

func (c *Console) timer(v *visit) error {
	topic, id := v.query("topic"), v.raw("id")
	if topic == "" || id == "" {
		return bad("the address of a timer's page has topic and id; find the timer on the page of timers")
	}
	t, err := v.timerOf(topic, id)
	if do := actionOf(v.query("do")); do != nil && err == nil {
		if do.Do == "move" {
			_, list, _ := strings.Cut(string(v.list()), "?")
			return v.moveAsk(topic, id, t, snoozeForm{List: list})
		}
		return v.show(nil, "confirm", do.Label, &confirmPage{*do, t, id, topic})
	}
	p := &timerPage{Topic: topic, ID: id, As: v.query("as")}
	p.Moved = v.movedBy(topic, id)
	p.Done, p.List = doneWords(v.query("done"), v.query("request")), v.list()
	gone := err != nil && asProblem(err).Reason == api.ReasonNotFound
	if v.r.Header.Get(liveHeader) == "" || gone {
		p.Events = v.history(topic, id)
	}
	if err == nil {
		p.fill(v, t)
		return v.show(nil, "timer", "Timer", p)
	}
	p.Wrong = asProblem(err)
	if gone {
		p.Over = overOf(topic, p.Events)
	}
	if p.Done != "" && p.Wrong.Status == http.StatusNotFound {
		return v.show(nil, "timer", "Timer", p) // as the caller wanted
	}
	return v.show(p.Wrong, "timer", "Timer", p)
}

// timerOf reads a timer.
func (a *asker) timerOf(topic, id string) (*api.Timer, error) {
	var t api.Timer
	err := a.ask(call{path: []string{"topics", topic, "timers", id}}, &t)
	if err == nil && t.Source == "" {
		err = wrong(http.StatusNotFound, "a timer of the ID "+id+
			" cannot be got over the API, which has something else at its path; the list of timers has it")
	}
	return &t, err
}

// list returns the address of the list of timers from which the browser came, with its search; empty: from elsewhere.
func (v *visit) list() template.URL {
	from, err := url.Parse(v.r.Referer())
	if err != nil || from.Host != v.r.Host || from.Path != "/timers" {
		return ""
	}
	return template.URL("/timers?" + from.Query().Encode()) //nolint:gosec // escaped
}

// over describes how a timer that is no longer pending ended.
type over struct {
	What string
	At   time.Time // zero: not known
	How  string
	Note string
}

// overOf describes the newest event that ended a timer.
func overOf(topic string, e *events) *over {
	switch {
	case e.Off:
		return &over{What: "Nothing is pending", Note: "Whether it has fired is not known, for " + topic +
			" writes no events."}
	case e.Wrong != nil:
		return &over{What: "Nothing is pending", Note: "What has become of it could not be read."}
	}
	for _, r := range e.Rows {
		if r.Ends != "" {
			return &over{What: r.Ends, At: r.At, How: r.How}
		}
	}
	if len(e.Rows) == 0 && e.Older == "" {
		return &over{What: "Nothing is pending", Note: "The events that are there have nothing of this ID."}
	}
	return &over{What: "Nothing is pending", Note: "What has become of it is not among the events below."}
}

// fill shows a timer.
func (tp *timerPage) fill(v *visit, t *api.Timer) {
	tp.T = t
	tp.Labels = labelLinks(t.Labels, func(label string) template.URL {
		return link("/timers", "topic", tp.Topic, "label", label)
	})
	if t.Payload != nil {
		tp.payload(t.Payload)
	}
	if t.Target.Key != nil || t.Target.KeyBase64 != nil {
		key := show(t.Target.Key, t.Target.KeyBase64, false, false)
		tp.Key = &key
	}
	for _, h := range t.Headers {
		tp.Headers = append(tp.Headers, headerRow{h.Name, show(h.Value, h.ValueBase64, h.ValueNull, false)})
	}
	tp.Next, tp.Words, tp.NextNote, tp.NextWrong = v.next(t)
	tp.NextClock = v.clock
	if t.Recurrence != nil && (t.Recurrence.Cron != "" || t.Recurrence.Zone != "") {
		if zone, err := calendar.LoadZone(t.Recurrence.Zone); err == nil {
			tp.NextClock = clock{zone: zone}
		}
	}
	if t.State == "deferred" {
		tp.Pace = v.pace(t)
	}
	tp.Commands, tp.NoCommand = v.commands(t)
	tp.MovedFrom = tp.Events.movedFrom(t)
	if !v.may(access.Write, tp.Topic, tp.ID) {
		return
	}
	form := v.snoozeForm(tp.Topic, tp.ID, t)
	tp.Snooze = &form
	tp.Actions = slices.DeleteFunc(actions(), func(a action) bool {
		return a.Do == "move" || a.Do == "pause" && t.State == "paused" || a.Do == "resume" && t.State != "paused"
	})
}

// payload fills in the payload in the form p.As, and links to the other forms.
func (tp *timerPage) payload(from *api.Payload) {
	tp.Payload = show(from.Text, from.Base64, from.Null, tp.As == "hex")
	if from.Text == nil || from.Bytes == 0 {
		return
	}
	indented, isJSON := pretty(*from.Text)
	if isJSON && tp.As == "" {
		tp.Payload.Text, tp.IsJSON = indented, true
	}
	if tp.Payload.Cut == 0 || tp.As == "hex" && from.Bytes <= maxText {
		tp.Raw = from.Text
	}
	all := []viewLink{{"", "Show as text"}, {"hex", "Show as bytes"}}
	if isJSON {
		all = []viewLink{{"", "Show as JSON"}, {"raw", "Show as it is"}, {"hex", "Show as bytes"}}
	}
	tp.Views = slices.DeleteFunc(all, func(l viewLink) bool { return l.As == tp.As })
}

// next returns the next occurrences, a cron expression in words, and a note on the occurrences.
func (a *asker) next(t *api.Timer) (next []time.Time, words, note string, wrong *api.Problem) {
	next = []time.Time{t.Due}
	r := t.Recurrence
	if r == nil {
		return next, "", "", nil
	}
	if r.Jitter != "" {
		note = "Each but the first is delayed by a part of the jitter."
	}
	// The schedule of one that was moved goes on from where it has the occurrence, behind all that the move passes.
	base, from := t.Due, t.DueMillis
	if isMoved(t) {
		base, from = *t.Scheduled, max(from, t.Scheduled.UnixMilli())
		note = strings.TrimSpace("The first was moved. Those that it passes are missed: " + r.CatchUp + ". " + note)
	}
	if r.Cron != "" || r.Zone != "" || len(t.NotOn) > 0 {
		var found api.Occurrences
		q := upcoming(r.Cron, r.Every, r.Zone, "", "", nextShown-1)
		exclude(q, strings.Join(t.NotOn, ","), t.Shift)
		q.Set("from", strconv.FormatInt(from, 10))
		if r.Start != nil {
			q.Set("at", r.Start.Format(time.RFC3339Nano))
		}
		err := a.ask(call{path: []string{"next"}, query: q}, &found)
		if err != nil {
			return next, "", note, asProblem(err)
		}
		next, words = append(next, found.Next...), found.Explanation
	} else if every, err := span.Parse(r.Every); err == nil && every > 0 {
		if passed := t.Due.Sub(base); passed > 0 {
			base = base.Add(passed / every * every)
		}
		for i := range time.Duration(nextShown - 1) {
			next = append(next, base.Add((i+1)*every))
		}
	}
	return ending(next, t), words, note, nil
}

// ending leaves out occurrences after the end of the recurrence.
func ending(next []time.Time, t *api.Timer) []time.Time {
	for i, at := range next {
		past := t.Recurrence.Until != nil && at.After(*t.Recurrence.Until)
		over := t.Recurrence.Count > 0 && t.Occurrence+int64(i) > t.Recurrence.Count
		if i > 0 && (past || over) {
			return next[:i]
		}
	}
	return next
}

type confirmPage struct {
	Action    action
	T         *api.Timer
	ID, Topic string
}

// steer does the action that was confirmed.
func (c *Console) steer(v *visit) error {
	topic, id := v.query("topic"), v.raw("id")
	do := actionOf(v.r.PostForm.Get("do"))
	if do == nil || topic == "" || id == "" {
		return bad("the form does not say what to do with which timer; go back to the timer's page")
	}
	if do.Do == "move" {
		return v.move(topic, id)
	}
	result, wrong := v.steer(do, topic, id, v.r.PostForm.Get("source"))
	if wrong != nil {
		return wrong
	}
	return v.redirect(topic, id, result)
}

// steer changes a timer. If a source is given, the timer must still have it.
func (a *asker) steer(do *action, topic, id, source string) (*api.Result, *api.Problem) {
	path := []string{"topics", topic, "timers", id}
	if do.segment != "" {
		path = append(path, do.segment)
	}
	header := http.Header{}
	if source != "" {
		header.Set("If-Match", strconv.Quote(source))
	}
	var result api.Result
	err := a.ask(call{method: do.method, path: path, header: header}, &result)
	return &result, asConflict(err)
}

// asConflict converts an error to a problem. It adds a hint if the timer has changed since the page was shown.
func asConflict(err error) *api.Problem {
	if err == nil {
		return nil
	}
	p := asProblem(err)
	if p.Reason == api.ReasonConditionNotMet {
		p.Detail += ". It has fired, or was changed, since you looked: go back to its page and look again"
	}
	return p
}

func (v *visit) redirect(topic, id string, r *api.Result) error {
	at := sourceOf(r)
	to := link("/timer", "topic", topic, "id", id, "done", r.Outcome, "request", at)
	if v.isDelay(topic) {
		to = link("/dead-letters", "topic", topic, "done", "delayed", "request", at)
	}
	return v.lead(to)
}

// sourceOf returns where a request is in the log.
func sourceOf(r *api.Result) string {
	return waterclock.Source{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}.String()
}

// doneWords describes the effect of a request. The page's address may come from anyone, so nothing of it is shown
// literally.
func doneWords(outcome, request string) string {
	words := map[string]string{
		"scheduled": "Scheduled.", "replaced": "Scheduled again: it replaced the pending timer.",
		"cancelled": "Cancelled.", "triggered": "It fires now.", "paused": "Paused.", "resumed": "Resumed.",
		"completed": "Resumed, and nothing of it was left to fire.",
		"unchanged": "It was so already: nothing has changed.",
		"reviewed":  "Marked as reviewed.",
		"delayed":   "Sent again: it is passed on after the delay of its topic, counted from now.",
		"written":   "The request is in the log; its outcome is not known here yet. Look again in a moment.",
	}[outcome]
	if source, err := waterclock.ParseSource(request); words != "" && err == nil {
		words += " Request " + source.String() + "."
	}
	return words
}

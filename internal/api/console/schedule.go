package console

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
)

// timerType makes the API read a body as a timer, instead of as the payload.
const timerType = "application/vnd.waterclock.timer+json"

// form is the content of a timer's form, as it was typed.
type form struct {
	Topic, ID                              string
	After, At, Every, Cron, Zone           string
	Until, Count, Jitter, CatchUp, MaxLate string
	NotOn, Shift, Remember                 string
	Labels, LabelsHeader                   string // Labels: NAME=VALUE, with commas between them
	Target, TargetKey, TargetPartition     string
	Payload, As/* text, base64 or null */ string
	Headers /* NAME: VALUE, one a line */, If string

	Source string // of the timer that is edited; empty: a new one
	Kept   string // its parts that the form does not show, see kept

	Scheduled, Due time.Time // if it was moved: where its schedule has the next occurrence, and where that is now
}

func formOf(get func(string) string) form {
	line := func(name string) string { return strings.TrimSpace(get(name)) }
	return form{
		Topic: line("topic"), ID: get("id"), After: line("after"), At: line("at"), Every: line("every"),
		Cron: line("cron"), Zone: line("zone"),
		NotOn: line("not-on"), Shift: line("shift"), Remember: line("remember"),
		Labels: line("labels"), LabelsHeader: line("labels-header"),
		Until: line("until"), Count: line("count"), Jitter: line("jitter"), CatchUp: line("catch-up"),
		MaxLate: line("max-late"),
		Target:  line("target"), TargetKey: get("target-key"), TargetPartition: line("target-partition"),
		Payload: get("payload"), As: line("as"), Headers: get("headers"), If: line("if"),
		Source: line("source"), Kept: line("kept"),
	}
}

type schedulePage struct {
	form
	Topics    []string
	Wrong     *api.Problem // why it was not scheduled
	Explained *explained
}

// fault is what is wrong with a field of the form.
type fault struct{ Field, Says string }

// Fault returns nil if nothing is wrong with a field, or if the problem is not about one field.
func (sp *schedulePage) Fault(field string) *fault {
	if sp.Wrong == nil || field != faultyField(sp.Wrong) {
		return nil
	}
	return &fault{field, sp.Wrong.Detail}
}

// Marks returns the attributes by which a browser tells that a field is at fault, and why.
func (sp *schedulePage) Marks(field string) template.HTMLAttr {
	if sp.Fault(field) == nil {
		return ""
	}
	return template.HTMLAttr(`aria-invalid="true" aria-describedby="` + field + `-fault"`) //nolint:gosec // constants
}

// faultyField returns the name of the form's field that a problem is about; empty: it may be about several.
func faultyField(p *api.Problem) string {
	switch waterclock.Reason(p.Reason) {
	case waterclock.ReasonBadLabels:
		if strings.Contains(p.Detail, waterclock.HeaderLabelsHeader) {
			return "labels-header"
		}
		return "labels"
	case waterclock.ReasonBadRemember:
		return "remember"
	case waterclock.ReasonBadJitter:
		return "jitter"
	case waterclock.ReasonBadMaxLate:
		return "max-late"
	case waterclock.ReasonBadUntil, waterclock.ReasonUntilBeforeFirst:
		return "until"
	case waterclock.ReasonBadNotOn, waterclock.ReasonUnknownCalendar:
		return "not-on"
	case waterclock.ReasonNoTarget, waterclock.ReasonBadTarget, waterclock.ReasonTargetNotAllowed:
		return "target"
	}
	return ""
}

// explained is a cron expression in words.
type explained struct {
	api.Occurrences
	Wrong *api.Problem
}

// scheduleForm shows the form, filled in from the address. It explains cron and zone; the script of the page fetches
// the explanation again while the user types.
func (c *Console) scheduleForm(v *visit) error {
	if v.query("edit") == "" {
		return v.form(formOf(v.raw), nil)
	}
	t := &api.Timer{}
	err := v.ask(call{path: []string{"topics", v.query("topic"), "timers", v.raw("id")}}, t)
	if err == nil && t.ID == "" {
		err = bad("the ID of this timer is no text, which no form takes: schedule it again over the API")
	}
	if err != nil {
		return err
	}
	return v.form(formOfTimer(t), nil)
}

// form shows the form.
func (v *visit) form(f form, wrong *api.Problem) error {
	p := &schedulePage{form: f, Wrong: wrong}
	topic, names, err := v.chosen()
	if err != nil && wrong == nil {
		p.Wrong = asProblem(err)
	}
	p.Topic, p.Topics = topic, names
	p.Explained = v.explain(&f)
	title := "Schedule"
	if f.Source != "" {
		title = "Edit timer"
	}
	return v.show(p.Wrong, "schedule", title, p)
}

// explain returns nil if there is neither a recurrence nor a due time with jitter or calendars.
func (a *asker) explain(f *form) *explained {
	if f.Cron == "" && f.Every == "" && (f.At == "" || f.Jitter == "" && f.NotOn == "") {
		return nil
	}
	e := &explained{}
	q := upcoming(f.Cron, f.Every, f.Zone, f.At, f.Jitter, 5)
	exclude(q, f.NotOn, f.Shift)
	err := a.ask(call{path: []string{"next"}, query: q}, &e.Occurrences)
	if err != nil {
		e.Wrong = asProblem(err)
	}
	return e
}

// upcoming returns the query for the next n occurrences of a recurrence.
func upcoming(cron, every, zone, at, jitter string, n int) url.Values {
	q := url.Values{"n": {strconv.Itoa(n)}}
	for name, value := range map[string]string{"cron": cron, "every": every, "zone": zone, "at": at,
		"jitter": jitter} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// exclude adds calendars to the query for occurrences.
func exclude(q url.Values, notOn, shift string) {
	if notOn != "" {
		q.Set("not-on", notOn)
	}
	if shift != "" {
		q.Set("shift", shift)
	}
}

// schedule writes the timer, or shows the form again.
func (c *Console) schedule(v *visit) error {
	f := formOf(v.r.PostForm.Get)
	if v.r.PostForm.Get("do") == "explain" {
		return v.form(f, nil)
	}
	made, err := f.timer()
	if err != nil {
		p, ok := errors.AsType[*api.Problem](err)
		if !ok {
			p = bad(err.Error())
		}
		p.Title = "Not scheduled"
		return v.form(f, p)
	}
	var result api.Result
	err = v.ask(call{
		method: http.MethodPut, path: []string{"topics", f.Topic, "timers", f.ID},
		header: http.Header{"Content-Type": {timerType}}, body: made,
	}, &result)
	if err != nil {
		p := asProblem(err)
		if f.Source != "" {
			p = asConflict(err)
		}
		return v.form(f, p)
	}
	return v.redirect(f.Topic, f.ID, &result)
}

// timer returns the timer that the form describes. It rejects only values that the API cannot express.
func (f *form) timer() (*api.NewTimer, error) {
	if f.ID == "" || f.Topic == "" {
		return nil, fmt.Errorf("a timer needs an ID and a request topic: fill them in")
	}
	n := &api.NewTimer{
		At: f.At, After: f.After, Every: f.Every, Cron: f.Cron, Zone: f.Zone, Until: f.Until, Jitter: f.Jitter,
		CatchUp: f.CatchUp, MaxLate: f.MaxLate, If: f.If, Target: &api.Target{Topic: f.Target}, Shift: f.Shift,
		Remember: f.Remember, LabelsHeader: f.LabelsHeader,
	}
	if f.NotOn != "" {
		n.NotOn = strings.Split(f.NotOn, ",")
	}
	labels, fault := timer.ParseLabels(f.Labels)
	if f.Labels != "" && fault != "" {
		return nil, &api.Problem{Problem: *access.NewProblem(http.StatusBadRequest, string(waterclock.ReasonBadLabels),
			fmt.Sprintf("labels: %s: write NAME=VALUE, with commas between them", fault))}
	}
	n.Labels = labels.Map()
	var err error
	if f.Count != "" {
		if n.Count, err = strconv.ParseInt(f.Count, 10, 64); err != nil || n.Count < 1 {
			return nil, fmt.Errorf("number of occurrences: %q is not a whole number from 1", f.Count)
		}
	}
	if f.TargetPartition != "" {
		p, err := strconv.ParseInt(f.TargetPartition, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("partition of the target: %q is not a number", f.TargetPartition)
		}
		n.Target.Partition = new(int32(p))
	}
	if f.TargetKey != "" {
		n.Target.Key = &f.TargetKey
	}
	if n.Headers, err = f.headers(); err != nil {
		return nil, err
	}
	k, err := parseKept(f.Kept)
	if err != nil {
		return nil, err
	}
	n.Headers = append(n.Headers, k.Headers...)
	if f.TargetKey == "" {
		n.Target.KeyNull, n.Target.KeyBase64 = k.KeyNull, k.KeyBase64
	}
	return n, f.payload(n)
}

func (f *form) payload(n *api.NewTimer) error {
	switch f.As {
	case "null":
		if f.Payload != "" {
			return fmt.Errorf("the payload is to be null and has text: take the text away, or choose text")
		}
		n.ValueNull = true
	case "base64":
		b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(f.Payload), ""))
		if err != nil {
			return fmt.Errorf("the payload is not base64 (%w): choose text if it is text", err)
		}
		n.ValueBase64 = b
	default:
		text := lines10(f.Payload)
		n.Value = &text
	}
	return nil
}

// lines10 ends lines with a line feed. Browsers send CR LF.
func lines10(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

func (f *form) headers() (all []api.Header, err error) {
	for _, l := range strings.Split(lines10(f.Headers), "\n") {
		if strings.TrimSpace(l) == "" {
			continue
		}
		name, value, ok := strings.Cut(l, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("header %q: write NAME: VALUE, one a line", l)
		}
		value = strings.TrimPrefix(value, " ")
		all = append(all, api.Header{Name: name, Value: &value})
	}
	return all, nil
}

// kept holds the parts of a timer for which the form has no field. They pass through the form in a hidden one. A
// browser sends them, so they are limited like a body of the API.
type kept struct {
	Headers   api.Headers `json:"headers,omitempty"` // those that are not a line of text
	KeyNull   bool        `json:"keyNull,omitempty"`
	KeyBase64 []byte      `json:"keyBase64,omitempty"`
}

// maxKept limits kept as text, in bytes. The headers of a timer have up to 64 KiB, and up to eight times that as JSON
// in base64.
const maxKept = 1 << 20

func (k *kept) encode() string {
	if len(k.Headers) == 0 && !k.KeyNull && k.KeyBase64 == nil {
		return ""
	}
	text, _ := json.Marshal(k) // strings, bytes and a bool can be encoded
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseKept(text string) (k kept, err error) {
	if text == "" {
		return k, nil
	}
	if len(text) > maxKept {
		return k, errors.New("the form is not whole, and too large: load the page again")
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		return k, errors.New("the form is not whole: load the page again")
	}
	return k, nil
}

// Keeps lists, in words, the parts of the timer that the form does not show.
func (f *form) Keeps() (all []string) {
	k, err := parseKept(f.Kept)
	if err != nil {
		return nil
	}
	for _, h := range k.Headers {
		all = append(all, "the header "+strconv.QuoteToASCII(h.Name))
	}
	switch {
	case k.KeyNull:
		all = append(all, "that its emission has no key")
	case k.KeyBase64 != nil:
		all = append(all, "the key of its emission, which is no text")
	}
	return all
}

// scheduledAt returns the time to schedule a timer again for. It is without jitter: the new timer has its own.
func scheduledAt(t *api.Timer) string {
	return cmp.Or(t.Scheduled, &t.Due).UTC().Format(time.RFC3339Nano)
}

// formOfTimer returns the form of a pending timer. If it is sent unchanged it schedules the same timer again: with
// the same next occurrence, and as many further ones as are left.
func formOfTimer(t *api.Timer) (f form) {
	f = form{NotOn: strings.Join(t.NotOn, ","), Shift: t.Shift, Remember: t.Remember,
		Topic: t.Topic, ID: t.ID, Target: t.Target.Topic, MaxLate: t.MaxLate, As: asText, If: t.Source,
		Source: t.Source}
	at := scheduledAt(t)
	if r := t.Recurrence; r != nil {
		f.Cron, f.Zone, f.Jitter, f.CatchUp = r.Cron, r.Zone, r.Jitter, r.CatchUp
		if r.Until != nil {
			f.Until = r.Until.UTC().Format(time.RFC3339Nano)
		}
		var count int64
		if f.Every, count = r.Again(t.Occurrence); count > 0 {
			f.Count = strconv.FormatInt(count, 10)
		}
		if r.Every != "" || r.Start != nil {
			f.At = at
		}
		if isMoved(t) {
			f.Scheduled, f.Due = *t.Scheduled, t.Due
		}
	} else {
		f.At, f.Jitter = at, t.Jitter
	}
	if t.Target.Partition != nil {
		f.TargetPartition = strconv.Itoa(int(*t.Target.Partition))
	}
	k := kept{KeyNull: t.Target.KeyNull, KeyBase64: t.Target.KeyBase64}
	switch key := t.Target.Key; {
	case key == nil || *key == t.ID:
	case hasControl(*key, ""):
		k.KeyBase64 = []byte(*key)
	default:
		f.TargetKey = *key
	}
	labels, _ := timer.LabelsOf(t.Labels) // they are a timer's
	f.Labels = strings.ReplaceAll(string(labels), ",", ", ")
	headers := t.Headers
	if name := labelsHeader(headers, labels); name != "" {
		f.LabelsHeader, headers = name, headers[:len(headers)-1]
	}
	var lines []string
	for _, h := range headers {
		if h.Value == nil || hasControl(h.Name+*h.Value, "") || strings.ContainsAny(h.Name, ":") ||
			strings.TrimSpace(h.Name) != h.Name {
			k.Headers = append(k.Headers, h)
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s", h.Name, *h.Value))
	}
	f.Headers, f.Kept = strings.Join(lines, "\n"), k.encode()
	if p := t.Payload; p != nil {
		f.Payload, f.As = inField(p.Text, p.Base64, p.Null, "\n\t")
	}
	return f
}

// isMoved reports whether a request has moved the next occurrence of a timer that recurs away from its schedule: if the
// difference is no jitter. With calendars it may be theirs.
func isMoved(t *api.Timer) bool {
	if t.Recurrence == nil || t.Scheduled == nil || len(t.NotOn) > 0 {
		return false
	}
	jitter, _ := span.Parse(t.Recurrence.Jitter) // 0 if there is none
	return t.Due.Before(*t.Scheduled) || t.Due.Sub(*t.Scheduled) > jitter
}

// labelsHeader returns the name of the header that labels were put into, see timer-labels-header; empty: there is none.
// A timer has it behind its other headers. If the form changes the labels, the header changes with them.
func labelsHeader(headers []api.Header, labels timer.Labels) string {
	if len(headers) == 0 || labels == "" {
		return ""
	}
	last := headers[len(headers)-1]
	if last.Value == nil || *last.Value != string(labels) || strings.TrimSpace(last.Name) != last.Name ||
		hasControl(last.Name, "") || timer.LabelsHeaderFault(last.Name) != "" {
		return ""
	}
	return last.Name
}

package api

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

const (
	// jsonType, and timerType with the same meaning, are the media types of a timer as JSON, in the body of a PUT.
	// Any other body is the payload.
	jsonType, timerType = "application/json", "application/vnd.waterclock.timer+json"
	// passHeader names, in HTTP, a header that is to be passed on.
	passHeader = "Waterclock-Pass"
)

// NewTimer is a timer to be scheduled, as JSON. Times and durations have the form of the request headers, as text.
// They are not validated here.
type NewTimer struct {
	ID       string `json:"id,omitempty" doc:"In a POST: ID of the timer; if absent, one is made."`
	IDBase64 []byte `json:"idBase64,omitempty" doc:"In a POST: the ID in base64, instead of id."`

	Value       *string `json:"value,omitempty" doc:"Payload as text."`
	ValueBase64 []byte  `json:"valueBase64,omitempty" doc:"Payload in base64, instead of value."`
	ValueNull   bool    `json:"valueNull,omitempty" doc:"The payload is Kafka's null: the timer emits a tombstone."`

	At       string   `json:"at,omitempty" doc:"timer-at: due then, or recurs from then on; RFC 3339 with a zone or Unix milliseconds."`
	After    string   `json:"after,omitempty" doc:"timer-after: due this long from now, as in 90s or 1h30m."`
	Every    string   `json:"every,omitempty" doc:"timer-every: recurs at that interval, or with zone after that period, as in P1M."`
	Cron     string   `json:"cron,omitempty" doc:"timer-cron: recurs when the clock matches."`
	Zone     string   `json:"zone,omitempty" doc:"timer-zone: IANA name of the time zone of cron, or of a period."`
	Until    string   `json:"until,omitempty" doc:"timer-until: end of the recurrence."`
	Count    int64    `json:"count,omitempty" doc:"timer-count: number of occurrences."`
	Jitter   string   `json:"jitter,omitempty" doc:"timer-jitter: each firing is delayed by a part of it."`
	CatchUp  string   `json:"catchUp,omitempty" doc:"timer-catch-up: all, latest or none."`
	NotOn    []string `json:"notOn,omitempty" doc:"timer-not-on: names of calendars whose times are excluded."`
	Shift    string   `json:"shift,omitempty" doc:"timer-shift: skip, next or previous."`
	MaxLate  string   `json:"maxLate,omitempty" doc:"timer-max-late: later occurrences are not emitted."`
	Remember string   `json:"remember,omitempty" doc:"timer-remember: how long its ID stays taken once it has fired, as in 1h."`
	If       string   `json:"if,omitempty" doc:"timer-if: absent, present, changed, or the source of the timer that must be pending."`

	Target  *Target `json:"target,omitempty" doc:"Its target; if absent, the default target of the request topic."`
	Headers Headers `json:"headers,omitempty" doc:"Headers that are passed on, in order."`

	Labels       map[string]string `json:"labels,omitempty" doc:"timer-labels: labels to find the timer by."`
	LabelsHeader string            `json:"labelsHeader,omitempty" doc:"timer-labels-header: a header in which the emission has the labels."`

	AsShown
}

// AsShown has the fields of a shown pending timer that a new timer gives in another way. With them the response of
// GET can be sent unchanged, and means the same timer.
type AsShown struct {
	Due        *time.Time  `json:"due,omitempty" doc:"As GET shows it, instead of at; ignored for a timer with cron and no recurrence.start, and if recurrence goes on by if changed."`
	Scheduled  *time.Time  `json:"scheduled,omitempty" doc:"As GET shows it; takes precedence over due."`
	Payload    *Payload    `json:"payload,omitempty" doc:"As GET shows it, instead of value."`
	Recurrence *Recurrence `json:"recurrence,omitempty" doc:"As GET shows it, instead of every, cron, zone, until, count, jitter and catchUp."`
	State      string      `json:"state,omitempty" enum:"pending,parked,deferred" doc:"As GET shows it. A timer cannot be made paused or triggered: leave it out, and pause or trigger the timer."`
	Topic      string      `json:"topic,omitempty" doc:"As GET shows it: the topic of the path."`
	Occurrence int64       `json:"occurrence,omitempty" doc:"As GET shows it: this minus 1 is subtracted from count. The new timer's first occurrence is its number 1, except for a period, which goes on."`
	// The fields below belong to the timer that was shown, not to the new one.
	Partition *int32 `json:"partition,omitempty" doc:"As GET shows it; has no effect."`
	Source    string `json:"source,omitempty" doc:"As GET shows it; has no effect: If-Match is a condition."`
	Note      string `json:"note,omitempty" doc:"As GET shows it; has no effect."`
	DueMillis *int64 `json:"dueMillis,omitempty" doc:"As GET shows it; has no effect, because due has the same."`
}

// flat copies the fields of a shown timer to those of a new one. It fails if both give the same thing, or if a
// request cannot express a field.
func (n *NewTimer) flat(topic string) error {
	s := &n.AsShown
	switch {
	case s.Topic != "" && s.Topic != topic:
		return fmt.Errorf("topic is %.100q, and the path has %.100q: leave it out", s.Topic, topic)
	case s.State != "" && !slices.Contains([]query.State{query.Pending, query.Parked, query.Deferred},
		query.State(s.State)):
		return fmt.Errorf("state is %.20q, and a timer that is scheduled is neither paused nor triggered: leave it "+
			"out, and pause or trigger the timer then", s.State)
	case s.Payload != nil && (n.Value != nil || n.ValueBase64 != nil || n.ValueNull):
		return fmt.Errorf("payload and value are given: give one of them")
	case s.Recurrence != nil && (n.Every != "" || n.Cron != "" || n.Zone != "" || n.Until != "" || n.Count != 0 ||
		n.Jitter != "" || n.CatchUp != ""):
		return fmt.Errorf("recurrence and one of its fields outside of it are given: give one of them")
	case (s.Due != nil || s.Scheduled != nil) && (n.At != "" || n.After != ""):
		return fmt.Errorf("due, and at or after, are given: give one of them")
	}
	if p := s.Payload; p != nil {
		n.Value, n.ValueBase64, n.ValueNull = p.Text, p.Base64, p.Null
	}
	goesOn := n.If == waterclock.IfChanged && s.Recurrence != nil // the request shows a schedule that is to go on
	if r := s.Recurrence; r != nil {
		n.Every, n.Cron, n.Zone, n.Jitter, n.CatchUp = r.Every, r.Cron, r.Zone, r.Jitter, r.CatchUp
		if n.Count = r.Count; !goesOn {
			n.Every, n.Count = r.Again(s.Occurrence)
		}
		if r.Until != nil {
			n.Until = r.Until.Format(time.RFC3339Nano)
		}
	}
	// A recurrence begins again with the next occurrence.
	at := cmp.Or(s.Scheduled, s.Due)
	switch {
	case goesOn:
		at = s.Recurrence.Start
	case n.Cron != "" && (s.Recurrence == nil || s.Recurrence.Start == nil):
		at = nil
	}
	if at != nil {
		n.At = at.Format(time.RFC3339Nano)
	}
	n.AsShown = AsShown{}
	return nil
}

// request returns the record for n on a request topic. It schedules.
func (n *NewTimer) request(topic string) (route.Request, error) {
	r := route.Request{ID: []byte(n.ID)}
	if err := n.flat(topic); err != nil {
		return r, err
	}
	if n.IDBase64 != nil {
		if n.ID != "" {
			return r, fmt.Errorf("id and idBase64 are given: give one of them")
		}
		r.ID = n.IDBase64
	}
	var err error
	if r.Value, err = oneOf("value", n.Value, n.ValueBase64, n.ValueNull); err != nil {
		return r, err
	}
	if r.Value == nil && !n.ValueNull {
		r.Value = []byte{} // like an empty body
	}
	set := func(name, value string) {
		if value != "" {
			r.Headers.Add(name, value)
		}
	}
	set(waterclock.HeaderAt, n.At)
	set(waterclock.HeaderAfter, n.After)
	set(waterclock.HeaderEvery, n.Every)
	set(waterclock.HeaderCron, n.Cron)
	set(waterclock.HeaderZone, n.Zone)
	set(waterclock.HeaderUntil, n.Until)
	if n.Count != 0 {
		set(waterclock.HeaderCount, strconv.FormatInt(n.Count, 10))
	}
	set(waterclock.HeaderJitter, n.Jitter)
	set(waterclock.HeaderCatchUp, n.CatchUp)
	set(waterclock.HeaderNotOn, strings.Join(n.NotOn, ","))
	set(waterclock.HeaderShift, n.Shift)
	set(waterclock.HeaderMaxLate, n.MaxLate)
	set(waterclock.HeaderRemember, n.Remember)
	labels, fault := timer.LabelsOf(n.Labels)
	if fault != "" {
		return r, problem(http.StatusBadRequest, string(waterclock.ReasonBadLabels), "labels: %s", fault)
	}
	set(waterclock.HeaderLabels, string(labels))
	set(waterclock.HeaderLabelsHeader, n.LabelsHeader)
	set(waterclock.HeaderIf, n.If)
	if n.Target != nil {
		if err := n.Target.addTo(&r); err != nil {
			return r, err
		}
	}
	for _, h := range n.Headers {
		if err := mayPass(h.Name); err != nil {
			return r, err
		}
		header, err := h.header()
		if err != nil {
			return r, err
		}
		r.Headers = append(r.Headers, header)
	}
	return r, nil
}

// NewTime is when a timer is to be due, as JSON: one of the two.
type NewTime struct {
	At    string `json:"at,omitempty" doc:"timer-at: due then; RFC 3339 with a zone or Unix milliseconds."`
	After string `json:"after,omitempty" doc:"timer-after: due this long from now, as in 90s or 1h30m."`
}

// moving returns the request of a PATCH.
func moving(id string, header http.Header, body []byte) (route.Request, error) {
	r, err := steering(id, waterclock.HeaderMove, header)
	if err != nil {
		return r, err
	}
	to, err := decodeObject[NewTime](body)
	switch {
	case err != nil:
		return r, fmt.Errorf("body: %s; it takes after or at, and no other field", fault(err, body))
	case (to.At == "") == (to.After == ""):
		return r, fmt.Errorf("the body needs either after, as in 10m, or at")
	case to.At != "":
		r.Headers.Add(waterclock.HeaderAt, to.At)
	default:
		r.Headers.Add(waterclock.HeaderAfter, to.After)
	}
	return r, nil
}

// header returns the header as a record has it. Without a value it is empty.
func (h *Header) header() (timer.Header, error) {
	value, err := oneOf("value of header "+strconv.Quote(h.Name), h.Value, h.ValueBase64, h.ValueNull)
	if value == nil && !h.ValueNull {
		value = []byte{}
	}
	return timer.Header{Key: h.Name, Value: value}, err
}

func (t *Target) addTo(r *route.Request) error {
	if t.Topic != "" {
		r.Headers.Add(waterclock.HeaderTargetTopic, t.Topic)
	}
	if t.Partition != nil {
		r.Headers.Add(waterclock.HeaderTargetPartition, strconv.Itoa(int(*t.Partition)))
	}
	key, err := oneOf("target.key", t.Key, t.KeyBase64, t.KeyNull)
	switch {
	case err != nil:
		return err
	case t.KeyNull:
		r.Headers.Add(waterclock.HeaderTargetKeyNull, waterclock.True)
	case key != nil:
		r.Headers.Add(waterclock.HeaderTargetKey, string(key))
	}
	return nil
}

// oneOf returns bytes that are given in one of three ways; nil if they are given in none, or as null.
func oneOf(what string, text *string, base64 []byte, null bool) ([]byte, error) {
	ways := 0
	var b []byte
	if text != nil {
		ways, b = ways+1, []byte(*text)
	}
	if base64 != nil {
		ways, b = ways+1, base64
	}
	if null {
		ways++
	}
	if ways > 1 {
		return nil, fmt.Errorf("%s is given in %d ways: give one of text, base64 and null", what, ways)
	}
	return b, nil
}

// mayPass returns an error for a header that cannot be passed on, because the service reads it or writes it itself.
func mayPass(name string) error {
	if name == "" {
		return fmt.Errorf("a header that is to be passed on has no name")
	}
	for _, own := range []string{waterclock.RequestPrefix, waterclock.OwnPrefix} {
		if strings.HasPrefix(strings.ToLower(name), own) {
			return fmt.Errorf("header %q begins with %s and is not passed on: instructions to the service have "+
				"their own fields or HTTP headers", name, own)
		}
	}
	return nil
}

// fromHTTP returns the request for an ID that HTTP headers and a body describe.
func fromHTTP(topic, id string, header http.Header, body []byte) (route.Request, error) {
	r := route.Request{Value: body}
	if r.Value == nil {
		r.Value = []byte{}
	}
	if kind := header.Get("Content-Type"); isTimerType(kind) {
		if err := isUTF8(kind); err != nil {
			return r, err
		}
		n, err := decodeTimer(body)
		if err != nil {
			return r, err
		}
		if r, err = n.request(topic); err != nil {
			return r, err
		}
		if len(r.ID) > 0 && string(r.ID) != id {
			return r, fmt.Errorf("the body has another ID than the path: leave it out of the body")
		}
	}
	r.ID = []byte(id)
	if err := addHTTP(&r, header); err != nil {
		return r, err
	}
	return r, schedules(&r)
}

// schedules returns the reason why a request might not schedule: a PUT, or a timer of a POST, never cancels or
// steers, whatever its headers and body are in combination. A null value without a header about time is a cancel,
// with our own headers and in every dialect; with one of our headers about time it schedules. A request that cancels
// or steers has a header for it.
func schedules(r *route.Request) error {
	timed := false
	for _, h := range r.Headers {
		switch h.Key {
		case waterclock.HeaderCancel, waterclock.HeaderTrigger, waterclock.HeaderPause, waterclock.HeaderResume,
			waterclock.HeaderMove:
			return fmt.Errorf("%s has no effect here: a timer is cancelled by DELETE, moved by PATCH, and triggered, "+
				"paused or resumed by a POST to its path with /trigger, /pause or /resume", h.Key)
		case waterclock.HeaderAt, waterclock.HeaderAfter, waterclock.HeaderEvery, waterclock.HeaderCron:
			timed = true
		}
	}
	if r.Value == nil && !timed {
		return problem(http.StatusBadRequest, string(waterclock.ReasonNoDueTime),
			"the payload is null and nothing says when the timer is due: give at, after, every or cron; DELETE cancels")
	}
	return nil
}

func isTimerType(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.TrimSpace(media)
	return strings.EqualFold(media, jsonType) || strings.EqualFold(media, timerType)
}

// addHTTP adds the contents of the HTTP headers: headers for the service unchanged, even if misspelt or given twice,
// which the service rejects as usual; the headers to be passed on; and the conditions of HTTP.
func addHTTP(r *route.Request, header http.Header) error {
	var names []string
	for name := range header {
		if strings.HasPrefix(strings.ToLower(name), waterclock.RequestPrefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range header[name] {
			r.Headers.Add(strings.ToLower(name), value)
		}
	}
	condition, err := conditionOf(header)
	if err != nil {
		return err
	}
	if condition != "" {
		r.Headers.Add(waterclock.HeaderIf, condition)
	}
	for _, pass := range header[passHeader] {
		name, value, ok := strings.Cut(pass, "=")
		if !ok || name == "" {
			return fmt.Errorf("%s is %.40q, needs NAME=VALUE", strings.ToLower(passHeader), pass)
		}
		if err := mayPass(name); err != nil {
			return err
		}
		r.Headers.Add(name, value)
	}
	return nil
}

// conditionOf returns the value of timer-if for the conditions of HTTP; empty if there are none.
func conditionOf(header http.Header) (string, error) {
	match, none := header.Values("If-Match"), header.Values("If-None-Match")
	switch {
	case len(match)+len(none) == 0:
		return "", nil
	case len(match)+len(none) > 1:
		return "", fmt.Errorf("If-Match and If-None-Match are given %d times: give one, once", len(match)+len(none))
	case len(none) == 1 && none[0] != "*":
		return "", fmt.Errorf("If-None-Match is %.80q, needs *, which is: nothing is pending", none[0])
	case len(none) == 1:
		return waterclock.IfAbsent, nil
	case match[0] == "*":
		return waterclock.IfPresent, nil
	}
	source, ok := strings.CutPrefix(match[0], `"`)
	source, closed := strings.CutSuffix(source, `"`)
	source, _, _ = strings.Cut(source, ";") // see etag
	if _, err := waterclock.ParseSource(source); !ok || !closed || err != nil {
		return "", fmt.Errorf(`If-Match is %.80q, needs * or one ETag: a timer's source in quotes, as "timers/3/17"`,
			match[0])
	}
	return source, nil
}

// steering returns a request with one header, or with two if there is a condition.
func steering(id, name string, header http.Header) (route.Request, error) {
	r := route.Request{ID: []byte(id), Headers: []timer.Header{{Key: name, Value: []byte(waterclock.True)}}}
	for other := range header {
		if lower := strings.ToLower(other); strings.HasPrefix(lower, waterclock.RequestPrefix) &&
			lower != waterclock.HeaderIf {
			return r, fmt.Errorf("%s has no effect here: leave it out", lower)
		}
	}
	if header.Get(passHeader) != "" {
		return r, fmt.Errorf("%s has no effect here: leave it out", strings.ToLower(passHeader))
	}
	return r, addHTTP(&r, header)
}

package api

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// What each kind of operation was answered, held against the log. Errors say what is wrong.

// shownTimer is a timer as the API shows it.
type shownTimer struct {
	ID        string `json:"id"`
	Source    string `json:"source"`
	State     string `json:"state"`
	DueMillis int64  `json:"dueMillis"`
	Partition int32  `json:"partition"`
	Target    struct {
		Topic string `json:"topic"`
		Key   string `json:"key"`
	} `json:"target"`
	Payload *struct {
		Text *string `json:"text"`
		Null bool    `json:"null"`
	} `json:"payload"`
	Recurrence *struct {
		Every string `json:"every"`
	} `json:"recurrence"`
}

// shown reads a timer that an answer has, and holds it against the request that it is said to
// come from.
func (l *logged) shown(v any) (is seen, t shownTimer, err error) {
	if v == nil {
		return is, t, nil
	}
	text, _ := json.Marshal(v) // it was JSON
	if err := json.Unmarshal(text, &t); err != nil {
		return is, t, err
	}
	e := l.at[t.Source]
	switch {
	case e == nil || l.ofID[e] != t.ID || e.partition != t.Partition:
		return is, t, fmt.Errorf("the request of a timer that is shown is not in the log, or another one: %s: %+v",
			text, e)
	case e.due != t.DueMillis, t.Target.Topic != l.target, t.Target.Key != t.ID, (t.Recurrence != nil) != e.recurs,
		t.Payload != nil && (t.Payload.Text == nil || *t.Payload.Text != e.value):
		return is, t, fmt.Errorf("a timer is not shown as its request made it: %s: %+v", text, e)
	}
	return seen{t.Source, t.State}, t, nil
}

// claim finds the request of an answer in the log; it is no other's.
func (l *logged) claim(o *op, id, action, cond, value string, partition, offset any) (*entry, error) {
	source := fmt.Sprintf("%s/%v/%v", l.requests, partition, offset)
	if p, ok := partition.(float64); ok {
		q, _ := offset.(float64)
		source = fmt.Sprintf("%s/%.0f/%.0f", l.requests, p, q)
	}
	e := l.at[source]
	switch {
	case e == nil:
		return nil, fmt.Errorf("%s: %s is not in the log", o, source)
	case l.ofID[e] != id, e.action != action, e.cond != cond, e.value != value && value != "":
		return nil, fmt.Errorf("%s: %s is another request: %q %+v", o, source, l.ofID[e], e)
	case l.claimed[e] != nil:
		return nil, fmt.Errorf("%s: %s is the request of %s", o, source, l.claimed[e])
	case e.at.After(o.to), e.at.Before(o.from.Add(-1e6)):
		return nil, fmt.Errorf("%s: %s was written at %s", o, source, clock(e.at))
	}
	l.claimed[e] = o
	return e, nil
}

func (o *op) sort() string { return o.id + "\x00" + o.action + "\x00" + o.cond }

// gotChange is the answer to a call that changes one timer.
func (l *logged) gotChange(o *op) error {
	switch {
	case o.lost():
		l.maybe[o.sort()]++
		return nil
	case o.refused():
		l.absent = append(l.absent, o)
		return nil
	}
	partition, offset := o.got.body["partition"], o.got.body["offset"]
	outcome, pending := o.word(), o.got.body["timer"]
	if o.got.status >= 400 {
		source, _ := o.got.body["request"].(string)
		place, ok := strings.CutPrefix(source, l.requests+"/")
		p, q, _ := strings.Cut(place, "/")
		if !ok {
			return fmt.Errorf("%s: that is no answer to it", o)
		}
		partition, offset, pending = p, q, o.got.body["pending"]
	}
	e, err := l.claim(o, o.id, o.action, o.cond, o.value, partition, offset)
	if err != nil {
		return err
	}
	if o.got.status == 202 {
		if !strings.Contains(o.path, "wait=written") && !l.mayBeUndecided(o) {
			return fmt.Errorf("%s: it was not decided, and nothing moves", o)
		}
		return nil
	}
	if want := statusOf(outcome, e); o.got.status != want {
		return fmt.Errorf("%s: want status %d", o, want)
	}
	is, _, err := l.shown(pending)
	if err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	if tag := o.got.header.Get("ETag"); o.got.status < 400 && is.source != "" && version(tag) != is.source {
		return fmt.Errorf("%s: its ETag is %s", o, tag)
	}
	e.decided, e.decidedBefore = &decision{outcome: outcome, behind: &is}, o.to
	if e.refused != "" {
		e.decided.behind = nil // what is pending is not told
	}
	return nil
}

// statusOf is the status that goes with an outcome.
func statusOf(outcome string, e *entry) int {
	switch {
	case e.refused != "":
		return 400
	case outcome == "scheduled":
		return 201
	case outcome == "not-found":
		return 404
	case outcome == "condition-not-met":
		return 412
	}
	return 200
}

// reused is the reason of a key that another call had, whose body is another one.
const reused = "idempotency-key-reused"

// gotBatch has the answers for the timers of one call.
func (l *logged) gotBatch(o *op) error {
	results, _ := o.got.body["results"].([]any)
	switch {
	case o.lost():
		l.maybe[o.value]++
		return nil
	case o.refused(), o.got.status == 422 && o.word() == reused && len(o.headers) > 2:
		for i := range strings.Count(o.body, `"value"`) {
			l.absent = append(l.absent, &op{n: o.n, value: fmt.Sprint(o.value, i), got: o.got, who: o.who})
		}
		return nil
	case o.got.status != 200 || len(results) != strings.Count(o.body, `"value"`):
		return fmt.Errorf("%s: that is no answer to it", o)
	}
	keyed := len(o.headers) > 2
	for i, item := range results {
		one, _ := item.(map[string]any)
		of := *o
		of.id, _ = one["id"].(string)
		of.action, of.value = "schedule", fmt.Sprint(o.value, i)
		if keyed {
			of.cond = "absent"
		}
		status, _ := one["status"].(float64)
		of.got = answer{status: int(status), header: o.got.header.Clone()}
		if of.got.body, _ = one["result"].(map[string]any); of.got.body == nil {
			of.got.body, _ = one["problem"].(map[string]any)
		}
		if err := l.gotOfBatch(&of, keyed); err != nil {
			return fmt.Errorf("timer %d of %s: %w", i, o, err)
		}
	}
	return nil
}

func (l *logged) gotOfBatch(o *op, keyed bool) error {
	if o.got.status == 503 && !l.moved(o) {
		return fmt.Errorf("nothing moves")
	}
	made := keyed && o.word() == "unchanged"
	if keyed && o.got.status == 422 && o.word() == reused { // it is another call's
		o.got.status, o.got.body["reason"] = 412, "condition-not-met"
	}
	if made { // it is this call's own timer that is pending
		o.got.status, o.got.body = 412, map[string]any{
			"reason": "condition-not-met", "pending": o.got.body["timer"],
			"request": fmt.Sprintf("%s/%.0f/%.0f", l.requests, o.got.body["partition"], o.got.body["offset"]),
		}
	}
	o.got.header.Del("ETag")
	if is, ok := o.got.body["timer"].(map[string]any); ok {
		o.got.header.Set("ETag", fmt.Sprintf("%q", is["source"]))
	}
	return l.gotChange(o)
}

// gotOne is what is pending under an ID.
func (l *logged) gotOne(o *op) error {
	var is seen
	switch {
	case o.got.status == 0, o.got.status == 503:
		return nil
	case o.got.status == 404 && o.word() == "not-found":
	case o.got.status == 200:
		var t shownTimer
		var err error
		if is, t, err = l.shown(o.got.body); err != nil || t.ID != o.id || t.Payload == nil ||
			version(o.got.header.Get("ETag")) != t.Source {
			return fmt.Errorf("%s: %w", o, err)
		}
	default:
		return fmt.Errorf("%s: that is no answer to it", o)
	}
	l.looked(o, o.id, func(s *state) bool { return s.like(is) })
	return nil
}

func (l *logged) looked(o *op, id string, possible func(*state) bool) {
	h := l.histories[id]
	if h == nil {
		h = &history{id: id, emitted: map[string]int{}}
		l.histories[id] = h
	}
	h.reads = append(h.reads, &read{o.from, o.to, o.String(), possible})
}

// gotList is a list of the timers of a prefix: each that is in it is pending, and each that is
// not is not, or is not in the state that was asked for.
func (l *logged) gotList(o *op) error {
	if o.got.status == 0 || o.got.status == 503 {
		return nil
	}
	items, ok := o.got.body["timers"].([]any)
	if o.got.status != 200 || !ok {
		return fmt.Errorf("%s: that is no answer to it", o)
	}
	u, _ := url.Parse(o.path)
	want := u.Query().Get("state")
	listed := map[string]bool{}
	var ids []string
	for _, item := range items {
		is, t, err := l.shown(item)
		if err != nil || listed[t.ID] || !strings.HasPrefix(t.ID, o.id) || want != "" && is.state != want {
			return fmt.Errorf("%s: %s is not to be there, or twice: %w", o, t.ID, err)
		}
		listed[t.ID], ids = true, append(ids, t.ID)
		l.looked(o, t.ID, func(s *state) bool { return s.like(is) })
	}
	if u.Query().Get("order") == "id" && !slices.IsSorted(ids) {
		return fmt.Errorf("%s: it is not in order", o)
	}
	if o.got.body["cursor"] != nil || o.got.body["missing"] != nil {
		return nil // there is more
	}
	for _, id := range l.ids {
		if strings.HasPrefix(id, o.id) && !listed[id] {
			l.looked(o, id, func(s *state) bool {
				return s.source == "" || want != "" &&
					!s.like(seen{s.source, want})
			})
		}
	}
	return nil
}

// gotCount is how many timers of a prefix there are: between those that there must have been
// and those that there can have been.
func (l *logged) gotCount(o *op) error {
	if o.got.status == 0 || o.got.status == 503 {
		return nil
	}
	body := o.got.body
	if matching, ok := body["matching"].(map[string]any); ok {
		body = matching
	}
	n, ok := body["count"].(float64)
	if o.got.status == 200 && ok && body["missing"] != nil {
		return nil // a partition was on its way
	}
	if o.got.status != 200 || !ok || body["exact"] != true {
		return fmt.Errorf("%s: that is no answer to it", o)
	}
	l.later = append(l.later, func() error {
		least, most := 0, 0
		for _, id := range l.ids {
			h := l.histories[id]
			if h == nil || !strings.HasPrefix(id, o.id) {
				continue
			}
			none, some := false, false
			first, last := h.window(o.from, o.to)
			for at := first; at <= last; at++ {
				none = none || h.some(at, func(s *state) bool { return s.source == "" })
				some = some || h.some(at, func(s *state) bool { return s.source != "" })
			}
			if some {
				most++
				if !none {
					least++
				}
			}
		}
		if int(n) < least || int(n) > most {
			return fmt.Errorf("%s: there were %d to %d", o, least, most)
		}
		return nil
	})
	return nil
}

// gotLetters are dead letters as they are on their topic.
func (l *logged) gotLetters(o *op) error {
	if o.got.status == 0 || o.got.status == 503 {
		return nil
	}
	items, ok := o.got.body["deadLetters"].([]any)
	if o.got.status != 200 || !ok {
		return fmt.Errorf("%s: that is no answer to it", o)
	}
	for _, item := range items {
		one, _ := item.(map[string]any)
		r, ok := l.letters[fmt.Sprintf("%v/%v", one["partition"], one["offset"])]
		if !ok || header(r.Record, "waterclock-reason") != one["reason"] || header(
			r.Record, "waterclock-detail") != one["detail"] || header(r.Record, "waterclock-source") != one["source"] {
			return fmt.Errorf("%s: dead letter %v is not on the topic, or is another", o, one)
		}
	}
	return nil
}

// unclaimed looks at what nobody was told of: a request in the log is somebody's who does not
// know what became of his, of a job, or was written over Kafka; and what was refused is not
// there.
func (l *logged) unclaimed() error {
	for _, o := range l.absent {
		if o.value != "" && l.written[o.value] && !strings.HasSuffix(o.path, "/resend") {
			return fmt.Errorf("%s: the request is in the log", o)
		}
	}
	for e, id := range l.ofID {
		known := slices.Contains(l.ids, id) || strings.HasPrefix(id, "wc-")
		if !known || l.claimed[e] != nil || strings.HasPrefix(e.value, "kafka-") || e.plain {
			continue
		}
		sort := (&op{id: id, action: e.action, cond: e.cond}).sort()
		batch := e.value[:strings.LastIndex(e.value, "-")+1]
		switch {
		case l.maybe[sort] > 0:
			l.maybe[sort]--
		case batch != "" && l.maybe[batch] > 0:
		case l.jobs[e.action] && strings.HasPrefix(e.cond, l.requests+"/"):
		default:
			return fmt.Errorf("request %s of %q, %s if %q, value %q, is nobody's", e.source, id, e.action,
				e.cond, e.value)
		}
	}
	return nil
}

// version is what an ETag says of the timer's request.
func version(tag string) string {
	source, _, _ := strings.Cut(strings.Trim(tag, `"`), ";")
	return source
}

package api

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/test/witness"
)

// call is one call and what was answered.
type call struct {
	n            int
	method, path string
	body         string
	headers      []string
	from, to     time.Time
	who          *member // nil: it was not made
	got          caller.Answer
	id           string   // of the timer, or what IDs begin with
	values       []string // what it schedules
	judge        func(*verdict, *call)
}

func (c *call) String() string {
	return fmt.Sprintf("call %d: %s %s %v: %d %.700s %v", c.n, c.method, c.path, c.headers, c.got.Status, c.got.Text,
		c.got.Err)
}

func (c *call) make(who *member) {
	c.from = time.Now()
	c.got = who.Call(c.method, c.path, c.body, c.headers...)
	c.to, c.who = time.Now(), who
}

// draw makes up a call.
func (w *world) draw(r *rand.Rand, c *call) {
	c.method, c.id = "GET", w.ids[r.IntN(len(w.ids))]
	prefix := prefixes[r.IntN(len(prefixes))]
	query := "?limit=1000&prefix=" + url.QueryEscape(prefix)
	action := []string{"cancel", "pause", "resume", "trigger"}[r.IntN(4)]
	switch p := r.IntN(100); {
	case p < 26:
		w.drawPut(r, c)
	case p < 30:
		w.drawPost(r, c)
	case p < 56:
		if action == "resume" {
			c.id = w.lastPaused(c.id)
		}
		c.method, c.path, c.judge = "POST", w.timer(c.id)+"/"+action, (*verdict).change
		if action == "cancel" {
			c.method, c.path = "DELETE", w.timer(c.id)
		}
		w.conditions(r, c)
	case p < 84:
		c.path, c.judge = w.timer(c.id), (*verdict).one
	case p < 90:
		order := []string{"due", "id"}[r.IntN(2)]
		c.id, c.path, c.judge = prefix, w.at("/timers"+query+"&order="+order), (*verdict).list
	case p < 96:
		c.id, c.path, c.judge = prefix, w.at("/timers/count?prefix="+url.QueryEscape(prefix)), (*verdict).count
	case p < 97 && action != "trigger":
		c.id, c.method, c.judge = "", "POST", (*verdict).job
		c.path = w.at("/timers/" + action + "?rate=200&prefix=" + url.QueryEscape(prefix))
	default:
		c.id, c.path, c.judge = "", w.at("/dead-letters?limit=20"), (*verdict).letters
	}
}

// drawPut schedules, with headers or as JSON; some are refused.
func (w *world) drawPut(r *rand.Rand, c *call) {
	c.method, c.path, c.values, c.judge = "PUT", w.timer(c.id), []string{fmt.Sprint("call-", c.n)}, (*verdict).change
	name, when := "after", "1h"
	switch p := r.IntN(20); {
	case p < 3:
		when = fmt.Sprintf("%dms", 100+r.IntN(3000))
	case p < 6:
		name = "every"
	case p < 7:
		when = "soon"
	}
	if r.IntN(3) > 0 {
		c.body, c.headers = c.values[0], []string{"timer-" + name, when, "timer-target-topic", w.Target}
	} else {
		c.body, c.headers = fmt.Sprintf(`{"value":%q,%q:%q,"target":{"topic":%q}}`, c.values[0], name, when, w.Target),
			[]string{"Content-Type", asJSON}
	}
	w.conditions(r, c)
}

// conditions has some requests count only if something holds, and some not be waited for.
func (w *world) conditions(r *rand.Rand, c *call) {
	w.mu.Lock()
	source := w.sources[c.id]
	w.mu.Unlock()
	switch p := r.IntN(8); {
	case p == 0:
		c.headers = append(c.headers, "If-None-Match", "*")
	case p == 1:
		c.headers = append(c.headers, "If-Match", "*")
	case p == 2 && source != "":
		c.headers = append(c.headers, "If-Match", `"`+source+`"`)
	case p == 3 && source != "":
		c.headers = append(c.headers, "timer-if", source)
	case p == 4:
		c.path += "?wait=written"
	}
}

// drawPost schedules some timers with one call; some without IDs, which are made of the key.
func (w *world) drawPost(r *rand.Rand, c *call) {
	c.method, c.path, c.judge = "POST", w.at("/timers"), (*verdict).post
	c.id, c.headers = "", []string{"Content-Type", asJSON}
	keyed := r.IntN(3) == 0
	if keyed {
		c.headers = append(c.headers, "Idempotency-Key", fmt.Sprint("key-", c.n))
	}
	var items []string
	for i := range 1 + r.IntN(6) {
		c.values = append(c.values, fmt.Sprintf("call-%d-%d", c.n, i))
		fields := fmt.Sprintf(`"value":%q`, c.values[i])
		if !keyed {
			fields += fmt.Sprintf(`,"id":%q`, w.ids[r.IntN(len(w.ids))])
		}
		items = append(items, w.item(fields))
	}
	c.body = `{"timers":[` + strings.Join(items, ",") + `]}`
}

// verdict holds answers against what a plain client has read. Reads are left to the rules of package history.
type verdict struct {
	*world
	h       *witness.History
	at      map[string]*history.Request // by place
	written map[string]int              // how often a value was
	told    map[string]string           // the outcome by the request's event, by its place
	reasons map[string]string           // of dead letters, by place
	words   map[string]int
	listed  int // dead letters
}

func newVerdict(w *world, h *witness.History) *verdict {
	v := &verdict{world: w, h: h, at: map[string]*history.Request{}, written: map[string]int{},
		told: map[string]string{}, reasons: map[string]string{}, words: map[string]int{}}
	for i := range h.Requests {
		r := &h.Requests[i]
		v.at[r.Place.String()] = r
		if v.written[r.Emits.Value]++; strings.HasPrefix(r.Emits.Value, "call-") && v.written[r.Emits.Value] > 1 {
			w.Errorf("%s was written twice", r.Emits.Value)
		}
	}
	for _, e := range h.Events {
		for _, request := range map[waterclock.EventType][]waterclock.Source{
			waterclock.EventScheduled: {e.Source}, waterclock.EventReplaced: {e.Source},
			waterclock.EventRejected: {e.Source}, waterclock.EventCancelled: {e.Cancel},
			waterclock.EventTriggered: {e.Request}, waterclock.EventPaused: {e.Request},
			waterclock.EventResumed: {e.Request}, waterclock.EventConditionNotMet: {e.Request},
		}[e.Type] {
			v.told[request.String()] = string(e.Type)
		}
	}
	for _, l := range h.Letters {
		v.reasons[fmt.Sprintf("%d/%d", l.Partition, l.Offset)] = string(l.Reason)
	}
	return v
}

// enough has a test that has seen nothing be red.
func (v *verdict) enough(least int) {
	v.Helper()
	v.Logf("%d calls, %d requests, %d emissions, answers %v", len(v.calls), len(v.h.Requests), len(v.h.Emissions),
		v.words)
	if len(v.calls) < least || len(v.h.Answers) < least/10 || v.listed == 0 {
		v.Errorf("%d calls of %d, %d answers, %d dead letters", len(v.calls), least, len(v.h.Answers), v.listed)
	}
	for _, word := range []string{"201 scheduled", "200 replaced", "200 cancelled", "200 triggered", "200 paused",
		"200 resumed", "200 unchanged", "202 written", "404 not-found", "412 condition-not-met", "503 moving"} {
		if v.words[word] == 0 {
			v.Errorf("nothing was answered %s: %v", word, v.words)
		}
	}
}

// judge judges one call. A call that an instance has not answered may have been written or not.
func (v *verdict) judge(c *call) {
	if c.who == nil {
		return
	}
	v.words[fmt.Sprint(c.got.Status, " ", c.got.Word())]++
	unread := c.got.Status == 0 || c.got.Status == 400 && c.got.Word() == "" || c.got.Word() == "body-timeout"
	switch {
	case unread && c.who.left:
	case c.got.Status == 503:
		v.unavailable(c, c.values)
		if c.got.Header.Get("Retry-After") == "" {
			v.wrong(c, "does not say when to try again")
		}
	default:
		c.judge(v, c)
	}
}

func (v *verdict) wrong(c *call, format string, args ...any) {
	v.Errorf("%s\n"+format, append([]any{c}, args...)...)
}

// moved reports whether partitions were on their way while a call was made, or the machine stood still.
func (v *verdict) moved(c *call) bool {
	return c.to.Sub(c.from) >= undecided/2 || slices.ContainsFunc(v.moves, func(m move) bool {
		return c.to.After(m.from.Add(-moveGrace)) && c.from.Before(m.to.Add(moveGrace))
	})
}

// unavailable judges a change that was not made, or not known to be.
func (v *verdict) unavailable(c *call, values []string) {
	if !v.moved(c) {
		v.wrong(c, "nothing moves")
	}
	if word := c.got.Word(); word == "unknown-outcome" {
		return
	} else if !slices.Contains([]string{"moving", "kafka-unreachable", "not-written"}, word) {
		v.wrong(c, "is no answer of a move")
	}
	v.unwritten(c, values)
}

func (v *verdict) unwritten(c *call, values []string) {
	for _, value := range values {
		if v.written[value] > 0 {
			v.wrong(c, "the request is in the log")
		}
	}
}

// change judges the answer to a call that changes one timer.
func (v *verdict) change(c *call) {
	word, body := c.got.Word(), c.got.Body
	if c.got.Status == 400 && body["request"] == nil && strings.Contains(fmt.Sprint(c.body, c.headers), "soon") {
		v.unwritten(c, c.values)
		return
	}
	place, _ := body["request"].(string)
	if c.got.Status < 400 {
		place = fmt.Sprintf("%s/%.0f/%.0f", v.Requests, body["partition"], body["offset"])
	}
	r := v.at[place]
	if r == nil || r.ID != c.id || len(c.values) > 0 && r.Emits.Value != c.values[0] {
		v.wrong(c, "%s is another request, or not in the log: %+v", place, r)
		return
	}
	status := map[string]int{"scheduled": 201, "written": 202, "not-found": 404, "condition-not-met": 412}[word]
	if status == 0 {
		status = 200
	}
	if word == "written" && !strings.Contains(c.path, "wait=written") && !v.moved(c) {
		v.wrong(c, "it was not decided, and nothing moves")
	}
	told := word
	if word == "not-found" || word == "unchanged" {
		told = "" // they have no event
	}
	if c.got.Status != status || word != "written" && v.told[place] != told {
		v.wrong(c, "want status %d, the event of %s is %q", status, place, v.told[place])
	}
	if timer, ok := body["timer"].(map[string]any); ok && (timer["id"] != c.id ||
		(word == "scheduled" || word == "replaced") && timer["source"] != place) {
		v.wrong(c, "it shows another timer")
	}
}

// post judges the answers for the timers of one call.
func (v *verdict) post(c *call) {
	results := c.got.Items("results")
	if c.got.Status != 200 || len(results) != len(c.values) {
		v.wrong(c, "is no answer to it")
		return
	}
	for i, one := range results {
		item := *c
		item.id, _ = one["id"].(string)
		item.values = c.values[i : i+1]
		item.got = caller.Answer{Status: int(one["status"].(float64)), Text: fmt.Sprint(one)}
		if item.got.Body, _ = one["result"].(map[string]any); item.got.Body == nil {
			item.got.Body, _ = one["problem"].(map[string]any)
		}
		if item.got.Status == 503 {
			v.unavailable(&item, item.values)
			continue
		}
		v.change(&item)
	}
}

// answer is what a read says, for the rules of package history.
func (v *verdict) answer(c *call, ids []string, count int64, timers ...map[string]any) {
	a := witness.Answer{Instance: c.who.URL, Asked: c.from, Given: c.to, Requests: v.Requests, IDs: ids, Count: count}
	for _, t := range timers {
		source, err := waterclock.ParseSource(t["source"].(string))
		id, _ := t["id"].(string)
		if err != nil || !slices.Contains(ids, id) {
			v.wrong(c, "%v is not to be there", t)
		}
		if t["state"] == "triggered" { // whether it is paused, too, is not shown
			a.IDs = slices.DeleteFunc(slices.Clone(a.IDs), func(other string) bool { return other == id })
			continue
		}
		a.Timers = append(a.Timers, history.Timer{ID: id, Source: source, Due: int64(t["dueMillis"].(float64)),
			Occurrence: int64(t["occurrence"].(float64)), Paused: t["state"] == "paused",
			Remembered: t["state"] == "remembered"})
	}
	v.h.Answers = append(v.h.Answers, a)
}

// one judges what is pending under an ID.
func (v *verdict) one(c *call) {
	switch {
	case c.got.Status == 404 && c.got.Word() == "not-found":
		v.answer(c, []string{c.id}, -1)
	case c.got.Status == 200:
		v.answer(c, []string{c.id}, -1, c.got.Body)
	default:
		v.wrong(c, "is no answer to it")
	}
}

// of are the IDs with a prefix.
func (v *verdict) of(prefix string) []string {
	return slices.DeleteFunc(slices.Clone(v.ids), func(id string) bool { return !strings.HasPrefix(id, prefix) })
}

// list judges a list of the timers of a prefix.
func (v *verdict) list(c *call) {
	if c.got.Status != 200 || c.got.Body["cursor"] != nil {
		v.wrong(c, "is no answer to it")
	} else if c.got.Body["missing"] == nil {
		v.answer(c, v.of(c.id), -1, c.got.Items("timers")...)
	}
}

// count judges how many timers of a prefix there are.
func (v *verdict) count(c *call) {
	n, ok := c.got.Body["count"].(float64)
	if exact := c.got.Body["missing"] == nil; c.got.Status != 200 || !ok || c.got.Body["exact"] != exact {
		v.wrong(c, "is no answer to it")
	} else if exact {
		v.answer(c, v.of(c.id), int64(n))
	}
}

func (v *verdict) job(c *call) {
	if (c.got.Status != 202 || c.got.Header.Get("Location") == "") && c.got.Word() != "too-many-jobs" {
		v.wrong(c, "is no job")
	}
}

// letters judges a list of dead letters, which are as they are on their topic.
func (v *verdict) letters(c *call) {
	items := c.got.Items("deadLetters")
	if c.got.Status != 200 {
		v.wrong(c, "is no answer to it")
	}
	v.listed += len(items)
	for _, l := range items {
		if v.reasons[fmt.Sprintf("%v/%v", l["partition"], l["offset"])] != l["reason"] {
			v.wrong(c, "dead letter %v is not on the topic, or is another", l)
		}
	}
}

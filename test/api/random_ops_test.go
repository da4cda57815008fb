package api

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// op is one call and what was answered.
type op struct {
	n        int
	method   string
	path     string
	body     string
	headers  []string
	from, to time.Time
	who      *member
	got      answer

	// Of what changes one timer: what its request is in the log.
	id, action, cond, value string
	// then looks at the answer once the log is known; nil: it is looked at when it comes.
	then func(l *logged, o *op) error
	// wrong says what is wrong with an answer other than 503, at once.
	wrong func(o *op) error
}

func (o *op) String() string {
	return fmt.Sprintf("op %d at %s: %s %s %v, %s to %s: %d %.700s %v", o.n, o.who, o.method, o.path, o.headers,
		clock(o.from), clock(o.to), o.got.status, o.got.text, o.got.err)
}

// word is the outcome or the reason of the answer.
func (o *op) word() string {
	if o.got.status >= 400 {
		reason, _ := o.got.body["reason"].(string)
		return reason
	}
	outcome, _ := o.got.body["outcome"].(string)
	return outcome
}

func (s *setup) one(id string) string { return timersOf(s.requests) + "/" + url.PathEscape(id) }

// next makes up the n-th operation.
func (s *setup) next(r *rand.Rand, n int) *op {
	o := &op{n: n, id: s.ids[r.IntN(len(s.ids))]}
	switch p := r.IntN(100); {
	case p < 24:
		s.put(r, o)
	case p < 28:
		s.batch(r, o)
	case p < 50:
		s.steer(r, o)
	case p < 80:
		o.method, o.path, o.then = "GET", s.one(o.id), (*logged).gotOne
	case p < 86:
		s.list(r, o)
	case p < 91:
		s.count(r, o)
	case p < 92:
		s.job(r, o)
	case p < 93:
		s.letters(r, o)
	default:
		s.fixed(o)
	}
	return o
}

// put schedules, with headers or as JSON; some are refused.
func (s *setup) put(r *rand.Rand, o *op) {
	o.method, o.path, o.action, o.value = "PUT", s.one(o.id), "schedule", fmt.Sprint("op-", o.n)
	name, when := "after", "1h"
	switch p := r.IntN(20); {
	case p < 3:
		when = fmt.Sprintf("%dms", 100+r.IntN(3000))
	case p < 6:
		name = "every"
	case p < 7:
		when, o.value = "soon", fmt.Sprint("bad-", o.n)
	}
	if r.IntN(3) > 0 {
		o.body, o.headers = o.value, []string{"timer-" + name, when, "timer-target-topic", s.target, "waterclock-pass",
			"trace=" + o.value}
	} else {
		o.headers = []string{"Content-Type", "application/vnd.waterclock.timer+json"}
		o.body = fmt.Sprintf(`{"value":%q,%q:%q,"target":{"topic":%q},"headers":[{"name":"trace","value":%q}]}`,
			o.value, name, when, s.target, o.value)
	}
	s.conditions(r, o)
	o.then = (*logged).gotChange
}

// steer is what neither schedules nor asks.
func (s *setup) steer(r *rand.Rand, o *op) {
	o.action, o.then = []string{"cancel", "trigger", "pause", "pause", "resume", "resume"}[r.IntN(6)],
		(*logged).gotChange
	if id := s.lastPaused(); o.action == "resume" && id != "" {
		o.id = id
	}
	o.method, o.path = "POST", s.one(o.id)+"/"+o.action
	if o.action == "cancel" {
		o.method, o.path = "DELETE", s.one(o.id)
	}
	s.conditions(r, o)
}

// conditions has some requests count only if something holds, and some not be waited for.
func (s *setup) conditions(r *rand.Rand, o *op) {
	switch r.IntN(8) {
	case 0:
		o.cond, o.headers = "absent", append(o.headers, "If-None-Match", "*")
	case 1:
		o.cond, o.headers = "present", append(o.headers, "If-Match", "*")
	case 2:
		if o.cond = s.lastSource(o.id); o.cond != "" {
			o.headers = append(o.headers, "If-Match", `"`+o.cond+`"`)
		}
	case 3:
		if o.cond = s.lastSource(o.id); o.cond != "" {
			o.headers = append(o.headers, "timer-if", o.cond)
		}
	case 4:
		o.path += "?wait=written"
	case 5:
		o.path += "?wait=decided"
	}
}

// batch schedules some timers with one call; some without IDs, which are made of the key.
func (s *setup) batch(r *rand.Rand, o *op) {
	o.method, o.path, o.headers = "POST", timersOf(s.requests), []string{"Content-Type", "application/json"}
	var items []string
	keyed := r.IntN(3) == 0
	if keyed {
		o.headers = append(o.headers, "Idempotency-Key", fmt.Sprint("key-", o.n/200))
	}
	for i := range 1 + r.IntN(6) {
		item := map[string]any{"value": fmt.Sprintf("op-%d-%d", o.n, i), "after": "1h",
			"target": map[string]any{"topic": s.target}}
		if !keyed {
			item["id"] = s.ids[r.IntN(len(s.ids))]
		}
		text, _ := json.Marshal(item)
		items = append(items, string(text))
	}
	o.body, o.value = `{"timers":[`+strings.Join(items, ",")+`]}`, fmt.Sprintf("op-%d-", o.n)
	o.then = (*logged).gotBatch
}

func (s *setup) prefix(r *rand.Rand) string { return prefixes[r.IntN(len(prefixes))] }

func (s *setup) list(r *rand.Rand, o *op) {
	q := url.Values{"limit": {"1000"}}
	o.id = s.prefix(r)
	q.Set("prefix", o.id)
	if r.IntN(3) == 0 {
		q.Set("order", "id")
	}
	switch r.IntN(5) {
	case 0:
		q.Set("state", []string{"paused", "pending"}[r.IntN(2)])
	case 1:
		q.Set("target", s.target)
	case 2:
		q.Set("due-before", fmt.Sprint(time.Now().Add(2*time.Hour).UnixMilli()))
	}
	o.method, o.path, o.then = "GET", timersOf(s.requests)+"?"+q.Encode(), (*logged).gotList
}

func (s *setup) count(r *rand.Rand, o *op) {
	o.id = s.prefix(r)
	o.method, o.path, o.then = "GET", timersOf(s.requests)+"/count?prefix="+url.QueryEscape(o.id), (*logged).gotCount
	if r.IntN(2) == 0 {
		action := []string{"cancel", "pause", "resume"}[r.IntN(3)]
		o.method, o.path = "POST", timersOf(s.requests)+"/"+action+"?dry-run=true&prefix="+url.QueryEscape(o.id)
	}
}

// job starts a job for a prefix.
func (s *setup) job(r *rand.Rand, o *op) {
	o.id = s.prefix(r)
	action := []string{"cancel", "pause", "resume"}[r.IntN(3)]
	o.method, o.path = "POST", timersOf(s.requests)+"/"+action+"?rate=200&prefix="+url.QueryEscape(o.id)
	s.mu.Lock()
	s.jobs[action] = true
	s.mu.Unlock()
	o.wrong = func(o *op) error {
		if o.got.status == 202 && o.got.header.Get("Location") != "" || o.got.status == 429 &&
			o.word() == "too-many-jobs" && o.got.header.Get("Retry-After") != "" {
			return nil
		}
		return fmt.Errorf("%s, want a job", o)
	}
}

// letters lists dead letters, or sends one again.
func (s *setup) letters(r *rand.Rand, o *op) {
	o.method, o.path, o.then = "GET", "/v1/topics/"+s.requests+"/dead-letters?limit=20", (*logged).gotLetters
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.letter) == 0 || r.IntN(2) == 0 {
		return
	}
	of := s.letter[r.IntN(len(s.letter))]
	o.method, o.path = "POST", fmt.Sprintf("/v1/topics/%s/dead-letters/%d/%d/resend", s.requests,
		of.Partition, of.Offset)
	o.id, o.value, o.action, o.then = string(of.Key), string(of.Value), "schedule", (*logged).gotChange
	o.cond = header(of.Record, "timer-if")
}

// fixed is a call whose answer does not depend on timers: each error, and what is asked of the
// service.
func (s *setup) fixed(o *op) {
	s.mu.Lock()
	f := s.fixedCalls[s.called%len(s.fixedCalls)] // one after the other, so that none is left out
	s.called++
	s.mu.Unlock()
	o.method, o.path, o.body, o.headers, o.id = f.method, f.path, f.body, f.headers, ""
	o.wrong = func(o *op) error {
		if o.got.status != f.status || f.word != "" && o.word() != f.word {
			return fmt.Errorf("%s, want %d %s", o, f.status, f.word)
		}
		if o.got.status >= 400 && (o.got.header.Get("Content-Type") != "application/problem+json" ||
			o.got.body["status"] != float64(f.status) || o.got.body["detail"] == "") {
			return fmt.Errorf("%s is no problem", o)
		}
		return nil
	}
}

// fixedCall is a call that has one answer.
type fixedCall struct {
	method, path, body string
	headers            []string
	status             int
	word               string
}

// fixedCalls has every path, and each error that one instance of a healthy service has without
// users; those of access, of one instance without a key and of what Kafka refuses have tests of
// their own.
func fixedCalls(requests, target string) []fixedCall {
	topic := "/v1/topics/" + requests
	timers, one := topic+"/timers", topic+"/timers/fixed"
	json, timer := []string{"Content-Type", "application/json"}, []string{"Content-Type",
		"application/vnd.waterclock.timer+json"}
	to := func(headers ...string) []string { return append([]string{"timer-target-topic", target}, headers...) }
	var many []string
	for range 129 {
		many = append(many, "waterclock-pass", "a=1")
	}
	return []fixedCall{
		{"GET", "/v1/topics", "", nil, 200, ""},
		{"GET", "/v1/cluster", "", nil, 200, ""},
		{"GET", "/v1/next?cron=*/5+*+*+*+*&n=3", "", nil, 200, ""},
		{"GET", "/openapi.json", "", nil, 200, ""},
		{"GET", "/openapi.yaml", "", nil, 200, ""},
		{"GET", "/docs", "", nil, 200, ""},
		{"GET", "/v1/next?cron=every+now+and+then", "", nil, 400, "bad-cron"},
		{"GET", "/v1/next?cron=@daily&zone=Nowhere", "", nil, 400, "unknown-zone"},
		{"GET", "/v1/next", "", nil, 400, "bad-request"},
		{"GET", "/v1/nothing", "", nil, 404, "no-such-path"},
		{"GET", one + "/a/b", "", nil, 404, "no-such-path"},
		{"GET", timers + "//x", "", nil, 404, "no-such-path"},
		{"GET", "/v1/topics/none/timers/a", "", nil, 404, "no-such-topic"},
		{"PUT", "/v1/topics/none/timers/a", "x", to("timer-after", "1h"), 404, "no-such-topic"},
		{"GET", "/v1/topics/none/timers/count", "", nil, 404, "no-such-topic"},
		{"GET", "/v1/topics/none/dead-letters", "", nil, 404, "no-such-topic"},
		{"GET", "/v1/topics/none/events", "", nil, 404, "no-such-topic"},
		{"GET", topic + "/events", "", nil, 409, "no-events"},
		{"GET", "/v1/jobs/none", "", nil, 404, "not-found"},
		{"DELETE", "/v1/jobs/none", "", nil, 404, "not-found"},
		{"POST", topic + "/dead-letters/0/999999999/resend", "", nil, 404, "not-found"},
		{"GET", topic + "/dead-letters?cursor=x", "", nil, 400, "bad-request"},
		{"GET", one, "", nil, 404, "not-found"},
		{"DELETE", one, "", nil, 404, "not-found"},
		{"POST", one + "/trigger", "", nil, 404, "not-found"},
		{"POST", one + "/pause", "", nil, 404, "not-found"},
		{"POST", one + "/resume", "", nil, 404, "not-found"},
		{"DELETE", one, "", []string{"If-Match", "*"}, 412, "condition-not-met"},
		{"PUT", one, "x", to("timer-after", "1h", "If-Match", "*"), 412, "condition-not-met"},
		{"POST", one + "/trigger", "", []string{"If-Match", `"` + requests + `/0/1"`}, 412, "condition-not-met"},
		{"DELETE", one, "", []string{"If-Match", "x"}, 400, "bad-request"},
		{"DELETE", one, "", []string{"If-Match", "*", "If-None-Match", "*"}, 400, "bad-request"},
		{"DELETE", one, "", []string{"timer-after", "1h"}, 400, "bad-request"},
		{"DELETE", one + "?wait=never", "", nil, 400, "bad-request"},
		{"PUT", one + "?what=1", "x", to("timer-after", "1h"), 400, "bad-request"},
		{"PUT", one, "{", timer, 400, "bad-request"},
		{"PUT", one, `{"what": 1}`, timer, 400, "bad-request"},
		{"PUT", one, "x", to("timer-after", "1h", "waterclock-pass", "timer-at=1"), 400, "bad-request"},
		{"PUT", one, "x", to("timer-after", "soon"), 400, "bad-duration"},
		{"PUT", one, "x", to("timer-at", "1700000000"), 400, "seconds-not-milliseconds"},
		{"PUT", one, "x", to("timer-what", "1"), 400, "unknown-header"},
		{"PUT", one, "x", to("timer-at", "2030-01-01T00:00:00Z", "timer-after", "1h"), 400, "conflicting-headers"},
		{"PUT", one, "x", []string{"timer-after", "1h"}, 400, "no-target"},
		{"PUT", one, "x", []string{"timer-after", "1h", "timer-target-topic", requests}, 403, "target-not-allowed"},
		{"PUT", one, "x", to(append([]string{"timer-after", "1h"}, many...)...), 431, "too-many-headers"},
		{"PUT", one, strings.Repeat("x", 1<<20), to("timer-after", "1h"), 413, "too-large"},
		{"PUT", timers + "/" + strings.Repeat("i", 513), "x", to("timer-after", "1h"), 400, "bad-key"},
		{"POST", one, "", nil, 405, "bad-request"},
		{"PUT", timers, "", nil, 405, "bad-request"},
		{"PATCH", one, "", nil, 405, "bad-request"},
		{"POST", timers, `{"timers":[]}`, json, 400, "bad-request"},
		{"POST", timers, `{"timers":[{"id":"a"}]}`, []string{"Content-Type", "text/plain"}, 415, "bad-request"},
		{"POST", timers + "/cancel", "", nil, 400, "bad-request"},
		{"POST", timers + "/pause?state=none", "", nil, 400, "bad-request"},
		{"GET", timers + "?limit=0", "", nil, 400, "bad-request"},
		{"GET", timers + "?cursor=x", "", nil, 400, "bad-request"},
		{"GET", timers + "?due-before=1", "", nil, 400, "bad-request"},
		{"GET", timers + "?order=none", "", nil, 400, "bad-request"},
		{"GET", timers + "/count?what=1", "", nil, 400, "bad-request"},
	}
}

// asks makes the call of an operation. It is for any goroutine.
func (s *setup) asks(t testing.TB, o *op) {
	o.who = s.anyone()
	o.from = time.Now()
	o.got = o.who.asked.call(t, o.method, o.path, o.body, o.headers...)
	o.to = time.Now()
}

// refused reports whether an answer says that nothing was written: because of a move, or because the request could only
// have become a dead letter.
func (o *op) refused() bool {
	if o.got.status == http.StatusBadRequest && o.got.body["request"] == nil {
		return strings.HasPrefix(o.value, "bad-")
	}
	return o.got.status == http.StatusServiceUnavailable && o.word() != "unknown-outcome"
}

// lost reports whether it is not known what became of a call.
func (o *op) lost() bool { return o.got.status == 0 || o.word() == "unknown-outcome" }

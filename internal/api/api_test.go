package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

func TestOneTimer(t *testing.T) {
	in := alone(t)
	put := in.put("a1", "hello\x00", "waterclock-pass", "b=2=3", "waterclock-pass", "a=1").Is(201, "scheduled")
	got := in.Get(path("a1")).Is(200, "")
	tag := got.Header.Get("ETag")
	if tag == "" || tag != put.Header.Get("ETag") || tag != `"`+got.Body["source"].(string)+`"` {
		t.Errorf("ETags %q and %q of %v", tag, put.Header.Get("ETag"), got.Text)
	}
	for _, part := range []string{`"text":"hello\u0000"`, `{"name":"b","value":"2=3"},{"name":"a","value":"1"}`,
		`"state":"pending"`} {
		if !strings.Contains(got.Text, part) {
			t.Errorf("%s lacks %s", got.Text, part)
		}
	}
	in.put("a1", "x").Is(200, "replaced")
	in.put("a1", "x", "If-Match", tag).Is(412, "condition-not-met")
	in.put("a1", "x", "If-None-Match", "*").Is(412, "condition-not-met")
	in.Call("POST", path("a1")+"/pause", "", "If-Match", "*").Is(200, "paused")
	in.Call("POST", path("a1")+"/pause", "").Is(200, "unchanged")
	in.Call("POST", path("a1")+"/resume", "").Is(200, "resumed")
	in.Call("POST", path("a1")+"/trigger", "").Is(200, "triggered")
	in.Call("DELETE", path("a1"), "").Is(200, "cancelled")
	in.Call("DELETE", path("a1"), "").Is(404, "not-found")
	in.Call("DELETE", path("a1"), "", "If-Match", "*").Is(412, "condition-not-met")
	in.Get(path("a1")).Is(404, "not-found")
	in.Call("POST", path("a1")+"/trigger", "").Is(404, "not-found")
}

// If the judge rejects a request, the problem has its reason and detail. A call that is itself wrong
// writes nothing.
func TestRefused(t *testing.T) {
	in, f := faked(t)
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		reason                   string
	}{
		{"too large for the topic's policy", "PUT", path("a"), strings.Repeat("x", 1001),
			[]string{in1h, "1h", toOrders, "orders"}, 413, "value-too-large"},
		{"too large for the topic", "PUT", path("a"), strings.Repeat("x", 1<<20),
			[]string{in1h, "1h", toOrders, "orders"}, 413, "too-large"},
		{"two conditions", "PUT", path("a"), "", []string{in1h, "1h", toOrders, "orders", "If-None-Match", "*",
			"timer-if", "absent"}, 400, "duplicate-header"},
		{"condition", "PUT", path("a"), "", []string{in1h, "1h", toOrders, "orders", "If-Match", "abc"}, 400,
			"bad-request"},
		{"pass", "PUT", path("a"), "", []string{in1h, "1h", toOrders, "orders", "waterclock-pass", "timer-at=1"}, 400,
			"bad-request"},
		{"not JSON", "PUT", path("a"), "{", []string{"Content-Type", "application/vnd.waterclock.timer+json"}, 400,
			"bad-request"},
		{"unknown field", "PUT", path("a"), `{"afer":"1h"}`, []string{"Content-Type",
			"application/vnd.waterclock.timer+json"}, 400, "bad-request"},
		{"another ID", "PUT", path("a"), `{"id":"b","after":"1h"}`, []string{"Content-Type",
			"application/vnd.waterclock.timer+json"}, 400, "bad-request"},
		{"ID of a read", "GET", path(strings.Repeat("x", 513)), "", nil, 404, "not-found"},
		{"type of a list", "POST", allTimers, `{"timers":[{"id":"a"}]}`,
			[]string{"Content-Type", "text/plain"}, 415, "bad-request"},
		{"dead letters' cursor", "GET", allLetters + "?cursor=bnVsbA", "", nil, 400, "bad-request"},
		{"steering with a due time", "POST", path("a") + "/pause", "", []string{in1h, "1h"}, 400, "bad-request"},
		{"topic", "PUT", "/v1/topics/others/timers/a", "", []string{in1h, "1h"}, 404, "no-such-topic"},
		{"method", "PATCH", path("a"), "", nil, 405, "bad-request"},
		{"path", "GET", "/v2", "", nil, 404, "no-such-path"},
		{"no ID", "GET", allTimers + "/", "", nil, 404, "no-such-path"},
		{"due", "GET", allTimers + "?due-after=now", "", nil, 400, "bad-request"},
		{"no due", "POST", allTimers + "/cancel?due-before=0", "", nil, 400, "bad-request"},
		{"due in seconds", "POST", allTimers + "/cancel?due-after=1795344290", "", nil, 400, "bad-request"},
		{"due in 1970", "POST", allTimers + "/cancel?due-before=1970-01-01T00:00:00Z", "", nil, 400, "bad-request"},
		{"no filter", "POST", allTimers + "/cancel?prefix=", "", nil, 400, "bad-request"},
		{"cursor", "GET", allTimers + "?cursor=x", "", nil, 400, "bad-request"},
		{"limit", "GET", allTimers + "?limit=1001", "", nil, 400, "bad-request"},
		{"parameter", "GET", allTimers + "?prefx=a", "", nil, 400, "bad-request"},
		{"cron", "GET", "/v1/next?cron=x", "", nil, 400, "bad-cron"},
		{"job", "GET", "/v1/jobs/x", "", nil, 404, "not-found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in.Call(c.method, c.path, c.body, c.headers...).Is(c.status, c.reason)
		})
	}
	if n := len(f.all()); n != 0 {
		t.Errorf("%d timers are pending", n)
	}
}

// No PUT, and no timer of a POST, cancels or steers, whatever its headers and body are in
// combination: the pending timer stays.
func TestPutNeverCancels(t *testing.T) {
	in, f := faked(t)
	in.put("a", "kept").Is(201, "scheduled")
	asTimer := []string{"Content-Type", "application/vnd.waterclock.timer+json"}
	for _, body := range []string{"", "x", `{"valueNull":true}`, `{"value":"x"}`, `{"valueNull":true,"if":"present"}`,
		`{"valueNull":true,"target":{"topic":"orders"}}`, `{"valueNull":true,"headers":[{"name":"x","value":"y"}]}`} {
		for _, headers := range [][]string{
			nil, {"timer-cancel", "true"}, {"timer-cancel", ""}, {"Timer-Cancel", "TRUE"}, {"timer-trigger", "true"},
			{"timer-pause", "true"},
			{"timer-resume", "true"}, {"timer-if", "present"}, {"If-Match", "*"}, {"waterclock-pass", "x=y"},
			{"waterclock-pass", "timer-cancel=true"},
		} {
			for _, typed := range [][]string{nil, asTimer} {
				a := in.Call("PUT", path("a"), body, slices.Concat(headers, typed)...)
				if a.Status != 400 {
					t.Errorf("PUT of %q with %q: %d %.200s, want 400", body, slices.Concat(headers, typed),
						a.Status, a.Text)
				}
			}
		}
	}
	post := in.post(`{"timers":[{"id":"a","valueNull":true}]}`).Is(200, "")
	if !strings.Contains(post.Text, `"reason":"no-due-time"`) {
		t.Error(post.Text)
	}
	if all := f.all(); len(all) != 1 || string(all[0].Value) != "kept" {
		t.Errorf("%d timers are pending, want the first alone", len(all))
	}
	in.Call("PUT", path("a"), `{"valueNull":true,"after":"1h","target":{"topic":"orders"}}`, asTimer...).Is(200, "replaced")
}

// An error that huma finds says which part is wrong. A body of unknown length that exceeds a limit
// before the API is too large like any other.
func TestRefusedByType(t *testing.T) {
	in := alone(t)
	for query, want := range map[string]string{
		"limit=0":      "the parameter limit needs 1 or more",
		"prefx=a":      `there is no parameter "prefx" here; did you mean prefix?`,
		"state=pendng": "the parameter state needs one of pending, triggered, paused, parked, recurring, remembered",
		"limit=9999":   "the parameter limit needs 1000 or less",
		"frobnicate=1": `there is no parameter "frobnicate" here`,
	} {
		if d := in.Get(allTimers+"?"+query).Is(400, "bad-request").Body["detail"]; d != want {
			t.Errorf("%q, want %q", d, want)
		}
	}
	for _, method := range []string{"PUT", "POST"} {
		r := httptest.NewRequest(method, map[string]string{"PUT": path("a"), "POST": allTimers}[method], nil)
		w := httptest.NewRecorder()
		r.Body = http.MaxBytesReader(w, io.NopCloser(strings.NewReader(strings.Repeat("x", 11))), 10)
		in.api.ServeHTTP(w, r)
		if w.Code != 413 || !strings.Contains(w.Body.String(), `"reason":"too-large"`) {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
}

// A bug in a handler is answered, counted and logged.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	in := start(t, newFake("timers", partitions), "p0", false, func(o *api.Options) {
		o.Registry, o.Logger = reg, slog.New(slog.NewTextHandler(&log, nil))
		o.Rights.May = func(context.Context, access.Role, string, string) error { panic("a bug") }
	})
	in.Get(path("a")).Is(500, "internal")
	if !strings.Contains(log.String(), "a bug") || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("log %q", log.String())
	}
	all, err := reg.Gather()
	if err != nil || !strings.Contains(fmt.Sprint(all), `value:"500"`) {
		t.Errorf("%v, %v", all, err)
	}
}

// An ID may have any bytes.
func TestIDs(t *testing.T) {
	in := alone(t)
	for _, id := range []string{"a%2Fb%2F..%2Fc", "%2E%2E", "ä%20%3F%23%25", "count%2F", "%00%0A", "timers",
		"%E2%80%AE"} {
		in.put(id, "").Is(201, "scheduled")
		in.Get(path(id)).Is(200, "")
		in.Call("POST", path(id)+"/pause", "").Is(200, "paused")
		in.Call("DELETE", path(id), "").Is(200, "cancelled")
	}
	// An ID that is not UTF-8 is shown as base64.
	in.put("%FFa", "\xfe").Is(201, "")
	if got := in.Get(path("%FFa")).Text; !strings.Contains(got, `"idBase64":"/2E="`) ||
		!strings.Contains(got, `"base64":"/g=="`) {
		t.Error(got)
	}
}

// A timer given as JSON is the same request as one given in headers.
func TestJSONIsTheSame(t *testing.T) {
	in := alone(t)
	in.Call("PUT", path("h"), "v", "timer-cron", "0 9 * * mon-fri", "timer-zone", "Africa/Lagos", "timer-count", "5",
		"timer-jitter", "10s", "timer-catch-up", "all",
		"timer-max-late", "1h", "timer-until", "2099-01-01T00:00:00Z", toOrders, "orders", "timer-target-key", "k",
		"timer-target-partition", "3", "waterclock-pass", "a=1").Is(201, "")
	in.Call("PUT", path("j"),
		`{"value":"v","cron":"0 9 * * mon-fri","zone":"Africa/Lagos","count":5,"jitter":"10s","catchUp":"all","maxLate":"1h",
		"until":"2099-01-01T00:00:00Z","target":{"topic":"orders","key":"k","partition":3},"headers":[{"name":"a","value":"1"}]}`,
		"Content-Type", "application/vnd.waterclock.timer+json").Is(201, "")
	show := func(id string) string {
		b := in.Get(path(id)).Body
		for _, own := range []string{"id", "source", "partition", "due", "dueMillis"} { // the jitter depends on the ID
			delete(b, own)
		}
		text, _ := json.Marshal(b)
		return string(text)
	}
	if h, j := show("h"), show("j"); h != j {
		t.Errorf("by headers\n%s\nas JSON\n%s", h, j)
	}
}

// The answer of GET can be sent with PUT and means the same timer.
func TestRoundTrip(t *testing.T) {
	in := alone(t)
	for name, body := range map[string]string{
		"once":   `{"value":"v","at":"2099-01-01T00:00:00.123Z","target":{"topic":"orders"}}`,
		"soon":   `{"value":"{\"a\":1}","after":"1h","target":{"topic":"orders","key":"k","partition":3},"headers":[{"name":"a","value":"1"},{"name":"a","valueNull":true}],"maxLate":"90s"}`,
		"bytes":  `{"valueBase64":"/v8=","after":"1h","target":{"topic":"orders","keyBase64":"/w=="},"headers":[{"name":"b","valueBase64":"/w=="}]}`,
		"null":   `{"valueNull":true,"after":"1h","target":{"topic":"orders","keyNull":true}}`,
		"every":  `{"every":"90s","at":"2098-01-01T00:00:00Z","jitter":"60s","count":5,"catchUp":"all","target":{"topic":"orders"}}`,
		"cron":   `{"cron":"0 9 * * mon-fri","zone":"Africa/Lagos","until":"2099-01-01T00:00:00Z","target":{"topic":"orders"}}`,
		"%FF%00": `{"value":"v","after":"1h","target":{"topic":"orders"}}`,
		"a%2Fb":  `{"value":"","after":"1h","target":{"topic":"orders"}}`,
	} {
		in.Call("PUT", path(name), body, "Content-Type", "application/json").Is(201, "scheduled")
		was := in.Get(path(name)).Is(200, "")
		in.Call("PUT", path(name), was.Text, "Content-Type", was.Header.Get("Content-Type")).Is(200, "replaced")
		is := in.Get(path(name)).Is(200, "")
		own := []string{"source"} // of another request
		if name == "every" {
			own = append(own, "due", "dueMillis") // the jitter differs
		}
		for _, a := range []answer{was, is} {
			for _, field := range own {
				delete(a.Body, field)
			}
		}
		if !reflect.DeepEqual(was.Body, is.Body) {
			t.Errorf("%s was\n%v, and is\n%v", name, was.Body, is.Body)
		}
	}
	// JSON of another media type is the payload, unchanged.
	in.Call("PUT", path("json"), `{"after":"2h"}`, "Content-Type", "application/x+json", in1h, "1h", toOrders,
		"orders").Is(201, "scheduled")
	if got := in.Get(path("json")).Text; !strings.Contains(got, `"text":"{\"after\":\"2h\"}"`) {
		t.Error(got)
	}
	// A field that is given twice, or cannot be used, is not guessed at.
	for _, body := range []string{
		`{"after":"1h","due":"2099-01-01T00:00:00Z"}`, `{"at":"1","scheduled":"2099-01-01T00:00:00Z"}`,
		`{"after":"1h","value":"a","payload":{"text":"b"}}`,
		`{"every":"1h","recurrence":{"every":"1h","catchUp":"all"}}`, `{"after":"1h","state":"paused"}`,
		`{"after":"1h","state":"triggered"}`, `{"after":"1h","topic":"others"}`,
	} {
		in.Call("PUT", path("twice"), body, "Content-Type", "application/json", toOrders, "orders").Is(
			400, "bad-request")
	}
}

// The API does not claim what it does not know.
func TestUnknown(t *testing.T) {
	in, f := faked(t)
	put := func() answer { return in.put("a", "") }
	f.set(func() { f.lose = true })
	if a := put().Is(202, "written"); a.Body["note"] == "" || a.Body["offset"] != 0.0 {
		t.Error(a.Text)
	}
	f.set(func() { f.lose, f.refuse = false, true })
	put().Is(503, "not-written")
	f.set(func() { f.refuse, f.unknown = false, true })
	put().Is(503, "unknown-outcome")
	f.set(func() { f.unknown = false })
	in.Call("PUT", path("b")+"?wait=written", "", in1h, "1h", toOrders, "orders").Is(202, "written")
	f.move(place(t, "timers", "a", partitions), "")
	if a := put().Is(503, "moving"); a.Header.Get("Retry-After") != "1" {
		t.Errorf("headers %v", a.Header)
	}
	in.Get(path("a")).Is(503, "moving")
}

// Whichever instance is asked, the owner answers.
func TestOneHop(t *testing.T) {
	f := newFake("timers", partitions)
	a, b := start(t, f, "p0", true), start(t, f, "p1", true)
	stranger := start(t, f, "p2", false)
	at := place(t, "timers", "x", partitions)
	f.move(at, "p1")
	a.put("x", "payload").Is(201, "scheduled")
	for _, in := range []*instance{a, b} {
		in.Get(path("x")).Is(200, "").Has("payload")
		if got := in.Get(allTimers+"/count").Is(200, ""); got.Body["count"] != 1.0 {
			t.Error(got.Text)
		}
	}
	// An instance that does not ask others says which instance to ask.
	if got := stranger.Get(path("x")).Is(421, "elsewhere"); got.Body["owner"] != b.URL {
		t.Error(got.Text)
	}
	f.move(at, "older") // it has no API
	// The owners are not read again at once.
	until := func(status int) {
		await.Within(20*time.Second, func() bool { return a.Get(path("x")).Status == status })
	}
	until(421)
	a.Get(path("x")).Is(421, "elsewhere").Has("--api")
	f.set(func() { f.urls["older"] = "http://127.0.0.1:1" }) // it is gone
	until(503)
	a.Get(path("x")).Is(503, "moving")
	a.Call("DELETE", path("x"), "").Is(503, "moving")
	f.move(at, "p0") // at once: an instance asks nobody for what it owns
	a.Call("DELETE", path("x"), "").Is(200, "cancelled")
	c := a.Get("/v1/cluster").Is(200, "")
	if n := len(c.Body["partitions"].([]any)); n != partitions || c.Body["asked"] != "p0" {
		t.Error(c.Text)
	}
}

// A list merges all partitions. Its cursors lose and repeat nothing, even if timers of several
// partitions have the same place.
func TestLists(t *testing.T) {
	in := alone(t)
	r := rand.New(rand.NewPCG(1, 2))
	const timers = 120
	for i := range timers {
		due := time.Now().Add(time.Hour).Truncate(time.Hour).UnixMilli() + int64(r.IntN(5))
		in.Call("PUT", path(fmt.Sprintf("id-%03d", i)), "", "timer-at", fmt.Sprint(due), toOrders,
			fmt.Sprint("t", i%2)).Is(201, "")
	}
	for _, order := range []string{"due", "id"} {
		for _, filter := range []string{"", "&target=t1", "&prefix=id-1"} {
			for _, limit := range []int{3, 7, 1000} {
				seen, last := map[string]bool{}, ""
				list := fmt.Sprintf(allTimers+"?order=%s&limit=%d%s", order, limit, filter)
				in.Pages(list, func(page answer) {
					if n := len(page.Items("timers")); n > limit {
						t.Fatalf("%d timers, limit %d", n, limit)
					}
					for _, one := range page.Items("timers") {
						id := one["id"].(string)
						if seen[id] {
							t.Fatalf("%s twice", id)
						}
						seen[id] = true
						key := id
						if order == "due" {
							key = fmt.Sprintf("%020.0f", one["dueMillis"].(float64))
						}
						if key < last {
							t.Fatalf("%s behind %s", key, last)
						}
						last = key
					}
				})
				want := map[string]int{"": timers, "&target=t1": timers / 2, "&prefix=id-1": 20}[filter]
				if len(seen) != want {
					t.Errorf("%s%s limit %d: %d timers, want %d", order, filter, limit, len(seen), want)
				}
			}
		}
	}
	a := in.Get(allTimers + "?limit=1")
	in.Get(allTimers+"?limit=1&target=t1&cursor="+a.Body["cursor"].(string)).Is(400, "bad-request")
}

// The same POST with the same key creates the timers only once.
func TestBatch(t *testing.T) {
	in, f := faked(t)
	body := `{"timers":[{"value":"1","after":"1h","target":{"topic":"orders"}},{"id":"mine","after":"1h","target":{"topic":"orders"}},{"after":"never","target":{"topic":"orders"}}]}`
	post := func(key string) (statuses []int, ids []string) {
		a := in.post(body, "Idempotency-Key", key).Is(200, "")
		for _, one := range a.Items("results") {
			statuses = append(statuses, int(one["status"].(float64)))
			ids = append(ids, one["id"].(string))
		}
		return statuses, ids
	}
	first, ids := post("k1")
	again, same := post("k1")
	other, others := post("k2")
	if fmt.Sprint(first, again, other) != "[201 201 400] [200 200 400] [201 200 400]" || ids[0] != same[0] ||
		ids[0] == others[0] {
		t.Error(first, again, other, ids, same, others)
	}
	if n := len(f.all()); n != 3 {
		t.Errorf("%d timers", n)
	}
	in.post(`{"timers":[]}`).Is(400, "bad-request")
}

// A call that is repeated with its key has the same result even after its timers have fired, as long
// as they are remembered, and on whichever instance. A key belongs to one body.
func TestIdempotency(t *testing.T) {
	f := newFake("timers", partitions)
	a, b := start(t, f, "p0", true), start(t, f, "p1", true)
	for p := range int32(partitions) {
		f.move(timer.TopicPartition{Topic: "timers", Partition: p}, []string{"p0", "p1"}[p%2])
	}
	one := func(value string, n int) string {
		return `{"timers":[` + strings.Repeat(`{"value":"`+value+`","after":"1h","target":{"topic":"orders"}},`, n-1) +
			`{"value":"` + value + `","after":"1h","target":{"topic":"orders"}}]}`
	}
	post := func(in *instance, body string, headers ...string) answer {
		return in.Call("POST", allTimers, body,
			append([]string{"Content-Type", "application/json", "Idempotency-Key", "k"}, headers...)...)
	}
	if got := post(a, one("x", 8)).Is(200, ""); strings.Count(got.Text, `"status":201`) != 8 {
		t.Fatal(got.Text)
	}
	for _, when := range []string{"pending", "remembered"} {
		for _, in := range []*instance{a, b} {
			same := post(in, "\n"+strings.ReplaceAll(one("x", 8), `,"target"`, ` , "target"`)).Is(200, "")
			if strings.Count(same.Text, `"outcome":"unchanged"`) != 8 ||
				strings.Count(same.Text, `"state":"`+when+`"`) != 8 {
				t.Errorf("%s, made again: %s", when, same.Text)
			}
			for _, body := range []string{one("y", 8), one("x", 7), one("x", 9)} {
				if p := post(in, body).Is(422, "idempotency-key-reused"); p.Header.Get(
					"Content-Type") != "application/problem+json" {
					t.Errorf("%v", p.Header)
				}
			}
		}
		if when == "pending" {
			id := post(a, one("x", 8)).Items("results")[0]["id"].(string)
			a.Get(path(id)).Is(200, "")
			f.fire()
			a.Get(path(id)).Is(404, "not-found")
			a.Call("DELETE", path("none"), "").Is(404, "not-found")
			a.put(id, "", "If-Match", "*").Is(412, "condition-not-met")
		}
	}
	f.fire() // their memory has ended
	if n := len(f.all()); n != 0 {
		t.Errorf("%d are left", n)
	}
	if got := post(a, one("y", 8), "Idempotency-Window", "0").Is(200, ""); strings.Count(
		got.Text, `"status":201`) != 8 {
		t.Error(got.Text)
	}
	post(a, one("x", 8)).Is(422, "idempotency-key-reused") // while the timer is pending it has the key
	f.fire()
	if n := len(f.all()); n != 0 {
		t.Errorf("%d are remembered for no time", n)
	}
	post(a, one("y", 8), "Idempotency-Window", "604801").Is(400, "bad-request")
	if got := post(a, `{"timers":[{"after":"1h","remember":"1h","target":{"topic":"orders"}}]}`).Is(200, ""); !strings.Contains(got.Text, `"status":400`) {
		t.Error(got.Text)
	}
	// A timer with an ID is remembered if its request asks for that.
	a.put("own", "", "timer-remember", "1h").Is(201, "scheduled")
	f.fire()
	gone := a.put("own", "", "If-None-Match", "*").Is(412, "condition-not-met")
	if gone.Object("pending")["state"] != "remembered" {
		t.Error(gone.Text)
	}
	a.Call("DELETE", path("own"), "").Is(404, "not-found") // and it is forgotten
	a.put("own", "", "If-None-Match", "*").Is(201, "scheduled")
}

// A job steers the timers that its filter chooses and no others.
func TestJobs(t *testing.T) {
	in, f := faked(t)
	for i := range 100 {
		in.put(fmt.Sprintf("%d-%d", i%2, i), "").Is(201, "")
	}
	dry := in.Call("POST", allTimers+"/cancel?prefix=1-&dry-run=true", "").Is(200, "")
	if dry.Object("matching")["count"] != 50.0 || len(f.all()) != 100 {
		t.Fatal(dry.Text)
	}
	run := func(action string) map[string]any {
		t.Helper()
		a := in.Call("POST", allTimers+"/"+action+"?prefix=1-", "").Is(202, "")
		return ended(t, in, a)
	}
	if j := run("pause"); j["state"] != "done" || j["changed"] != 50.0 {
		t.Error(j)
	}
	if j := run("pause"); j["spared"] != 50.0 {
		t.Error(j)
	}
	if j := run("cancel"); j["changed"] != 50.0 || j["failed"] != 0.0 {
		t.Error(j)
	}
	if n := len(f.all()); n != 50 {
		t.Errorf("%d timers are left", n)
	}
	in.Call("POST", allTimers+"/cancel?dry-run=true", "").Is(200, "")
	// A job that waits for a partition can be stopped.
	f.move(place(t, "timers", "0-0", partitions), "")
	a := in.Call("POST", allTimers+"/cancel?prefix=0-", "").Is(202, "")
	at := a.Header.Get("Location")
	in.Call("DELETE", at, "").Is(200, "")
	await.Until(t, 20*time.Second, "the job is stopped",
		func() bool { return in.Get(at).Is(200, "").Body["state"] == "stopped" })
}

// At a time, a caller has four jobs, all callers have 16 jobs and 32 streams of events, and a POST
// has a limit: docs/LIMITS.md. Other callers have their share of each.
func TestAtMost(t *testing.T) {
	in, f := faked(t)
	f.move(place(t, "timers", "a", partitions), "") // jobs wait for it
	const job = allTimers + "/cancel?all=true"
	first := in.Call("POST", job, "").Is(202, "").Header.Get("Location")
	for range 3 {
		in.Call("POST", job, "").Is(202, "")
	}
	in.Call("POST", job, "").Is(429, "too-many-jobs")
	in.Call("DELETE", first, "").Is(200, "")
	await.Until(t, 20*time.Second, "a job that was stopped gives its place up",
		func() bool { return in.Call("POST", job, "").Status == 202 })
	for _, caller := range []string{"a", "b", "c"} {
		for range 4 {
			in.Call("POST", job, "", "Test-Caller", caller).Is(202, "")
		}
	}
	in.Call("POST", job, "", "Test-Caller", "d").Is(429, "too-many-jobs")

	const events = "/v1/topics/timers/events"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	streams := func(n int, caller string) {
		t.Helper()
		for range n {
			resp, err := in.HTTP.Do(in.Prepare("GET", events, nil, "Test-Caller", caller).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { resp.Body.Close() })
			if resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
		}
		in.Get(events, "Test-Caller", caller).Is(429, "too-many-streams")
	}
	streams(32, "")
	streams(16, "other") // each one ends one of the first caller's
	cancel()

	const post = allTimers
	in.Call("POST", post, `{"timers":[`+strings.Repeat(`{"id":"a"},`, 1000)+`{"id":"a"}]}`, "Content-Type",
		"application/json").Is(400, "bad-request")
	in.Call("POST", post, `{"timers":[]}`+strings.Repeat(" ", 8<<20), "Content-Type", "application/json").Is(413, "too-large")
	in.Get(allLetters+"?limit=101").Is(400, "bad-request")
}

// A job writes no more requests a second than it was told to, however large its pages are.
func TestRateOfAJob(t *testing.T) {
	in, f := faked(t)
	var timers []string
	for i := range 40 {
		timers = append(timers, fmt.Sprintf(`{"id":"rate-%d","after":"1h","target":{"topic":"orders"}}`, i))
	}
	in.post(`{"timers":[`+strings.Join(timers, ",")+`]}`).Is(200, "")
	const perSecond = 30
	began := time.Now()
	job := in.Call("POST", fmt.Sprint(allTimers+"/cancel?all=true&rate=", perSecond), "").Is(202, "")
	for len(f.all()) > 0 {
		gone := 40 - len(f.all())
		if may := 3 + int(time.Since(began).Seconds()*perSecond) + 1; gone > may {
			t.Fatalf("%d are cancelled after %v, want %d at most", gone, time.Since(began), may)
		}
		if time.Since(began) > time.Minute {
			t.Fatal(in.Get(job.Header.Get("Location")).Text)
		}
		await.For(t, time.Millisecond)
	}
	if took, want := time.Since(began), time.Second*(40-3)/perSecond; took < want {
		t.Errorf("it has taken %v, want %v at least", took, want)
	}
}

func TestNext(t *testing.T) {
	in := alone(t)
	a := in.Get("/v1/next?cron=0+9+*+*+mon-fri&zone=Africa%2FLagos&n=2&from=2026-11-20T12:00:00Z").Is(200, "")
	if got := fmt.Sprint(a.Body["next"]); got != "[2026-11-23T09:00:00+01:00 2026-11-24T09:00:00+01:00]" {
		t.Error(got)
	}
	// The limit of an expression is that of a request.
	longest := "/v1/next?cron=0+9+*+*+*" + strings.Repeat("+", calendar.MaxExpressionBytes-len("0 9 * * *"))
	in.Get(longest).Is(200, "")
	in.Get(longest+"+").Is(400, "bad-request")
}

// The document names every operation, and the page for people loads nothing.
func TestDocument(t *testing.T) {
	in := alone(t)
	doc := in.Get("/openapi.json").Is(200, "")
	if doc.Body["openapi"] != "3.1.0" || len(doc.Object("paths")) < 12 {
		t.Errorf("%.300s", doc.Text)
	}
	if a := in.Get("/openapi.yaml"); a.Status != 200 || !strings.Contains(a.Text, "openapi: 3.1.0") {
		t.Errorf("%d %.300s", a.Status, a.Text)
	}
	page := in.Get("/docs").Is(200, "")
	for _, bad := range []string{"http://", "https://", "<script", "src="} {
		if strings.Contains(page.Text, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if !strings.Contains(page.Text, "/v1/topics/{topic}/timers/{id}/trigger") {
		t.Error("the page lacks an operation")
	}
}

// A request that is sent between instances keeps null apart from empty.
func TestRequestOnItsWay(t *testing.T) {
	for _, want := range []route.Request{{ID: []byte("a")}, {ID: []byte("a"), Value: []byte{}},
		{ID: []byte{0xff}, Value: []byte{0}}} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got route.Request
		if err := json.Unmarshal(text, &got); err != nil || !bytes.Equal(got.Value, want.Value) ||
			(got.Value == nil) != (want.Value == nil) || !bytes.Equal(got.ID, want.ID) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// A timer whose instants RFC 3339 cannot write is shown nevertheless, and does not break lists.
func TestInstantsBeyondTheCalendar(t *testing.T) {
	in := alone(t)
	in.Call("PUT", path("end"), "", "timer-every", "1h", "timer-until", "999999999999999", toOrders, "orders").Is(
		201, "scheduled")
	in.Call("PUT", path("begin"), "", "timer-at", "0000-01-01T00:00:00+01:00", toOrders, "orders").Is(201, "scheduled")
	in.Get(path("end")).Is(200, "").Has(`"until":"9999-12-31T23:59:59.999Z"`)
	if a := in.Get(allTimers).Is(200, ""); !strings.Contains(
		a.Text, `"due":"0000-01-01T00:00:00Z","dueMillis":-62167222800000`) || len(a.Items("timers")) != 2 {
		t.Error(a.Text)
	}
	for _, from := range []string{"253402300800000", "9223372036854775807", "-9223372036854775808"} {
		in.Get("/v1/next?cron=@daily&from="+from).Is(400, "bad-request")
	}
	a := in.Get("/v1/next?cron=@daily&n=1000&zone=Africa%2FLagos&from=9999-12-30T12:00:00Z").Is(200, "")
	if len(a.Items("next")) != 1 {
		t.Error(a.Text)
	}
}

// Jobs by filter, and stopping them, need a right, because they affect the work of others.
func TestJobsNeedAdmin(t *testing.T) {
	in, f := faked(t)
	cancel := allTimers + "/cancel?prefix=a-"
	var as atomic.Int32 // of the caller; a job checks it too
	f.may = func(_ context.Context, role access.Role, topic, id string) error {
		rank := map[access.Role]int{access.Read: 1, access.Write: 2, access.Admin: 3}
		if rank[access.Role(as.Load())] < rank[role] || topic != "timers" || !strings.HasPrefix(id, "a-") {
			return fmt.Errorf("no right to %s %s", role, id)
		}
		return nil
	}
	as.Store(int32(access.Write))
	in.Call("POST", cancel, "").Is(403, "forbidden")
	in.Call("POST", cancel+"&dry-run=true", "").Is(200, "")
	as.Store(int32(access.Admin))
	in.Call("POST", allTimers+"/cancel?all=true", "").Is(403, "forbidden")
	at := in.Call("POST", cancel, "").Is(202, "").Header.Get("Location")
	as.Store(int32(access.Write))
	in.Get(at).Is(200, "")
	in.Call("DELETE", at, "").Is(403, "forbidden")
}

// A job can be found and stopped from any instance, and any instance lists all jobs, for callers
// that may see them.
func TestJobsOfAllInstances(t *testing.T) {
	f := newFake("timers", partitions)
	a, b := start(t, f, "p0", true), start(t, f, "p1", true)
	alone := start(t, f, "p2", false)
	f.move(timer.TopicPartition{Topic: "timers", Partition: 1}, "p1")
	f.move(timer.TopicPartition{Topic: "timers", Partition: 2}, "") // a job waits for it
	const from = allTimers + "/cancel?prefix="
	at := a.Call("POST", from+"a-", "").Is(202, "").Header.Get("Location")
	other := b.Call("POST", from+"b-", "").Is(202, "").Header.Get("Location")
	for _, in := range []*instance{a, b} {
		in.Get(at).Is(200, "")
		in.Get(other).Is(200, "")
		list := in.Get("/v1/jobs").Is(200, "")
		if all := list.Body["jobs"].([]any); len(all) != 2 || all[0].(map[string]any)["prefix"] != "b-" ||
			list.Body["unasked"] != nil {
			t.Errorf("jobs %s", list.Text)
		}
	}
	elsewhere := alone.Get(at).Is(421, "elsewhere")
	if owner, _ := elsewhere.Body["owner"].(string); owner != a.URL {
		t.Errorf("owner %q of %s, want %q", owner, elsewhere.Text, a.URL)
	}
	if list := alone.Get("/v1/jobs").Is(200, ""); len(list.Items("jobs")) != 0 ||
		len(list.Items("unasked")) != 2 {
		t.Errorf("jobs of one that asks nobody: %s", list.Text)
	}
	f.set(func() {
		f.may = func(_ context.Context, _ access.Role, _, id string) error {
			if strings.HasPrefix(id, "b-") {
				return nil
			}
			return errors.New("no right")
		}
	})
	b.Get(at).Is(403, "forbidden")
	b.Call("DELETE", at, "").Is(403, "forbidden")
	if list := a.Get("/v1/jobs").Is(200, ""); len(list.Items("jobs")) != 1 {
		t.Errorf("jobs of who may see one: %s", list.Text)
	}
	f.set(func() { f.may = nil })
	b.Call("DELETE", at, "").Is(200, "")
	await.Until(t, time.Minute, "a job is stopped by another instance",
		func() bool { return b.Get(at).Body["state"] == "stopped" })
	for _, id := range []string{"none", "none-p0", "none-p1", "none-p9"} {
		a.Get("/v1/jobs/"+id).Is(404, "not-found")
	}
	f.set(func() { f.urls["p0"] = "http://127.0.0.1:1" }) // it may be alive
	c := start(t, f, "p3", true)                          // it has not looked up the other instances yet
	c.Get(at).Is(503, "moving")
}

// A job stops when the right that it was started with is taken away. Timers that it has not reached
// by then are not changed.
func TestJobEndsWithItsRight(t *testing.T) {
	in, f := faked(t)
	const n = 900 // more than a job steers at a time
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"id":"a-%d","after":"1h","target":{"topic":"orders"}}`, i))
	}
	in.post(`{"timers":[`+strings.Join(all, ",")+`]}`).Is(200, "")
	f.set(func() {
		f.may = func(_ context.Context, role access.Role, _, _ string) error {
			if role == access.Admin && len(f.all()) < n { // it has begun
				return errors.New("no right any more")
			}
			return nil
		}
	})
	job := ended(t, in, in.Call("POST", allTimers+"/cancel?prefix=a-", ""))
	if text := fmt.Sprint(job); job["state"] != "stopped" || !strings.Contains(text, "taken away") ||
		len(f.all()) == 0 || len(f.all()) == n {
		t.Errorf("%s, and %d of %d timers are left", text, len(f.all()), n)
	}
}

// A path that is not clean does not exist. The caller is not redirected to another one, under which
// another timer may be: by following a 307 it would cancel that timer.
func TestPathsAreNotGuessedAt(t *testing.T) {
	in := alone(t)
	in.put("y", "").Is(201, "")
	for _, bad := range []string{"x/../y", "/y", "./y"} {
		in.Call("DELETE", path(bad), "").Is(404, "")
	}
	in.Get(path("y")).Is(200, "")
}

// If the API makes the ID of a timer, a condition cannot say that the ID is already there.
func TestNewIDUnderACondition(t *testing.T) {
	in := alone(t)
	a := in.post(`{"timers":[{"after":"1h","if":"present","target":{"topic":"orders"}}]}`).Is(200, "")
	if !strings.Contains(a.Text, `"status":412`) {
		t.Error(a.Text)
	}
}

// One call counts the timers of all partitions that fire before each of many instants.
func TestCountUntil(t *testing.T) {
	in, f := faked(t)
	at := func(h int) string { return time.Date(2030, 1, 1, h, 0, 0, 0, time.UTC).Format(time.RFC3339) }
	for i := range 12 {
		in.Call("PUT", path(fmt.Sprintf("%c-%d", 'a'+rune(i%2), i)), "", "timer-at", at(i), toOrders, "orders").Is(
			201, "")
	}
	in.Call("POST", path("a-0")+"/pause", "").Is(200, "paused")
	const count = allTimers + "/count?until="
	got := in.Get(count+at(3)+","+at(3)+","+at(7)+",1893542400000").Is(200, "")
	if got.Body["count"] != 11.0 || fmt.Sprint(got.Body["until"]) != "["+
		"map[at:2030-01-01T03:00:00Z count:2 exact:true] map[at:2030-01-01T03:00:00Z count:2 exact:true] "+
		"map[at:2030-01-01T07:00:00Z count:6 exact:true] map[at:2030-01-02T00:00:00Z count:11 exact:true]]" {
		t.Error(got.Text)
	}
	if got := in.Get(count+at(7)+"&prefix=b-").Is(200, ""); got.Body["count"] != 3.0 {
		t.Error(got.Text)
	}
	for _, bad := range []string{at(7) + "," + at(3), "soon", at(1) + ",", strings.Repeat(at(1)+",", 100) + at(1)} {
		in.Get(count+bad).Is(400, "bad-request")
	}
	f.move(timer.TopicPartition{Topic: "timers", Partition: 1}, "")
	got = in.Get(count+at(7)).Is(200, "")
	if got.Body["exact"] != false || !strings.Contains(got.Text, `"missing":[{"partition":1,"reason":"moving"`) {
		t.Error(got.Text)
	}
}

// A list of a state has also the timers that recur, whatever their state, and a count with a limit says that it is not
// exact.
func TestRecurringTimersAndBoundedCounts(t *testing.T) {
	in := alone(t)
	for i := range 12 {
		in.put(fmt.Sprint("once-", i), "").Is(201, "")
	}
	for _, id := range []string{"every", "paused"} {
		in.Call("PUT", path(id), "", "timer-every", "1h", toOrders, "orders").Is(201, "")
	}
	in.Call("POST", path("paused")+"/pause", "").Is(200, "paused")
	const all = allTimers
	if got := in.Get(all+"?state=recurring").Is(200, ""); strings.Count(got.Text, `"id"`) != 2 {
		t.Error(got.Text)
	}
	for query, want := range map[string]string{
		"?state=recurring":       "map[count:2 exact:true]",
		"?prefix=once&limit=100": "map[count:12 exact:true]",
		"?state=paused":          "map[count:1 exact:true]",
	} {
		if got := in.Get(all+"/count"+query).Is(200, ""); fmt.Sprint(got.Body) != want {
			t.Errorf("%s: %s, want %s", query, got.Text, want)
		}
	}
	if got := in.Get(all+"/count?limit=1").Is(200, ""); got.Body["exact"] != false ||
		got.Body["count"].(float64) > partitions {
		t.Error(got.Text)
	}
	in.Get(all+"/count?limit=0").Is(400, "bad-request")
	// A job for those that recur spares the others.
	got := in.Call("POST", all+"/cancel?state=recurring&dry-run=true", "").Is(200, "")
	if !strings.Contains(got.Text, `"count":2`) {
		t.Error(got.Text)
	}
}

// An ID that is too long is not sent to another instance, because it might not fit into the URL.
func TestLongIDs(t *testing.T) {
	in, f := faked(t)
	for p := range int32(partitions) {
		f.move(timer.TopicPartition{Topic: "timers", Partition: p}, "")
	}
	in.Get(path(strings.Repeat("x", 512))).Is(503, "moving")
	in.Get(path(strings.Repeat("x", 513))).Is(404, "not-found")
	in.Get(allTimers+"?prefix="+strings.Repeat("x", 513)).Is(400, "bad-request")
}

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
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
		"labels": `{"after":"1h","labels":{"team":"a","order":"x=1"},"labelsHeader":"l","target":{"topic":"orders"}}`,
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

// A period goes on when its timer is got and put again: it is still counted from the end of January.
func TestRoundTripOfPeriod(t *testing.T) {
	in := alone(t)
	for id, body := range map[string]string{
		"months": `{"every":"P1M","zone":"Europe/Berlin","at":"2020-01-31T09:00:00+01:00","count":900,"target":{"topic":"orders"}}`,
		"days":   `{"every":"P1D","zone":"Europe/Berlin","at":"2020-01-31T02:30:00+01:00","target":{"topic":"orders"}}`,
	} {
		in.Call("PUT", path(id), body, "Content-Type", "application/json").Is(201, "scheduled")
		was := in.Get(path(id)).Is(200, "")
		in.Call("PUT", path(id), was.Text, "Content-Type", was.Header.Get("Content-Type")).Is(200, "replaced")
		is := in.Get(path(id)).Is(200, "")
		delete(was.Body, "source")
		delete(is.Body, "source")
		if !reflect.DeepEqual(was.Body, is.Body) || is.Body["occurrence"] == 1.0 {
			t.Errorf("was\n%v, and is\n%v", was.Body, is.Body)
		}
	}
}

// The API makes no claim without evidence.
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

// What GET shows, sent again with if: changed, changes nothing; with another payload the schedule goes on.
func TestShownTimerDeclaredAgain(t *testing.T) {
	in := alone(t)
	for i, when := range [][]string{
		{"timer-at", "2040-01-31T09:00:00Z"},
		{"timer-at", "2040-01-31T09:00:00Z", "timer-jitter", "10m"},
		{"timer-every", "1h", "timer-at", "2020-01-31T09:30:00.250Z", "timer-count", "900000", "timer-jitter", "10m"},
		{"timer-every", "90m"},
		{"timer-every", "P1M", "timer-zone", "Europe/Berlin", "timer-at", "2020-01-31T09:00:00Z", "timer-count", "900"},
		{"timer-every", "P1W", "timer-zone", "Europe/Berlin", "timer-until", "2099-01-01T00:00:00Z"},
		{"timer-cron", "0 9 L * *", "timer-at", "2020-01-31T10:00:00Z", "timer-catch-up", "none", "timer-count", "900"},
		{"timer-cron", "@daily", "timer-zone", "Africa/Lagos"},
	} {
		id := path(fmt.Sprint("t", i))
		in.Call("PUT", id, "x", append(when, toOrders, "orders")...).Is(201, "")
		shown := in.Get(id).Is(200, "")
		again := func(change func(map[string]any)) answer {
			body := maps.Clone(shown.Body)
			delete(body, "id")
			body["if"] = "changed"
			change(body)
			text, _ := json.Marshal(body)
			return in.Call("PUT", id, string(text), "Content-Type", "application/json")
		}
		if a := again(func(map[string]any) {}).Is(200, ""); a.Body["outcome"] != "unchanged" {
			t.Errorf("%q: %s", when, a.Text)
		}
		a := again(func(b map[string]any) { b["payload"] = map[string]any{"text": "y", "bytes": 1} }).Is(200, "")
		is := a.Object("timer")
		if a.Body["outcome"] != "replaced" || fmt.Sprint(is["due"], is["occurrence"], is["recurrence"]) !=
			fmt.Sprint(shown.Body["due"], shown.Body["occurrence"], shown.Body["recurrence"]) {
			t.Errorf("%q: %s\nafter %s", when, a.Text, shown.Text)
		}
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

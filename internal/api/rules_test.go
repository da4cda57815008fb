package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
)

// wrongRequests are requests that an owner rejects whatever is in the log, with the status and the reason of the
// rejection.
var wrongRequests = []struct {
	name, method, path, body string
	headers                  []string
	status                   int
	reason                   string
}{
	{"no due time", "PUT", path("a"), "", []string{toOrders, "orders"}, 400, "no-due-time"},
	{"a duration", "PUT", path("a"), "", []string{in1h, "1 hour", toOrders, "orders"}, 400, "bad-duration"},
	{"a time", "PUT", path("a"), "", []string{"timer-at", "tomorrow", toOrders, "orders"}, 400, "bad-time"},
	{"a time in JSON", "PUT", path("a"), `{"at":"tomorrow","target":{"topic":"orders"}}`, []string{"Content-Type",
		"application/json"},
		400, "bad-time"},
	{"a misspelt header", "PUT", path("a"), "", []string{"timer-afer", "1h", toOrders, "orders"}, 400,
		"unknown-header"},
	{"a header twice", "PUT", path("a"), "", []string{in1h, "1h", in1h, "2h", toOrders, "orders"}, 400,
		"duplicate-header"},
	{"two due times", "PUT", path("a"), "", []string{in1h, "1h", "timer-at", "1795344290000", toOrders, "orders"},
		400, "conflicting-headers"},
	{"a cron expression", "PUT", path("a"), "", []string{"timer-cron", "61 * * * *", toOrders, "orders"}, 400,
		"bad-cron"},
	{"a zone", "PUT", path("a"), "", []string{"timer-cron", "0 9 * * *", "timer-zone", "Europe/Berln", toOrders,
		"orders"},
		400, "unknown-zone"},
	{"an end before the first", "PUT", path("a"), "",
		[]string{"timer-every", "1h", "timer-until", "2020-01-01T00:00:00Z", toOrders, "orders"}, 400,
		"until-before-first"},
	{"no target", "PUT", path("a"), "", []string{in1h, "1h"}, 400, "no-target"},
	{"a target's name", "PUT", path("a"), "", []string{in1h, "1h", toOrders, "or ders"}, 400, "bad-target"},
	{"a forbidden target", "PUT", path("a"), "", []string{in1h, "1h", toOrders, "forbidden"}, 403,
		"target-not-allowed"},
	{"beyond the horizon", "PUT", path("a"), "", []string{in1h, "200000d", toOrders, "orders"}, 400, "beyond-horizon"},
	{"a long ID", "PUT", path(strings.Repeat("x", 513)), "", []string{in1h, "1h", toOrders, "orders"}, 400, "bad-key"},
	{"a large payload", "PUT", path("a"), strings.Repeat("x", 1001), []string{in1h, "1h", toOrders, "orders"}, 413,
		"value-too-large"},
	{"many headers", "PUT", path("a"), "", passed(129), 431, "too-many-headers"},
	{"a header that is not UTF-8", "PUT", path("a"), "", []string{in1h, "1\xff", toOrders, "orders"}, 400, "not-utf8"},
	{"a cancel's condition", "DELETE", path("a"), "", []string{"timer-if", "gone"}, 400, "bad-if"},
	{"two conditions of a pause", "POST", path("a") + "/pause", "", []string{"timer-if", "absent", "If-Match", "*"},
		400, "duplicate-header"},
}

// start40 is the beginning of a detail: the rest may have the time.
func start40(a answer) string { return fmt.Sprintf("%.40s", a.Body["detail"]) }

// passed are the headers of a good request with n headers that are passed on.
func passed(n int) []string {
	all := []string{in1h, "1h", toOrders, "orders"}
	for i := range n {
		all = append(all, "waterclock-pass", fmt.Sprint("h", i, "=v"))
	}
	return all
}

// A request that its owner would reject is answered with the same status, reason and detail, and is not written: a
// mistake is no dead letter.
func TestWrongRequestsAreNotWritten(t *testing.T) {
	in, f := faked(t)
	other := newFake("timers", partitions)
	other.unjudged = true
	unjudged := start(t, other, "p0", false)
	for _, c := range wrongRequests {
		t.Run(c.name, func(t *testing.T) {
			got := in.Call(c.method, c.path, c.body, c.headers...).Is(c.status, c.reason)
			if got.Body["request"] != nil {
				t.Errorf("the request is in the log: %s", got.Text)
			}
			// Its owner has the last word. If the API knows none of the rules, the request is a dead letter as ever.
			want := unjudged.Call(c.method, c.path, c.body, c.headers...).Is(c.status, c.reason)
			if want.Body["request"] == nil || start40(want) != start40(got) {
				t.Errorf("the API says %s, the owner %s", got.Text, want.Text)
			}
			written := in.Call(c.method, c.path+"?wait=written", c.body, c.headers...)
			if written.Is(c.status, c.reason); written.Body["request"] != nil {
				t.Errorf("with wait=written the request is in the log: %s", written.Text)
			}
		})
	}
	if n := f.written(); n != 0 {
		t.Errorf("%d requests are in the log", n)
	}
}

// A request that only the log can decide is written, and decided there.
func TestOnlyTheLogDecidesConditions(t *testing.T) {
	in, f := faked(t)
	in.put("a", "x", "If-Match", "*").Is(412, "condition-not-met")
	in.Call("DELETE", path("a"), "").Is(404, "not-found")
	if n := f.written(); n != 2 {
		t.Errorf("%d requests are in the log, want 2", n)
	}
}

// Of a list the wrong timers are left out, each with its problem, and the others are written.
func TestWrongTimersOfAListAreNotWritten(t *testing.T) {
	in, f := faked(t)
	got := in.post(`{"timers":[
		{"id":"a","after":"1h","target":{"topic":"orders"}},
		{"id":"b","after":"1 hour","target":{"topic":"orders"}},
		{"id":"c","after":"1h","target":{"topic":"forbidden"}},
		{"after":"1h","target":{"topic":"orders"},"maxLate":"1x"},
		{"id":"e","after":"1h","target":{"topic":"orders"}}]}`, "Idempotency-Key", "k").Is(200, "")
	var says []string
	for _, r := range got.Items("results") {
		word := fmt.Sprint(r["status"])
		if p, ok := r["problem"].(map[string]any); ok {
			word += fmt.Sprint(" ", p["reason"], " ", p["request"])
		}
		says = append(says, word)
	}
	want := "[201 400 bad-duration <nil> 403 target-not-allowed <nil> 400 bad-max-late <nil> 201]"
	if fmt.Sprint(says) != want {
		t.Errorf("got %v, want %s: %s", says, want, got.Text)
	}
	if n := f.written(); n != 2 {
		t.Errorf("%d requests are in the log, want 2", n)
	}
}

// everyRecord rejects all records of a fixed-delay topic. It implements api.Rules.
type everyRecord struct{}

func (everyRecord) Reject(int32, *route.Request) *timer.Refusal {
	return &timer.Refusal{Reason: "no-effect", Detail: "leave it out."}
}

// Dead letters that would be rejected again are not sent again: neither one, nor by a job for all of a reason, and also
// not if they are of a fixed-delay topic. Once the settings allow them, they are.
func TestHopelessDeadLettersAreNotResent(t *testing.T) {
	l := &fakeLogs{}
	now := time.Now()
	l.letter("timers", 0, now, "bad", "bad-cron", "timer-cron", "61 * * * *", toOrders, "orders")
	l.letter("timers", 0, now, "allowed", "target-not-allowed", in1h, "1h", toOrders, "orders")
	l.letter("retry", 0, now, "", "no-effect", "timer-at", "1795344290000")
	f := newFake("timers", partitions)
	f.delayRules = everyRecord{}
	in := start(t, f, "p0", false, withLogs(l))
	one := in.Call("POST", allLetters+"/0/0/resend", "").Is(400, "bad-cron")
	in.Call("POST", "/v1/topics/retry/dead-letters/0/0/resend", "").Is(400, "no-effect")
	if n := f.written(); n != 0 || one.Body["request"] != nil {
		t.Fatalf("%d requests are in the log: %s", n, one.Text)
	}
	done := ended(t, in, in.Call("POST", allLetters+"/resend?all=true", ""))
	failure, _ := done["failure"].(string)
	if done["failed"] != 1.0 || done["changed"] != 1.0 || !strings.HasPrefix(failure, "bad-cron: timer-cron is") {
		t.Errorf("got %v", done)
	}
	if n := f.written(); n != 1 {
		t.Errorf("%d requests are in the log, want 1", n)
	}
}

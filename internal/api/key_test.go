package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
)

// A key belongs to a POST of timers: it counts there, and is refused elsewhere. No key is
// ignored.
func TestKeysAreNotIgnored(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false)
	in.call(t, "PUT", path("a"), "", in1h, "1h", toOrders, "orders").is(t, 201, "scheduled")
	for _, header := range []string{"Idempotency-Key", "Idempotency-Window"} {
		for _, c := range []struct{ method, path string }{
			{"PUT", path("a")}, {"DELETE", path("a")}, {"POST", path("a") + "/trigger"}, {"POST", path("a") + "/pause"},
			{"POST", path("a") + "/resume"},
			{"POST", "/v1/topics/timers/timers/cancel?all=true"}, {"POST",
				"/v1/topics/timers/dead-letters/resend?all=true"},
			{"POST", "/v1/topics/timers/dead-letters/0/0/resend"},
		} {
			headers := []string{header, "7"}
			if c.method == "PUT" {
				headers = append(headers, in1h, "2h", toOrders, "orders")
			}
			p := in.call(t, c.method, c.path, "", headers...).is(t, 400, "bad-request")
			detail := fmt.Sprint(p.body["detail"])
			if !strings.Contains(strings.ToLower(detail), strings.ToLower(header)) || c.method == "PUT" &&
				(!strings.Contains(detail, "If-None-Match: *") || !strings.Contains(detail, "timer-remember")) {
				t.Errorf("%s %s with %s: %s", c.method, c.path, header, p.text)
			}
		}
		in.call(t, "GET", path("a"), "", header, "7").is(t, 200, "") // reading twice does no harm
	}
	body := `{"timers":[{"after":"1h","target":{"topic":"orders"}}]}`
	for _, headers := range [][]string{{"Idempotency-Window", "60"},
		{"Idempotency-Key", "", "Idempotency-Window", "60"}} {
		p := in.call(t, "POST", "/v1/topics/timers/timers", body,
			append(headers, "Content-Type", "application/json")...).is(t, 400, "bad-request")
		if !strings.Contains(p.text, "Idempotency-Window") {
			t.Errorf("a window without a key: %s", p.text)
		}
	}
	in.call(t, "POST", "/v1/topics/timers/timers", body, "Content-Type", "application/json", "Idempotency-Key", "").is(
		t, 400, "bad-request")
	if n := len(f.all()); n != 1 {
		t.Errorf("%d timers, want the one that was there", n)
	}
	// Some generated clients send every default of the document.
	in.call(t, "POST", "/v1/topics/timers/timers", body, "Content-Type", "application/json", "Idempotency-Window",
		"3600").is(t, 200, "")
}

// brokenLogs panics when asked for the bounds of its logs.
type brokenLogs struct{ emptyLogs }

func (brokenLogs) Bounds(context.Context, string) (map[int32][2]int64, error) { panic("a bug") }

// A stream that panics before it begins takes no place: the next callers find all places
// free.
func TestAStreamThatPanicsHoldsNoPlace(t *testing.T) {
	in := startWith(t, newFake("timers", partitions), "p0", false, brokenLogs{})
	for i := range 40 { // more than there are places
		if a := in.call(t, "GET", "/v1/topics/timers/events", ""); a.status != 500 {
			t.Fatalf("call %d: %d %s", i, a.status, a.text)
		}
	}
}

var _ api.Logs = brokenLogs{}

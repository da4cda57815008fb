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
	in, f := faked(t)
	in.put("a", "").Is(201, "scheduled")
	for _, header := range []string{"Idempotency-Key", "Idempotency-Window"} {
		for _, c := range []struct{ method, path string }{
			{"PUT", path("a")}, {"DELETE", path("a")}, {"POST", path("a") + "/trigger"}, {"POST", path("a") + "/pause"},
			{"POST", path("a") + "/resume"},
			{"POST", allTimers + "/cancel?all=true"}, {"POST", allLetters + "/resend?all=true"},
			{"POST", allLetters + "/0/0/resend"},
		} {
			headers := []string{header, "7"}
			if c.method == "PUT" {
				headers = append(headers, in1h, "2h", toOrders, "orders")
			}
			p := in.Call(c.method, c.path, "", headers...).Is(400, "bad-request")
			detail := fmt.Sprint(p.Body["detail"])
			if !strings.Contains(strings.ToLower(detail), strings.ToLower(header)) || c.method == "PUT" &&
				(!strings.Contains(detail, "If-None-Match: *") || !strings.Contains(detail, "timer-remember")) {
				t.Errorf("%s %s with %s: %s", c.method, c.path, header, p.Text)
			}
		}
		in.Get(path("a"), header, "7").Is(200, "") // reading twice does no harm
	}
	body := `{"timers":[{"after":"1h","target":{"topic":"orders"}}]}`
	for _, headers := range [][]string{{"Idempotency-Window", "60"},
		{"Idempotency-Key", "", "Idempotency-Window", "60"}} {
		p := in.Call("POST", allTimers, body,
			append(headers, "Content-Type", "application/json")...).Is(400, "bad-request")
		if !strings.Contains(p.Text, "Idempotency-Window") {
			t.Errorf("a window without a key: %s", p.Text)
		}
	}
	in.post(body, "Idempotency-Key", "").Is(400, "bad-request")
	if n := len(f.all()); n != 1 {
		t.Errorf("%d timers, want the one that was there", n)
	}
	// Some generated clients send every default of the document.
	in.post(body, "Idempotency-Window", "3600").Is(200, "")
}

// brokenLogs panics when asked for the bounds of its logs.
type brokenLogs struct{ emptyLogs }

func (brokenLogs) Bounds(context.Context, string) (map[int32][2]int64, error) { panic("a bug") }

// A stream that panics before it begins takes no place: the next callers find all places free.
func TestAStreamThatPanicsHoldsNoPlace(t *testing.T) {
	in := reading(t, brokenLogs{})
	for i := range 40 { // more than there are places
		if a := in.Get("/v1/topics/timers/events"); a.Status != 500 {
			t.Fatalf("call %d: %d %s", i, a.Status, a.Text)
		}
	}
}

var _ api.Logs = brokenLogs{}

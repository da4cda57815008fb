package api_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// bombs are bodies of 2 MB which take many times as much memory if they are decoded completely.
func bombs() map[string]string {
	return map[string]string{
		"numbers": `{"timers":[` + strings.Repeat("1,", 1_000_000) + `1]}`,
		"timers":  `{"timers":[` + strings.Repeat("{},", 700_000) + `{}]}`,
		"headers": `{"timers":[{"headers":[` + strings.Repeat("{},", 700_000) + `{}]}]}`,
		"depth":   `{"timers":[` + strings.Repeat(`{"target":`, 200_000),
	}
}

// A body takes memory for its bytes, not for the tree that it would decode to, and the answer
// does not grow with it.
func TestABodyOfManyElements(t *testing.T) {
	runs.NotRaced(t)
	in := alone(t)
	for name, body := range bombs() {
		got := in.post(body)
		before := allocated()
		again := in.post(body)
		grown := allocated() - before
		got.Is(400, "bad-request")
		if len(again.Text) > 16<<10 {
			t.Errorf("%s: an answer of %d bytes", name, len(again.Text))
		}
		if grown > 48<<20 {
			t.Errorf("%s: a body of %d bytes takes %d", name, len(body), grown)
		}
		if errs, _ := got.Body["errors"].([]any); len(errs) > 20 {
			t.Errorf("%s: %d errors", name, len(errs))
		}
	}
	for name, body := range map[string]string{
		"numbers": `{"headers":[` + strings.Repeat("1,", 1_000_000) + `1]}`,
		"headers": `{"headers":[` + strings.Repeat("{},", 700_000) + `{}]}`,
		"fields":  `{"headers":[{` + strings.Repeat(`"a":1,`, 300_000) + `"a":1}]}`,
	} {
		before := allocated()
		got := in.Call("POST", allLetters+"/0/0/resend", body, "Content-Type", "application/json")
		got.Is(400, "bad-request")
		if grown := allocated() - before; grown > 64<<20 || len(got.Text) > 16<<10 {
			t.Errorf("a correction, %s: a body of %d bytes takes %d, and has an answer of %d", name, len(body), grown,
				len(got.Text))
		}
	}
	timerType := "application/vnd.waterclock.timer+json"
	in.Call("PUT", path("a"), `{"headers":[`+strings.Repeat("{},", 2000)+`{}]}`, "Content-Type", timerType).Is(400, "bad-request")
	in.post(`{"timers":[`+strings.Repeat("{},", 1000)+`{}]}`).Is(400, "bad-request")
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// A caller without a right to a topic is refused before its body is read. The answer is the same
// for a topic that does not exist.
func TestRightsBeforeBodies(t *testing.T) {
	in, f := faked(t)
	f.set(func() {
		f.may = func(context.Context, access.Role, string, string) error { return errors.New("no right") }
	})
	for _, topic := range []string{"timers", "nosuch"} {
		for method, path := range map[string]string{"POST": "/timers", "PUT": "/timers/a",
			"POST ": "/dead-letters/0/0/resend"} {
			var read atomic.Bool
			body := readerFunc(func([]byte) (int, error) { read.Store(true); return 0, errors.New("it was read") })
			w := in.serve(t, strings.TrimSpace(method), "/v1/topics/"+topic+path, body)
			if w.Code != 403 || read.Load() || !strings.Contains(w.Body.String(), `"reason":"forbidden"`) {
				t.Errorf("%s %s: %d %s, read %v", method, path, w.Code, w.Body, read.Load())
			}
		}
	}
}

// An error in a body is described in terms of JSON, with its position.
func TestFaultsOfABody(t *testing.T) {
	in := alone(t)
	for body, want := range map[string]string{
		``:                                 "request body is required",
		`null`:                             "body: it is null, and needs {",
		`[]`:                               "body: it begins with [, and needs {",
		`{"timer":[]}`:                     `body: it has "timer", and needs timers, a list, and nothing else`,
		`{"timers":null}`:                  "body.timers: it is null, and needs [",
		`{"timers":[]}`:                    "body.timers: it has no timers",
		`{"timers":[null]}`:                "body.timers[0]: it is null, and needs a timer",
		`{"timers":[{"id":"a"},{"id":1}]}`: "body.timers[1]: id is number, and needs a text",
		`{"timers":[{"notOn":"a"}]}`:       "body.timers[0]: notOn is string, and needs a list",
		`{"timers":[{"valueBase64":1}]}`:   "body.timers[0]: valueBase64 is number, and needs base64 as text",
		`{"timers":[{"afer":"1h"}]}`:       `body.timers[0]: unknown field "afer"`,
		`{"timers":[{}],"more":1}`:         "body: it begins with more, and needs }",
		`{"timers":[{}]} x`:                "body: trailing data after the JSON value",
		`{"timers":[{}`:                    "body: it ends early",
		`{"timers":[{"headers":[{"name":"","value":"x"}]}]}`: "",
	} {
		got := in.post(body)
		if want == "" {
			if results := fmt.Sprint(got.Body["results"]); !strings.Contains(results, "has no name") {
				t.Errorf("%s: %s", body, got.Text)
			}
			continue
		}
		if d, _ := got.Is(400, "bad-request").Body["detail"].(string); !strings.HasPrefix(d, want) {
			t.Errorf("%s: %q, want %q", body, d, want)
		}
	}
	timerType := "application/vnd.waterclock.timer+json"
	for _, body := range []string{"null", `{"headers":[null],"after":"1h"}`, `{"after":"1h","headers":[{"value":"x"}]}`,
		`{"after":"1h"}{}`} {
		in.Call("PUT", path("a"), body, "Content-Type", timerType).Is(400, "bad-request")
	}
}

// The memory of a decoded body also counts against its caller.
func TestDecodedHeadersCount(t *testing.T) {
	runs.NotRaced(t)
	in := guarded(t, 4<<20, slog.New(slog.DiscardHandler))
	timer := `{"headers":[` + strings.Repeat("{},", 999) + `{}]}`
	body := `{"timers":[` + strings.Repeat(timer+",", 999) + timer + `]}`
	in.post(body).Is(503, "overloaded")
	in.post(`{"timers":[`+timer+`]}`).Is(200, "")
}

// The error names a field that must be base64 and is not.
func TestFaultsOfBase64(t *testing.T) {
	in := alone(t)
	for body, want := range map[string]string{
		`{"after":"1h","target":{"topic":"x"},"payload":{"base64":"***"}}`:                                            "payload.base64 is not base64: byte 0",
		`{"after":"1h","target":{"topic":"x","keyBase64":"YQ="}}`:                                                     "target.keyBase64 is not base64: byte 3",
		`{"after":"1h","idBase64":"YQ==","headers":[{"name":"base64","value":"***"},{"name":"a","valueBase64":"*"}]}`: "headers.valueBase64 is not base64",
	} {
		got := in.Call("PUT", path("a"), body, "Content-Type", "application/json").Is(400, "bad-request")
		all := in.post(`{"timers":[{"idBase64":"YQ==","after":"1h","target":{"topic":"x"}},`+body+`]}`).Is(400, "bad-request")
		if !strings.Contains(got.Text, want) || !strings.Contains(all.Text, "body.timers[1]: "+want) {
			t.Errorf("%s:\n%s\n%s", body, got.Text, all.Text)
		}
	}
}

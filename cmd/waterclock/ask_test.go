package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// get --history follows cursors, over pages that are empty too, and says since when the log tells.
func TestGetHistory(t *testing.T) {
	pages := map[string]string{
		"":   `{"events":[{"offset":90,"at":"2026-11-22T09:00:01Z","event":{"type":"fired","id":"a/1","at":1795338001000,"lateness":4,"target":"orders"}}],"cursor":"50","log":{}}`,
		"50": `{"events":[],"cursor":"20","log":{}}`,
		"20": `{"events":[{"offset":7,"at":"2026-11-22T09:00:00Z","event":{"type":"scheduled","id":"a/1","at":1795338000000}}],"log":{"begins":5,"oldest":"2026-11-21T08:00:00Z"}}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v1/topics/timers/timers/a%2F1/events" {
			t.Errorf("asked for %s", r.URL)
		}
		_, _ = w.Write([]byte(pages[r.URL.Query().Get("cursor")]))
	}))
	defer s.Close()
	for _, c := range []struct {
		args         []string
		out, outside string
	}{
		{nil, "2026-11-22T09:00:01.000Z fired a/1, 4 ms late, orders\n2026-11-22T09:00:00.000Z scheduled a/1\n", "begins at 2026-11-21T08:00:00Z"},
		{[]string{"--json"}, `{"type":"fired","id":"a/1","at":1795338001000,"lateness":4,"target":"orders"}` + "\n" + `{"type":"scheduled","id":"a/1","at":1795338000000}` + "\n", ""},
	} {
		var out, errs strings.Builder
		p := process{args: append([]string{"get", "--id", "a/1", "--history", "--url", s.URL}, c.args...), stdout: &out, stderr: &errs}
		if code := run(p); code != exitOK || out.String() != c.out || !strings.Contains(errs.String(), c.outside) || c.outside == "" && errs.Len() > 0 {
			t.Errorf("%v: exit %d, %q, want %q; %q", c.args, code, out.String(), c.out, errs.String())
		}
	}
}

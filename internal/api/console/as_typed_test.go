package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
)

// A form arrives as it was typed, or it is rejected and nothing is asked of the API: a byte that is not UTF-8 would
// become another character on its way, and a part of an address that cannot be read would be left out of a filter.
func TestFormsArriveAsTyped(t *testing.T) {
	f := newFake(t)
	f.answers["PUT /v1/topics/timers/timers/a"] = api.Result{Outcome: "scheduled", Topic: "timers"}
	const kind = "application/x-www-form-urlencoded"
	for _, c := range []struct {
		name, address, form, kind, coding string
		status                            int
		says                              string
	}{
		{"payload", "/schedule", "topic=timers&id=a&payload=%ff", kind, "", 400, "payload"},
		{"ID", "/schedule", "topic=timers&id=%ff", kind, "", 400, "is not UTF-8"},
		{"key", "/schedule", "topic=timers&id=a&target-key=%c3", kind, "", 400, "target-key"},
		{"header", "/schedule", "topic=timers&id=a&headers=n:+%ff", kind, "", 400, "headers"},
		{"header of a dead letter", "/dead-letter?topic=timers&partition=0&offset=1",
			"name=a&value=%ff&as=text&do=send", kind, "", 400, "value"},
		{"name of a field", "/schedule", "topic=timers&id=a&%ff=1", kind, "", 400, "is not UTF-8"},
		{"a field twice", "/schedule", "topic=timers&id=a&id=b", kind, "", 400, "2 times"},
		{"a field that cannot be read", "/schedule", "topic=timers&id=a&after=%zz", kind, "", 400, "cannot be read"},
		{"charset", "/schedule", "topic=timers&id=a", kind + "; charset=iso-8859-1", "", 415, "UTF-8"},
		{"compressed", "/schedule", "topic=timers&id=a", kind, "gzip", 415, "Content-Encoding"},
		{"a filter of which a part cannot be read", "/bulk?topic=timers&state=paused&q=%zz", "do=cancel", kind, "",
			400, "cannot be read"},
		{"a semicolon in a filter", "/bulk?topic=timers&state=paused&q=a;b", "do=cancel", kind, "", 400,
			"cannot be read"},
		{"good", "/schedule", url.Values{"topic": {"timers"}, "id": {"a"}, "payload": {"😀 \ufffd \x00"}}.Encode(),
			kind + "; charset=UTF-8", "", 303, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, c.address, strings.NewReader(c.form))
			r.Header.Set("Content-Type", c.kind)
			if c.coding != "" {
				r.Header.Set("Content-Encoding", c.coding)
			}
			w := f.send(r)
			if c.status != http.StatusSeeOther {
				says(t, w, c.status, c.says)
			} else if w.Code != c.status {
				t.Errorf("%d: %s", w.Code, w.Body)
			}
			put, asked := f.did(http.MethodPut)
			if good := c.status == http.StatusSeeOther; asked != good {
				t.Errorf("asked the API: %v", asked)
			} else if good && !strings.Contains(put.body, "😀 \ufffd \\u0000") {
				t.Errorf("it became %s", put.body)
			}
		})
	}
	says(t, f.get("/timers?topic=timers&q=%zz"), http.StatusBadRequest, "cannot be read")
	says(t, f.get("/bulk?topic=timers&do=cancel&state=paused&q=a;b"), http.StatusBadRequest, "cannot be read")
}

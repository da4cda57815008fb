package console

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
)

// A filter by labels is asked of the API for lists, counts and jobs, and stays in the addresses of other pages of the
// same search.
func TestTimersByLabel(t *testing.T) {
	f := newFake(t)
	list := f.answers["/v1/topics/timers/timers"].(api.TimerList)
	list.Timers[0].Labels = map[string]string{"team": "a", "order": "17", "note": "<b>"}
	w := f.get("/timers?label=team%3Da&label=order&target=orders&q=order-")
	says(t, w, http.StatusOK, `name="label" value="team=a, order"`, "&lt;b&gt;")
	for _, a := range f.asked {
		if strings.HasPrefix(a.path, "/v1/topics/timers/timers") && a.query.Get("label") != "team=a, order" {
			t.Errorf("%s asks for labels %q", a.path, a.query.Get("label"))
		}
	}
	all := regexp.MustCompile(`href="(/(?:timers|bulk)\?[^"]*(?:cursor|order=|state|do)=[^"]*)"`).FindAllStringSubmatch(
		w.Body.String(), -1)
	if len(all) < 9 { // tabs, pages and jobs
		t.Errorf("%d links of the search", len(all))
	}
	for _, m := range all {
		at, err := url.Parse(html.UnescapeString(m[1]))
		if err != nil || at.Query().Get("label") != "team=a, order" || at.Query().Get("target") != "orders" {
			t.Errorf("%s leaves the filter out: %v", m[1], err)
		}
	}
	// A label of a timer narrows the search; one that the search has leaves it as it is.
	for text, want := range map[string]string{"note=&lt;b&gt;": "team=a, order, note=<b>", "team=a": "team=a, order"} {
		m := regexp.MustCompile(`class="label-link" href="([^"]*)"><bdi class="mono">` + text).FindStringSubmatch(
			w.Body.String())
		if m == nil {
			t.Fatalf("there is no label %s", text)
		}
		at, _ := url.Parse(html.UnescapeString(m[1]))
		if q := at.Query(); q.Get("label") != want || q.Get("q") != "order-" {
			t.Errorf("%s leads to %v", text, q)
		}
	}
	f.answers["POST /v1/topics/timers/timers/cancel"] = api.JobStarted{Matching: &api.TimerCount{Count: 1, Exact: true}}
	says(t, f.get("/bulk?topic=timers&do=cancel&label=team%3Da"), http.StatusOK, "<dt>Labels</dt><dd>", "team=a")
	if post, _ := f.did(http.MethodPost); post.query.Get("label") != "team=a" {
		t.Errorf("counted %v", post.query)
	}
	f.answers["/v1/topics/timers/timers"] = api.TimerList{}
	w = f.get("/timers?label=team%3Da")
	says(t, w, http.StatusOK, "No pending timer is like that")
}

// A wrong filter is shown with what is wrong, at its field, and nothing is listed as if it were right.
func TestWrongLabelFilter(t *testing.T) {
	f := newFake(t)
	for _, at := range []string{"/timers", "/dead-letters", "/activity"} {
		w := f.get(at + "?label=%3Da")
		says(t, w, http.StatusBadRequest, "&#34;=a&#34; is not a condition on a label: send NAME=VALUE",
			`value="=a"`, `aria-invalid="true"`)
		lacks(t, w, "order-1</bdi>")
	}
}

// Dead letters and events are filtered by the labels of their timers.
func TestDeadLettersAndActivityByLabel(t *testing.T) {
	f := newFake(t)
	w := f.get("/dead-letters?topic=timers&label=team%3Da")
	says(t, w, http.StatusOK, `name="label" value="team=a"`, `href="/resend?label=team%3Da&amp;`)
	f.get("/resend?topic=timers&label=team%3Da")
	if post, _ := f.did(http.MethodPost); post.query.Get("label") != "team=a" {
		t.Errorf("resends %v", post.query)
	}
	f.answers["/v1/topics/timers/activity"] = api.Activity{Cursor: "c", Position: "0:1"}
	w = f.get("/activity?topic=timers&label=team%3Da&target=orders")
	says(t, w, http.StatusOK, "label=team%3Da&amp;position=0%3A1&amp;target=orders", `href="/activity?cursor=c&amp;label=team%3Da&amp;`)
	if q := f.last().query; q.Get("label") != "team=a" || q.Get("target") != "orders" {
		t.Errorf("asked for %v", q)
	}
}

// A timer's page has its labels and its target as links to lists, and leads back to the list that it was opened from.
func TestTimerLeadsToLists(t *testing.T) {
	f := newFake(t)
	one := *f.answers["/v1/topics/timers/timers/order-1"].(*api.Timer)
	one.Labels = map[string]string{"team": "a", evil[:20]: "x"}
	f.answers["/v1/topics/timers/timers/order-1"] = &one
	r := httptest.NewRequest(http.MethodGet, timerPath("order-1"), nil)
	r.Header.Set("Referer", "http://"+r.Host+`/timers?label=team%3Da&label=order&q="><script>alert(1)</script>`)
	says(t, f.send(r), http.StatusOK, `href="/timers?label=team%3Da&amp;topic=timers"`,
		`href="/timers?target=orders&amp;topic=timers"`, `href="/timers?label=team%3Da&amp;label=order&amp;q=%22%3E%3Cscript`)
	for _, from := range []string{"", "http://elsewhere/timers?q=1", "http://" + r.Host + "/activity", "%"} {
		r.Header.Set("Referer", from)
		lacks(t, f.send(r), "Back to the list")
	}
}

// The zone's form returns to the same filter, however the address has it.
func TestZoneKeepsFilters(t *testing.T) {
	f := newFake(t)
	w := f.get("/timers?label=team%3Da&label=order")
	says(t, w, http.StatusOK, `name="back" value="/timers?label=team%3Da%2Corder"`)
}

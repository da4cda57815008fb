package console

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
)

// happened are the events of a page: one of a hostile ID, one of an ID that is no text, one without an ID.
func happened(cursor string) api.Activity {
	a := api.Activity{Cursor: cursor, Position: "0:7.9"}
	id, _ := json.Marshal(evil)
	for _, e := range []string{
		`{"type":"fired","at":1795338000001,"occurrence":1,"lateness":4,"target":"orders","id":` + string(id) + `}`,
		`{"type":"cancelled","at":1795338000000,"idBase64":"/wA=","cancel":"timers/1/7"}`,
		`{"type":"rejected","at":1795337999000,"id":"","reason":"no-id","detail":"` + `\u202e"}`,
	} {
		a.Events = append(a.Events, api.ActivityEvent{TimerEvent: api.TimerEvent{At: now, Event: json.RawMessage(e)}})
	}
	return a
}

// The page shows what has happened, keeps the filter in its address, and goes on from where its list ends.
func TestActivity(t *testing.T) {
	f := newFake(t)
	f.answers["/v1/topics/timers/activity"] = happened("c1")
	w := f.get("/activity?" + url.Values{"topic": {"timers"}, "prefix": {evil}, "type": {"fired", "rejected"},
		"from": {"-10m"}}.Encode())
	says(t, w, http.StatusOK, escaped, "2026-11-22 09:00:00.001", "occurrence 1 · late 4 ms · to orders", `\xff\x00`,
		"no-id", `src="/static/events.js"`,
		`value="fired" checked`, `value="rejected" checked`, `id="pause" hidden`,
		`href="/timer?id=%FF%00&amp;topic=timers"`)
	got := f.last()
	want := url.Values{"prefix": {evil}, "type": {"fired,rejected"}, "after": {"1795337400000"}, "limit": {"100"}}
	if got.path != "/v1/topics/timers/activity" || got.query.Encode() != want.Encode() {
		t.Errorf("%s?%s, want %s", got.path, got.query.Encode(), want.Encode())
	}
	stream, err := url.Parse(html.UnescapeString(between2(w.Body.String(), `data-events="`, `"`)))
	want = url.Values{"prefix": {evil}, "type": {"fired,rejected"}, "position": {"0:7.9"}}
	if err != nil || stream.Path != "/v1/topics/timers/events" || stream.Query().Encode() != want.Encode() {
		t.Errorf("it goes on at %s, want %s; %v", stream, want.Encode(), err)
	}
	older := html.UnescapeString(between2(w.Body.String(), `<a class="button" href="`, `" rel="next"`))
	w = f.get(older)
	says(t, w, http.StatusOK, "Newest", "2026-11-22T08:50:00.000Z")
	if got := f.last().query; got.Get("cursor") != "c1" || got.Get("type") != "fired,rejected" ||
		got.Get("after") != "1795337400000" {
		t.Errorf("older ones: %s", got.Encode())
	}
	for _, path := range []string{older, "/activity?to=-5m"} {
		lacks(t, f.get(path), "data-events=", "events.js")
	}
	f.answers["/v1/topics/timers/activity"] = api.Activity{Position: "0:0.0", Deleted: true}
	says(t, f.get("/activity"), http.StatusOK, "Nothing has happened on timers yet", "What was before has been deleted")
	says(t, f.get("/activity?type=fired"), http.StatusOK, "No event of timers is like that")
	says(t, f.get("/activity?from=soon"), http.StatusBadRequest, "soon")
	f.answers["/v1/topics/timers/activity"] = moving()
	says(t, f.get("/activity"), http.StatusServiceUnavailable, "on its way to another owner")
}

// Without events the page says so and how to have them, and shows what is known.
func TestActivityWithoutEvents(t *testing.T) {
	f := newFake(t)
	f.answers["/v1/topics/timers/activity"] = refusal(409, api.ReasonNoEvents,
		"timers writes no events: start the instances with --events")
	says(t, f.get("/activity"), http.StatusOK, "<strong>timers writes no events</strong>",
		"start the instances with --events. From then on",
		escaped, "<code>bad-cron</code>", `href="/timers?state=remembered&amp;topic=timers"`,
		`href="/dead-letters?topic=timers"`)
	f.answers["/v1/topics/timers/dead-letters"] = forbidden()
	if body := f.get("/activity").Body.String(); strings.Contains(body, "dead letters") ||
		!strings.Contains(body, "still taken") {
		t.Error("a caller without rights to dead letters is sent to them")
	}
}

// A caller with rights to some IDs has a home of its own: no error, no figure of others, and links that work.
func TestHomeOfAPrefix(t *testing.T) {
	f := newFake(t)
	f.answers["/v1/topics"] = api.TopicList{Topics: []api.TopicInfo{}}
	f.answers["/v1/caller"] = api.Caller{Name: "shop",
		Rights: []api.Right{{Topic: "timers", Prefix: "shop-", Role: "write"},
			{Topic: "timers", Prefix: evil, Role: "read"}}}
	f.answers["/v1/cluster"], f.answers["/v1/dead-letters"], f.answers["/v1/topics/timers/dead-letters"] = forbidden(),
		api.DeadLetterCountList{}, forbidden()
	f.answers["/v1/topics/timers/activity"] = happened("")
	w := f.get("/")
	says(t, w, http.StatusOK, "What you may see", "1,234,567+", `href="/timers?q=shop-&amp;topic=timers"`,
		`href="/activity?prefix=shop-&amp;topic=timers"`,
		`href="/schedule?id=shop-&amp;topic=timers"`, escaped, "What is to come on timers")
	lacks(t, w, `role="alert"`, "forbidden", `href="/cluster"`, `href="/dead-letters"`, `href="/topics"`)
	for _, a := range f.asked {
		if strings.HasSuffix(a.path, "/count") && a.query.Get("prefix") == "" {
			t.Errorf("%s?%s: timers of others are counted", a.path, a.query.Encode())
		}
		if strings.HasSuffix(a.path, "/count") && a.query.Get("until") == "" && a.query.Get("limit") == "" {
			t.Errorf("%s?%s: a million timers may be counted for each right", a.path, a.query.Encode())
		}
	}
	for _, path := range []string{"/timers", "/activity", "/timers?topic=timers", "/?topic=timers&prefix=" +
		url.QueryEscape(evil)} {
		w := f.get(path)
		says(t, w, http.StatusOK)
		for _, a := range f.asked {
			if p := a.query.Get("prefix"); a.path == "/v1/topics/timers/timers" && p != "shop-" {
				t.Errorf("%s: %s?%s", path, a.path, a.query.Encode())
			}
		}
	}
	// One that may see whole topics, and not the service.
	f = newFake(t)
	f.answers["/v1/caller"] = api.Caller{Name: "team", Rights: []api.Right{{Topic: "timers", Role: "admin"}}}
	f.answers["/v1/cluster"] = forbidden()
	w = f.get("/")
	says(t, w, http.StatusOK, "shown to callers with the right to the service as a whole", "What is to come",
		`href="/dead-letters"`)
	lacks(t, w, `role="alert"`, `href="/cluster"`)
}

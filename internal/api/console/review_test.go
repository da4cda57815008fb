package console

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
)

// marked makes the fake's dead letters ones of which some have been reviewed.
func marked(f *fakeAPI, n int64, exact bool) {
	all := f.answers["/v1/dead-letters"].(api.DeadLetterCountList)
	all.Topics[0].New = &api.NewLetters{Count: n, Exact: exact,
		Reasons: map[string]int64{"bad-cron": n - 1, "old-reason": 1}, By: evil, At: now}
	all.Topics = all.Topics[:1]
	f.answers["/v1/dead-letters"] = all
}

// The page shows what is new, marks it up to a letter or all of it, and offers to undo that; what has been reviewed is
// shown if it is asked for.
func TestReview(t *testing.T) {
	f := newFake(t)
	list := f.answers["/v1/topics/timers/dead-letters"].(api.DeadLetterList)
	list.Position = "0:4.10"
	f.answers["/v1/topics/timers/dead-letters"] = list
	marked(f, 5, true)
	w := f.get("/dead-letters?reason=bad-cron")
	says(t, w, http.StatusOK, "Reviewed up to here", "Mark all, also those that do not match, as reviewed",
		`name="position" value="0:4.10"`,
		`data-label="New">4</td>`, "Reviewed last by", escaped, `<span class="count new">5<span class="unseen"> new<`)
	if got := f.last().query; got.Get("reviewed") != "false" {
		t.Errorf("asked for %s", got.Encode())
	}
	const letters = "/v1/topics/timers/dead-letters"
	f.answers["POST "+letters+"/1/9/reviewed"] = api.DeadLetterReview{Topic: "timers", Position: "0:4.10",
		Before: "0:1.2"}
	f.answers["POST "+letters+"/reviewed"] = f.answers["POST "+letters+"/1/9/reviewed"]
	action := html.UnescapeString(between2(w.Body.String(), `<form class="buttons" method="post" action="`, `"`))
	for _, c := range []struct {
		form url.Values
		want string
	}{
		{url.Values{"do": {"older"}, "partition": {"1"}, "offset": {"9"}}, letters + "/1/9/reviewed?older=true"},
		{url.Values{"do": {"one"}, "partition": {"1"}, "offset": {"9"}}, letters + "/1/9/reviewed?"},
		{url.Values{"do": {"all"}, "position": {"0:4.10"}}, letters + "/reviewed?position=0%3A4.10"},
		{url.Values{"do": {"undo"}, "position": {"0:1.2"}}, letters + "/reviewed?back=true&position=0%3A1.2"},
	} {
		w := f.post(action, c.form)
		if got := f.last(); got.method != http.MethodPost || got.path+"?"+got.query.Encode() != c.want ||
			w.Code != http.StatusSeeOther {
			t.Errorf("%v: %s %s?%s, want %s; %d", c.form, got.method, got.path, got.query.Encode(), c.want, w.Code)
		}
		says(t, f.get(w.Header().Get("Location")), http.StatusOK, "Marked as reviewed.",
			`name="position" value="0:1.2"`, "Undo", `value="bad-cron"`)
	}
	for _, form := range []url.Values{{"do": {"one"}}, {"do": {"what"}}} {
		says(t, f.post(action, form), http.StatusBadRequest, "go back to the page of dead letters")
	}
	lacks(t, f.get("/dead-letters?done=reviewed&undo="+url.QueryEscape(evil)), "Undo")
	yes := true
	list.DeadLetters[0].Reviewed = &yes
	w = f.get("/dead-letters?seen=all")
	says(t, w, http.StatusOK, `class="seen"><td`, "Resend all…")
	if got := f.last().query; got.Has("reviewed") || strings.Contains(w.Body.String(), "Reviewed up to here") {
		t.Errorf("asked for %s, or what was reviewed can be again", got.Encode())
	}
	f.answers["/v1/topics/timers/dead-letters"] = api.DeadLetterList{}
	says(t, f.get("/dead-letters"), http.StatusOK, "There are no new ones on timers", "seen=all")
	// Where the marks cannot be read, all are shown.
	f.answers["/v1/topics/timers/dead-letters"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("reviewed") {
			w.WriteHeader(http.StatusServiceUnavailable)
			writeJSON(t, w, refusal(503, api.ReasonKafka, "GROUP_AUTHORIZATION_FAILED"))
			return
		}
		writeJSON(t, w, list)
	})
	says(t, f.get("/dead-letters"), http.StatusOK, "have been reviewed is not known",
		"GROUP_AUTHORIZATION_FAILED", "bad-cron")
}

// The overview counts what is new, however old it is.
func TestOverviewOfWhatIsNew(t *testing.T) {
	f := newFake(t)
	calm(f)
	marked(f, 3, true)
	says(t, f.get("/"), http.StatusOK, "New dead letters: 3.", "2 <code>bad-cron</code>, 1 <code>old-reason</code>",
		"<dd>3 <small>new</small></dd>")
	marked(f, 2, false)
	says(t, f.get("/"), http.StatusOK, "New dead letters: 2 or more.")
	marked(f, 1, false)
	f.answers["/v1/dead-letters"].(api.DeadLetterCountList).Topics[0].New.Count = 0 // it is not counted to its end
	if w := f.get("/"); strings.Contains(w.Body.String(), `class="note good"`) {
		t.Error("it is green, and there may be new ones")
	}
	marked(f, 2, false)
	all := f.answers["/v1/dead-letters"].(api.DeadLetterCountList)
	all.Topics = append(all.Topics, api.DeadLetterCounts{Topic: "more", LastHour: 7, LastDay: 7, Exact: true})
	f.answers["/v1/dead-letters"] = all
	says(t, f.get("/"), http.StatusOK, "new, or of the last hour where none have been reviewed: 9 or more.",
		"<small>new, or in 1 h</small>")
	all.Topics[0].New = &api.NewLetters{Exact: true, At: now}
	all.Topics[1].LastHour = 0
	says(t, f.get("/"), http.StatusOK, `class="note good"`, "there are no new dead letters")
}

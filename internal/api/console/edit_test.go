package console

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// fields returns the fields of the page's form as a browser sends them.
func fields(page string) url.Values {
	form := url.Values{}
	_, page, _ = strings.Cut(page, `action="/schedule">`)
	for _, m := range regexp.MustCompile(`<input ([^>]*)>`).FindAllStringSubmatch(page, -1) {
		name, value := regexp.MustCompile(` ?name="([^"]*)"`).FindStringSubmatch(m[1]),
			regexp.MustCompile(` ?value="([^"]*)"`).FindStringSubmatch(m[1])
		if name != nil && value != nil {
			form.Set(name[1], html.UnescapeString(value[1]))
		}
	}
	for _, m := range regexp.MustCompile(
		`(?s)<textarea [^>]*name="([^"]*)"[^>]*>\n(.*?)</textarea>`).FindAllStringSubmatch(page, -1) {
		form.Set(m[1], strings.ReplaceAll(html.UnescapeString(m[2]), "\n", "\r\n"))
	}
	for _, m := range regexp.MustCompile(`(?s)<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>`).FindAllStringSubmatch(
		page, -1) {
		first := regexp.MustCompile(`<option(?: value="([^"]*)")?[^>]*>([^<]*)`)
		chosen := regexp.MustCompile(`<option(?: value="([^"]*)")? selected>([^<]*)`).FindStringSubmatch(m[2])
		if chosen == nil {
			chosen = first.FindStringSubmatch(m[2])
		}
		form.Set(m[1], chosen[1])
		if !strings.Contains(chosen[0], "value=") {
			form.Set(m[1], chosen[2])
		}
	}
	return form
}

// If the form of a timer is sent unchanged, the same timer is scheduled, on condition that it is still that timer.
// Parts without a field in the form are kept.
func TestEditKeepsAll(t *testing.T) {
	text := func(s string) *string { return &s }
	until := now.Add(49 * time.Hour)
	part := int32(3)
	due := now.Add(time.Hour + 123*time.Millisecond)
	for _, c := range []struct {
		name string
		is   api.Timer
		want string
	}{
		{"once", api.Timer{Target: api.Target{Topic: "orders", Key: text("a"), Partition: &part},
			Payload: &api.Payload{Text: text("line 1\nline 2")},
			Headers: []api.Header{{Name: "x", Value: text(" y:z")}}, MaxLate: "5m"},
			`{"at":"2026-11-22T10:00:00.123Z","headers":[{"name":"x","value":" y:z"}],"if":"timers/0/5","maxLate":"5m","target":{"partition":3,"topic":"orders"},"value":"line 1\nline 2"}`},
		{"every", api.Timer{Occurrence: 3, Recurrence: &api.Recurrence{Every: "15m", Count: 10, Jitter: "30s",
			CatchUp: "all"}, Target: api.Target{Topic: "orders", Key: text("k")},
			Payload: &api.Payload{Text: text("a\r\nb")}},
			`{"at":"2026-11-22T10:00:00.123Z","catchUp":"all","count":8,"every":"15m","if":"timers/0/5","jitter":"30s","target":{"key":"k","topic":"orders"},"valueBase64":"YQ0KYg=="}`},
		{"cron", api.Timer{Occurrence: 1, Recurrence: &api.Recurrence{Cron: "0 10 * * *", Zone: "Africa/Lagos",
			Until: &until, CatchUp: "none"}, Target: api.Target{Topic: "orders", KeyNull: true},
			Payload: &api.Payload{Null: true}},
			`{"catchUp":"none","cron":"0 10 * * *","if":"timers/0/5","target":{"keyNull":true,"topic":"orders"},"until":"2026-11-24T10:00:00Z","valueNull":true,"zone":"Africa/Lagos"}`},
		{"bytes", api.Timer{Target: api.Target{Topic: "orders", KeyBase64: []byte{0, 255}},
			Payload: &api.Payload{Base64: []byte{0, 255}}, Headers: []api.Header{{Name: "n", ValueNull: true},
				{Name: "b", ValueBase64: []byte{255}}, {Name: "two", Value: text("a\nb")}}},
			`{"at":"2026-11-22T10:00:00.123Z","headers":[{"name":"n","valueNull":true},{"name":"b","valueBase64":"/w=="},{"name":"two","value":"a\nb"}],"if":"timers/0/5","target":{"keyBase64":"AP8=","topic":"orders"},"valueBase64":"AP8="}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			one := c.is
			one.ID, one.Topic, one.Source, one.Due, one.State = "a", "timers", "timers/0/5", due, "pending"
			f.answers["/v1/topics/timers/timers/a"] = &one
			f.answers["PUT /v1/topics/timers/timers/a"] = api.Result{Outcome: "replaced", Topic: "timers", Offset: 9}
			w := f.get("/schedule?topic=timers&id=a&edit=1")
			says(t, w, http.StatusOK, "Edit:", "it is still the timer that was shown", "What is pending is filled in")
			form := fields(w.Body.String())
			if w := f.post("/schedule", form); w.Code != http.StatusSeeOther {
				t.Fatalf("%d: %s", w.Code, w.Body)
			}
			put, _ := f.did(http.MethodPut)
			var got, want any
			if err := json.Unmarshal([]byte(put.body), &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			g, _ := json.Marshal(got)
			if wanted, _ := json.Marshal(want); string(g) != string(wanted) {
				t.Errorf("%s, want %s", g, wanted)
			}
			f.answers["PUT /v1/topics/timers/timers/a"] = refusal(412, api.ReasonConditionNotMet, "nothing has changed")
			says(t, f.post("/schedule", form), 412, "since you looked", "Edit:")
		})
	}
	f := newFake(t)
	f.answers["/v1/topics/timers/timers/%FF"] = &api.Timer{IDBase64: []byte{255}, Source: "timers/0/5"}
	says(t, f.get("/schedule?topic=timers&id=%FF&edit=1"), http.StatusBadRequest, "is no text")
	says(t, f.get("/schedule?topic=timers&id=gone&edit=1"), http.StatusNotFound, "there is nothing at")
	says(t, f.post("/schedule", url.Values{"topic": {"timers"}, "id": {"a"}, "kept": {"%"}}), http.StatusBadRequest,
		"is not whole")
}

// Timers in a list can be ticked, whatever bytes their IDs have. Each ticked timer is steered on condition that it is
// still the same.
func TestSelection(t *testing.T) {
	f := newFake(t)
	w := f.get("/timers")
	picks := regexp.MustCompile(`name="pick" value="([^"]*)"`).FindAllStringSubmatch(w.Body.String(), -1)
	if len(picks) != 3 {
		t.Fatalf("%d boxes for three timers", len(picks))
	}
	form := url.Values{"do": {"pause"}}
	for _, p := range picks {
		form.Add("pick", p[1])
	}
	w = f.post("/selected?topic=timers", form)
	says(t, w, http.StatusOK, "Pause 3 timers?", escaped, `\xff\x00`, "timers/1/7")
	if len(f.asked) != 0 {
		t.Errorf("it asks before it does: %v", f.asked)
	}
	paused := api.Result{Outcome: "paused", Topic: "timers"}
	f.answers["POST /v1/topics/timers/timers/order-1/pause"] = paused
	f.answers["POST /v1/topics/timers/timers/%FF%00/pause"] = paused
	f.answers["POST /v1/topics/timers/timers/"+segmentOf(evil)+"/pause"] = refusal(
		412, api.ReasonConditionNotMet, "nothing has changed")
	form.Set("sure", "1")
	w = f.post("/selected?topic=timers", form)
	says(t, w, http.StatusOK, "1 timer was left alone", "Paused.", "since you looked")
	var sources []string
	for _, a := range f.asked {
		sources = append(sources, a.header.Get("If-Match"))
	}
	if slices.Sort(sources); !slices.Equal(sources, []string{`"timers/0/5"`, `"timers/1/7"`, `"timers/1/8"`}) {
		t.Errorf("steered under %v", sources)
	}
	for name, c := range map[string]url.Values{
		"no timer is ticked":      {"do": {"pause"}},
		"does not say what to do": {"do": {"explode"}, "pick": form["pick"]},
		"is not one of the list":  {"do": {"pause"}, "pick": {"%%%"}},
		"is not one of the list o": {"do": {"pause"}, "pick": slices.Repeat(
			[]string{base64.RawURLEncoding.EncodeToString([]byte("a")) + " timers/0/1"}, timersOnPage+1)},
	} {
		says(t, f.post("/selected?topic=timers", c), http.StatusBadRequest, name)
	}
	says(t, f.get("/selected"), http.StatusBadRequest, "ticked in the list")
}

// An action on all matches counts them, asks, and is done by a job of the API with the same filter.
func TestBulkFromAFilter(t *testing.T) {
	f := newFake(t)
	f.answers["POST /v1/topics/timers/timers/cancel"] = api.JobStarted{Matching: &api.TimerCount{Count: 1234,
		Exact: false}}
	w := f.get("/timers?" + url.Values{"q": {"order-"}, "to": {"+1h"}, "state": {"paused"}}.Encode())
	to := html.UnescapeString(regexp.MustCompile(`href="(/bulk[^"]*do=cancel[^"]*)"`).FindStringSubmatch(
		w.Body.String())[1])
	w = f.get(to)
	says(t, w, http.StatusOK, "<h1>Cancel at least 1,234 timers?", "The first of them:", "order-1</bdi>",
		"At least 1,234 pending timers", "order-", "paused", "2026-11-22T10:00:00.000Z", "cannot be taken back")
	want := url.Values{"prefix": {"order-"}, "due-before": {"1795341600000"}, "state": {"paused"}}
	want.Set("dry-run", "true")
	preview, _ := f.did(http.MethodPost)
	if got := preview.query; got.Encode() != want.Encode() {
		t.Errorf("%s, want %s", got.Encode(), want.Encode())
	}
	few := f.last().query
	if few.Get("limit") != "3" || few.Get("prefix") != "order-" || few.Has("dry-run") {
		t.Errorf("the examples are %s", few.Encode())
	}
	f.answers["POST /v1/topics/timers/timers/cancel"] = api.JobStarted{Job: &api.Job{ID: "j2"}}
	action := html.UnescapeString(between2(w.Body.String(), `method="post" action="`, `"`))
	w = f.post(action, url.Values{"sure": {"1"}, "rate": {"100"}})
	want.Del("dry-run")
	want.Set("rate", "100")
	if got := f.last().query; got.Encode() != want.Encode() || w.Header().Get("Location") != "/job?id=j2" {
		t.Errorf("%s, want %s; to %s", got.Encode(), want.Encode(), w.Header().Get("Location"))
	}
	for _, at := range []string{"/bulk?topic=timers&do=trigger", "/bulk?topic=timers", "/bulk?do=cancel"} {
		says(t, f.get(at), http.StatusBadRequest, "does not say what to do")
	}
}

// The page of topics shows all topics that the caller may read. Without a right to the cluster it says so.
func TestTopicsPageShowsWhatTheCallerMayRead(t *testing.T) {
	f := newFake(t)
	says(t, f.get("/topics"), http.StatusOK, "<strong>1</strong> of 3", ">17<", "1,234", "orders.retry", "fixed delay",
		`href="/dead-letters?topic=orders.retry"`, `href="/schedule?topic=timers"`)
	f.answers["/v1/cluster"] = forbidden()
	w := f.get("/topics")
	says(t, w, http.StatusOK, "Of partitions nothing is shown: caller someone has no role", "1,234")
	if strings.Contains(w.Body.String(), "Partitions live") {
		t.Error("there are columns for what is not known")
	}
	f.answers["/v1/topics"] = moving()
	says(t, f.get("/topics"), http.StatusServiceUnavailable, "on its way")
}

// Cron expressions are explained wherever they are shown; each is requested once.
func TestCronInWords(t *testing.T) {
	f := newFake(t)
	list := f.answers["/v1/topics/timers/timers"].(api.TimerList)
	for _, one := range list.Timers {
		one.Recurrence = &api.Recurrence{Cron: "0 10 * * *", Zone: "Africa/Lagos"}
	}
	w := f.get("/timers")
	says(t, w, http.StatusOK, `<small class="words">At 10:00.</small>`)
	n := 0
	for _, a := range f.asked {
		if a.path == "/v1/next" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("asked %d times for one expression", n)
	}
	says(t, f.get(timerPath(evil)), http.StatusOK, "At 10:00.", "Edit")
}

// An unknown address is a page for people, and a problem of the API for programs. ?prefix= is the API's name for the
// search.
func TestNoSuchPage(t *testing.T) {
	f := newFake(t)
	ask := func(path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
		return f.send(r)
	}
	for _, path := range []string{"/timerz", "/timers/", "/static/x.css", "//timers"} {
		says(t, ask(path), http.StatusNotFound, "Not Found", "there is no page at this address", `href="/timers"`)
		if n := strings.Count(ask(path).Body.String(), "Not Found"); n != 2 { // the title, and the heading
			t.Errorf("%s: it says %d times what it is", path, n)
		}
		if len(f.asked) != 0 {
			t.Errorf("%s: the API was asked", path)
		}
	}
	for _, path := range []string{"/v1/topics/timers/timers/a", "/openapi.json", "/docs"} {
		if ask(path); len(f.asked) != 1 {
			t.Errorf("%s does not come to the API", path)
		}
	}
	says(t, f.get("/timers?prefix=order-"), http.StatusOK, `name="q" value="order-"`)
	if got := f.last().query.Get("prefix"); got != "order-" {
		t.Errorf("asked for prefix %q", got)
	}
}

// What a form carries of a timer is limited, in bytes and in the number of headers.
func TestKeptIsBounded(t *testing.T) {
	runs.NotRaced(t)
	f := newFake(t)
	post := func(text string) (grown uint64) {
		form := url.Values{"topic": {"timers"}, "id": {"a"},
			"kept": {base64.RawURLEncoding.EncodeToString([]byte(text))}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		says(t, f.post("/schedule", form), http.StatusBadRequest, "is not whole")
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for name, text := range map[string]string{
		"headers":        `{"headers":[` + strings.Repeat("{},", 1_000_000) + `{}]}`,
		"just too many":  `{"headers":[` + strings.Repeat("{},", 1_000) + `{}]}`,
		"a large header": `{"headers":[{"name":"` + strings.Repeat("x", 2<<20) + `"}]}`,
	} {
		if grown := post(text); grown > 64<<20 {
			t.Errorf("%s: a form of %d bytes takes %d", name, len(text), grown)
		}
	}
	if _, ok := f.did(http.MethodPut); ok {
		t.Error("it was scheduled")
	}
}

// The form and the command of a timer with a period keep what it is counted from: the occurrence in February does not
// make all later ones come on the 28th.
func TestEditedPeriodKeepsItsStart(t *testing.T) {
	start, due := time.Date(2027, 1, 31, 8, 0, 0, 0, time.UTC), time.Date(2027, 2, 28, 8, 0, 0, 0, time.UTC)
	one := &api.Timer{ID: "a", Topic: "timers", Due: due, Occurrence: 2, Recurrence: &api.Recurrence{Every: "P1M",
		Zone: "Europe/Berlin", Start: &start, Count: 5, CatchUp: "latest"}}
	const every, at = "2027-01-31T08:00:00Z/P1M", "2027-02-28T08:00:00Z"
	if f := formOfTimer(one); f.Every != every || f.At != at || f.Count != "5" {
		t.Errorf("form %+v", f)
	}
	w := &words{}
	recurrenceFlags(w, one)
	for _, flag := range []string{"--every " + every, "--at " + at, "--count 5"} {
		if !strings.Contains(w.String(), flag) {
			t.Errorf("no %s in %s", flag, w.String())
		}
	}
}

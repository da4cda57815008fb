package console

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api"
)

func TestLater(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := func(text string) time.Time {
		when, err := time.ParseInLocation("2006-01-02 15:04", text, berlin)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	for _, c := range []struct{ by, due, now, want string }{
		{"10m", "2026-11-22 12:00", "2026-11-22 10:00", "2026-11-22 12:10"},
		{"1h", "2026-11-22 12:00", "2026-11-22 12:30", "2026-11-22 13:30"}, // overdue: from now on
		{"1d", "2026-11-22 12:00", "2026-11-22 10:00", "2026-11-23 12:00"},
		{"1d", "2026-11-20 12:00", "2026-11-22 13:00", "2026-11-23 12:00"}, // overdue: tomorrow
		{"1d", "2027-03-27 02:30", "2027-03-26 10:00", "2027-03-28 03:30"}, // the clock has no 02:30 that day
		{"1d", "2026-10-24 12:00", "2026-10-24 10:00", "2026-10-25 12:00"}, // 25 hours
	} {
		got, err := later(c.by, at(c.due).UTC(), at(c.now))
		if err != nil || !got.Equal(at(c.want)) {
			t.Errorf("%s after %s, at %s: %v %v, want %s", c.by, c.due, c.now, got, err, c.want)
		}
	}
	if _, err := later("soon", now, now); err == nil {
		t.Error("soon is a duration")
	}
}

// snoozeOf returns the fields of the snooze form on a page.
func snoozeOf(page string) url.Values {
	form := url.Values{}
	for _, name := range []string{"do", "source", "due", "list"} {
		if value := between2(page, `name="`+name+`" value="`, `"`); value != "" {
			form.Set(name, html.UnescapeString(value))
		}
	}
	return form
}

// A timer is moved from its page, on condition that it is still the one that was shown, and the page says from when to
// when. Undo moves it back.
func TestSnooze(t *testing.T) {
	f := newFake(t)
	at := "PATCH /v1/topics/timers/timers/order-1"
	one := *f.answers["/v1/topics/timers/timers/order-1"].(*api.Timer)
	one.DueMillis = one.Due.UnixMilli()
	f.answers["/v1/topics/timers/timers/order-1"] = &one
	f.answers[at] = api.Result{Outcome: "moved", Topic: "timers", Partition: 0, Offset: 9}
	w := f.get(timerPath("order-1"))
	says(t, w, http.StatusOK, ">10 min<", ">1 h<", ">1 day, same time<", "or to (UTC)")
	form := snoozeOf(w.Body.String())
	for _, c := range []struct{ by, at, want string }{
		{"10m", "", "2026-11-22T10:10:00Z"}, {"1d", "", "2026-11-23T10:00:00Z"}, {"", "+3h", "2026-11-22T12:00:00Z"},
		{"", "2026-11-22 09:30", "2026-11-22T09:30:00Z"},
	} {
		form.Set("by", c.by)
		form.Set("at", c.at)
		w = f.post(timerPath("order-1"), form)
		patch, _ := f.did(http.MethodPatch)
		if w.Code != http.StatusSeeOther || patch.body != `{"at":"`+c.want+`"}` ||
			patch.header.Get("If-Match") != `"timers/0/5"` || patch.caller != "someone" {
			t.Errorf("%v: %d, %s with If-Match %s", c, w.Code, patch.body, patch.header.Get("If-Match"))
		}
	}
	w = f.get(w.Header().Get("Location"))
	says(t, w, http.StatusOK, "Moved <time", ">2026-11-22 10:00:00</time> → <time", ">2026-11-22 09:30:00</time> UTC.",
		`value="2026-11-22T10:00:00Z"><button>Undo`, `name="source" value="timers/0/9"`, `name="back" value="/timer?id=`)
	for change, want := range map[string]string{
		"at=yesterday": "is not a time", "at=2026-11-22 08:00": "is in the past", "at=": "no time is given",
		"by=x": "by how much", "due=5": "it is due at 2026-11-22 10:00:00 UTC now",
		"source=timers/0/4": "It was not moved", "due=": "does not say which timer",
	} {
		name, value, _ := strings.Cut(change, "=")
		wrong := url.Values{"at": {"+1h"}}
		for name, values := range snoozeOf(f.get(timerPath("order-1")).Body.String()) {
			wrong[name] = values
		}
		wrong.Set(name, value)
		status := http.StatusBadRequest
		if strings.Contains(want, "now") || strings.Contains(want, "not moved") {
			status = http.StatusPreconditionFailed
		}
		says(t, f.post(timerPath("order-1"), wrong), status, want)
		if _, did := f.did(http.MethodPatch); did {
			t.Errorf("%s: it was moved", change)
		}
	}
	f.answers[at] = refusal(412, api.ReasonConditionNotMet, "nothing has changed")
	form.Set("at", "+1h")
	says(t, f.post(timerPath("order-1"), form), 412, "Not moved", "since you looked", `value="&#43;1h"`, "10 min")
	f.answers[at] = forbidden()
	says(t, f.post(timerPath("order-1"), form), 403, "Not moved", "has no role")
	says(t, f.get(timerPath("gone")+"&done=moved&was=1&due=2"), http.StatusNotFound)
	says(t, f.get("/timers?done=moved&was=x&due=2&id=a"), http.StatusOK)
}

// A row of a list leads to the choices, and from there back to the list, with its search.
func TestSnoozeFromAList(t *testing.T) {
	f := newFake(t)
	one := *f.answers["/v1/topics/timers/timers/order-1"].(*api.Timer)
	one.DueMillis = one.Due.UnixMilli()
	f.answers["/v1/topics/timers/timers/order-1"] = &one
	f.answers["PATCH /v1/topics/timers/timers/order-1"] = api.Result{Outcome: "moved", Topic: "timers", Offset: 9}
	w := f.get("/timers?label=team%3Da&from=now")
	says(t, w, http.StatusOK, `class="snooze" href="/timer?do=move&amp;id=order-1&amp;topic=timers"`)
	r := httptest.NewRequest(http.MethodGet, "/timer?do=move&id=order-1&topic=timers", nil)
	r.Header.Set("Referer", "http://"+r.Host+"/timers?label=team%3Da&label=b&from=now")
	w = f.send(r)
	says(t, w, http.StatusOK, "Snooze: ", `href="/timers?from=now&amp;label=team%3Da%2Cb"`, ">10 min<")
	form := snoozeOf(w.Body.String())
	form.Set("at", "x")
	says(t, f.post(timerPath("order-1"), form), http.StatusBadRequest, "is not a time", `name="list" value="from=now`)
	form.Set("by", "1h")
	w = f.post(timerPath("order-1"), form)
	to, err := url.Parse(w.Header().Get("Location"))
	if err != nil || to.Path != "/timers" || to.Query().Get("label") != "team=a,b" || to.Query().Get("from") != "now" {
		t.Fatalf("%d to %s", w.Code, to)
	}
	w = f.get(to.String())
	says(t, w, http.StatusOK, "order-1</bdi></a>: <time", ">2026-11-22 11:00:00</time> UTC.", "Undo")
	if next := between2(w.Body.String(), `class="button" href="/timers?`, `" rel="next"`); strings.Contains(next, "was=") {
		t.Errorf("the next page tells of the move again: %s", next)
	}
}

// All timers that match are moved after a preview, by a job with the same filter.
func TestBulkMove(t *testing.T) {
	f := newFake(t)
	at := "POST /v1/topics/timers/timers/move"
	f.answers[at] = api.JobStarted{Matching: &api.TimerCount{Count: 1234, Exact: true}}
	w := f.get("/bulk?topic=timers&do=move&q=order-&label=team%3Da&from=%2B1h")
	says(t, w, http.StatusOK, "Move timers?", `name="label" value="team=a"`, `name="from" value="2026-11-22T10:00:00.000Z"`,
		"Preview", `name="by"`)
	lacks(t, w, `method="post" action="/bulk`)
	if _, did := f.did(http.MethodPost); did {
		t.Error("it counts what nothing is chosen for")
	}
	filter := "/bulk?topic=timers&do=move&q=order-&label=team%3Da&from=2026-11-22T10:00:00Z"
	for _, c := range []struct{ choice, query, says string }{
		{"&by=-90m", "by=-90m", "2026-11-22 08:30:00</time> UTC: over, it fires immediately"},
		{"&by=%2B1h", "by=1h", "2026-11-22 11:00:00</time>"},
		{"&at=%2B3h", "to=1795348800000", "2026-11-22 12:00:00</time>"},
		{"&at=-1m", "to=1795337940000", "2026-11-22 08:59:00</time> UTC: over, it fires immediately"}, // was now
	} {
		f.answers[at] = api.JobStarted{Matching: &api.TimerCount{Count: 1234, Exact: true}}
		w = f.get(filter + c.choice)
		says(t, w, http.StatusOK, "Move 1,234 timers?", "2026-11-22 10:00:00</time> → <time", c.says)
		want, _ := url.ParseQuery("dry-run=true&prefix=order-&label=team%3Da&due-after=1795341600000&" + c.query)
		if got, _ := f.did(http.MethodPost); got.query.Encode() != want.Encode() {
			t.Errorf("%s, want %s", got.query.Encode(), want.Encode())
		}
		f.answers[at] = api.JobStarted{Job: &api.Job{ID: "j2"}}
		action := html.UnescapeString(between2(w.Body.String(), `method="post" action="`, `"`))
		w = f.post(action, url.Values{"sure": {"1"}, "rate": {"100"}})
		want.Del("dry-run")
		want.Set("rate", "100")
		if got := f.last().query; got.Encode() != want.Encode() || w.Header().Get("Location") != "/job?id=j2" {
			t.Errorf("%s, want %s; to %s", got.Encode(), want.Encode(), w.Header().Get("Location"))
		}
	}
	f.post("/bulk?topic=timers&do=move&by=1h", nil)
	if got := f.last().query.Encode(); got != "all=true&by=1h" {
		t.Errorf("all are moved by %s", got)
	}
	for choice, want := range map[string]string{"&by=1h&at=now": "leave one of them empty",
		"&by=soon": "is not a duration", "&at=soon": "is not a time", "&at=-1h": "is in the past"} {
		says(t, f.get(filter+choice), http.StatusBadRequest, want, "Preview")
		says(t, f.post(filter+choice, nil), http.StatusBadRequest, want)
	}
	f.answers[at] = api.JobStarted{Matching: &api.TimerCount{Count: 1234, Exact: true}}
	says(t, f.get(filter+"&at=2026-11-20T08:00:00Z&since=p"), http.StatusOK, "over, it fires immediately") // continued
	says(t, f.post(filter, nil), http.StatusBadRequest, "no move is given")
	f.answers[at] = forbidden()
	says(t, f.post(filter+"&by=1h", nil), http.StatusForbidden, "has no role")
}

// A caller sees buttons for what it may do.
func TestButtonsByRights(t *testing.T) {
	for _, c := range []struct {
		rights       []api.Right
		snooze, bulk bool
	}{
		{[]api.Right{{Topic: "timers", Role: "read"}}, false, false},
		{[]api.Right{{Topic: "other", Role: "admin"}}, false, false},
		{[]api.Right{{Topic: "timers", Role: "read"}, {Topic: "timers", Prefix: "order-", Role: "write"}}, true, false},
		{[]api.Right{{Topic: "timers", Role: "write"}}, true, false},
		{[]api.Right{{Topic: "timers", Role: "admin"}}, true, true},
	} {
		f := newFake(t)
		f.answers["/v1/caller"] = api.Caller{Rights: c.rights}
		page, list := f.get(timerPath("order-1")).Body.String(), f.get("/timers?topic=timers&q=order-").Body.String()
		for text, want := range map[string]bool{"Later by": c.snooze, "Cancel timer": c.snooze, ">Edit<": c.snooze} {
			if strings.Contains(page, text) != want {
				t.Errorf("%v: %s on the timer's page is %v", c.rights, text, !want)
			}
		}
		for text, want := range map[string]bool{`class="snooze"`: c.snooze, `name="pick"`: c.snooze, "Move all": c.bulk} {
			if strings.Contains(list, text) != want {
				t.Errorf("%v: %s in the list is %v", c.rights, text, !want)
			}
		}
	}
}

// Pages say when a timer was due before it was moved, and an edit says what it takes from a moved occurrence.
func TestMovedIsShown(t *testing.T) {
	f := newFake(t)
	one := *f.answers["/v1/topics/timers/timers/order-1"].(*api.Timer)
	scheduled := now.Add(30 * time.Minute)
	one.Scheduled, one.Recurrence = &scheduled, &api.Recurrence{Every: "15m", CatchUp: "latest"}
	f.answers["/v1/topics/timers/timers/order-1"] = &one
	e, _ := json.Marshal(map[string]any{"type": "moved", "at": now.UnixMilli(), "id": "order-1", "occurrence": 1,
		"source": "timers/0/5", "previous": "timers/0/4", "due": scheduled.UnixMilli(), "target": "orders",
		"pending": map[string]any{"due": one.Due.UnixMilli() + 7, "occurrence": 1}})
	told := api.TimerEvent{At: now, Event: e}
	f.answers["/v1/topics/timers/timers/order-1/events"] = api.TimerEvents{Events: []api.TimerEvent{told}}
	w := f.get(timerPath("order-1"))
	words := "occurrence 1 · due 2026-11-22 09:30:00 → 2026-11-22 10:00:00.007 · to orders · request timers/0/5"
	says(t, w, http.StatusOK, "By its schedule</dt><dd>2026-11-22 09:30:00 UTC", words,
		"It was moved: before, it was due at 2026-11-22 09:30:00 UTC.", "that it passes are missed: latest",
		">2026-11-22 10:15:00</time>", ">2026-11-22 10:30:00</time>")
	one.Due = now.Add(10 * time.Minute) // earlier, and 15 minutes after it nothing is due
	w = f.get(timerPath("order-1"))
	says(t, w, http.StatusOK, ">2026-11-22 09:10:00</time>", ">2026-11-22 09:45:00</time>")
	lacks(t, w, ">2026-11-22 09:25:00</time>", ">2026-11-22 09:30:00</time>")
	one.DueMillis = one.Due.UnixMilli()
	one.Recurrence = &api.Recurrence{Cron: "30 * * * *", Zone: "UTC", CatchUp: "all"}
	f.get(timerPath("order-1"))
	for _, a := range f.asked {
		if from := a.query.Get("from"); a.path == "/v1/next" && from != strconv.FormatInt(scheduled.UnixMilli(), 10) {
			t.Errorf("the occurrences after %s are asked for, and the moved one is among them", from)
		}
	}
	one.Due = now.Add(time.Hour)
	one.Recurrence = &api.Recurrence{Every: "15m", CatchUp: "latest"}
	one.Source = "timers/0/6"
	lacks(t, f.get(timerPath("order-1")), "It was moved")
	f.answers["/v1/topics/timers/activity"] = map[string]any{
		"events": []any{map[string]any{"at": now, "event": json.RawMessage(e)}}}
	says(t, f.get("/activity"), http.StatusOK, words)
	f.answers["/v1/topics/timers/timers/order-1"] = &one
	says(t, f.get("/schedule?topic=timers&id=order-1&edit=1"), http.StatusOK, "was moved to 2026-11-22 10:00:00",
		"at 2026-11-22 09:30:00 UTC")
	one.Recurrence.Jitter = "30m"
	lacks(t, f.get("/schedule?topic=timers&id=order-1&edit=1"), "was moved to")
}

// Ticked timers are moved after a preview, each by so much from its own due time or all to one, on condition that they
// still are as the preview has shown them. Each that is not has its own reason.
func TestMoveOfTicked(t *testing.T) {
	f := newFake(t)
	due := func(id, source string, at time.Time) {
		f.answers["/v1/topics/timers/timers/"+id] = &api.Timer{ID: id, Topic: "timers", Source: source, State: "paused",
			Due: at, DueMillis: at.UnixMilli(), Target: api.Target{Topic: "orders"}}
		f.answers["PATCH /v1/topics/timers/timers/"+id] = api.Result{Outcome: "moved", Topic: "timers"}
	}
	ids := []string{"a", "b", "c", "d", "e"}
	form := url.Values{"do": {"move"}}
	for i, id := range ids {
		due(id, "timers/0/"+strconv.Itoa(i), now.Add(time.Duration(i)*time.Hour))
		form.Add("pick", base64.RawURLEncoding.EncodeToString([]byte(id))+" timers/0/"+strconv.Itoa(i))
	}
	says(t, f.get("/timers"), http.StatusOK, `value="move">Move</button>`, `>Cancel timers</button>`)
	const at = "/selected?topic=timers&label=team%3Da"
	w := f.post(at, form)
	says(t, w, http.StatusOK, "Move 5 timers?", "only the next occurrence moves", "Each by", "or all to (UTC)",
		">2026-11-22 13:00:00</time>", "paused", "Preview")
	lacks(t, w, "→", `name="sure"`)

	confirm := func(w *httptest.ResponseRecorder) url.Values {
		form := url.Values{"do": {"move"}, "sure": {"1"}}
		page := w.Body.String()
		page = page[strings.LastIndex(page, "<form"):]
		for _, field := range regexp.MustCompile(`name="(pick|by|at)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			form.Add(field[1], html.UnescapeString(field[2]))
		}
		return form
	}
	moved := func() (all []string) {
		for _, a := range f.asked {
			if a.method == http.MethodPatch {
				all = append(all, a.path[len(a.path)-1:]+a.body+a.header.Get("If-Match"))
			}
		}
		slices.Sort(all)
		return all
	}
	due("b", "timers/0/7", now.Add(time.Hour)) // scheduled again since it was ticked
	form.Set("by", "-90m")
	w = f.post(at, form)
	says(t, w, http.StatusOK, "Move 4 timers?", "1 timer is left out", "Not moved", "since you looked",
		">2026-11-22 11:00:00</time> → <time", ">2026-11-22 09:30:00</time>", ": over, it fires immediately", `value="-90m"`)
	if len(moved()) > 0 {
		t.Errorf("it moves before it is confirmed: %v", moved())
	}
	sure := confirm(w)
	due("a", "timers/0/0", now.Add(time.Minute)) // it recurs, and has fired since the preview
	f.answers["PATCH /v1/topics/timers/timers/c"] = refusal(412, api.ReasonConditionNotMet, "nothing has changed")
	delete(f.answers, "/v1/topics/timers/timers/d")
	w = f.post(at, sure)
	says(t, w, http.StatusOK, "3 timers were left alone", "Moved.", "go back to its page", "there is nothing at",
		"it is due at 2026-11-22 09:01:00 UTC now", `href="/timers?label=team%3Da&amp;topic=timers"`)
	want := []string{`c{"at":"2026-11-22T09:30:00Z"}"timers/0/2"`, `e{"at":"2026-11-22T11:30:00Z"}"timers/0/4"`}
	if got := moved(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	form.Del("by")
	form.Set("at", "+3h")
	form["pick"] = form["pick"][2:3]
	w = f.post(at, form)
	says(t, w, http.StatusOK, "Move 1 timer?", `name="at" value="2026-11-22T12:00:00Z"`)
	f.answers["PATCH /v1/topics/timers/timers/c"] = forbidden()
	says(t, f.post(at, confirm(w)), http.StatusOK, "1 timer was left alone", "Not moved", "has no role")
	form.Set("sure", "1") // without what the preview has shown
	says(t, f.post(at, form), http.StatusOK, "Not moved", "since you looked")
	for choice, want := range map[string]string{"soon": "is not a time", "-1h": "is in the past"} {
		form.Set("at", choice)
		says(t, f.post(at, form), http.StatusBadRequest, want, "Preview", "Move 1 timer?")
	}
	form.Set("by", "1h")
	says(t, f.post(at, form), http.StatusBadRequest, "a duration and a time are given")
	if len(moved()) > 0 {
		t.Errorf("it is moved: %v", moved())
	}
	delete(f.answers, "/v1/topics/timers/timers/c")
	w = f.post(at, form)
	lacks(t, w, "Preview")
}

package console

import (
	"encoding/json"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/api/recent"

	"go.uber.org/goleak"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func timerPath(id string, more ...string) string {
	return string(link("/timer", append([]string{"topic", "timers", "id", id}, more...)...))
}

const escaped = "&lt;script&gt;alert(1)&lt;/script&gt;"

// Every page with some content, which is hostile.
func TestPages(t *testing.T) {
	for _, c := range []struct {
		name, path string
		want       []string
	}{
		{"overview", "/", []string{"1,234,567", "timers partition 1 is <strong>stalled</strong>",
			"Target <code>mail/3</code> since", "takes no writes; its timers wait", "it has no API", "1 h",
			"<rect ", escaped}},
		{"timers", "/timers", []string{"1,234,567 or more pending on timers", "order-1", escaped, "every 15m",
			`href="/timer?id=%FF%00&amp;topic=timers"`, `\xff\x00`, "cursor=d.1.2.0~abc", "1 h ago"}},
		{"timer", timerPath(evil), []string{escaped, "in Africa/Lagos", "in Africa/Lagos, the timer's own zone",
			"2026-11-23 11:00:00", "2026-11-24 11:00:00", "timers/1/7", "jitter 1m", ">5m<", "00 ff", "Pause",
			"Fire now", "Cancel timer"}},
		{"timer as bytes", timerPath(evil, "as", "hex"), []string{"00000000  3c 73 63 72"}},
		{"timer that is paused", timerPath("order-1"), []string{"order-1"}},
		{"confirm", timerPath(evil, "do", "cancel"),
			[]string{escaped, `name="source" value="timers/1/7"`, `method="post"`, "cannot be taken back"}},
		{"schedule", "/schedule", []string{`name="cron"`, `name="payload"`}},
		{"schedule, prefilled", "/schedule?" + url.Values{"cron": {"0 10 * * *"}, "id": {evil}}.Encode(),
			[]string{"At 10:00.", "Mon 2026-11-23 10:00:00", "&lt;script&gt;alert(1)"}},
		{"dead letters", "/dead-letters", []string{escaped, "bad-cron", "1/9", "Resend", `name="offset" value="9"`}},
		{"dead letters by filter", "/dead-letters?" + url.Values{"reason": {"bad-cron"}, "prefix": {evil},
			"from": {"-1h"}}.Encode(), []string{"1,200", "1,235", "What it says.",
			`href="/resend?from=2026-11-22T08%3A00%3A00.000Z`, "Resend all new ones that match"}},
		{"a job", "/job?id=j1", []string{"resend on timers", "running", "the first: " + escaped, "Stop"}},
		{"cluster", "/cluster", []string{escaped, "this one", "v1", "unowned", "mail", "it has no API"}},
		{"cluster, what is not live", "/cluster?only=not-live", []string{"stalled", "unowned"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			says(t, f.get(c.path), http.StatusOK, c.want...)
			for _, a := range f.asked {
				if a.caller != "someone" || a.method != http.MethodGet {
					t.Errorf("%s %s was asked for %v: pages only read, and as their caller", a.method, a.path, a.caller)
				}
			}
		})
	}
	if w := newFake(t).get("/cluster?only=not-live"); strings.Contains(w.Body.String(), ">17<") {
		t.Error("a live partition is among those that are not")
	}
}

// A search in the header's search box names no topic: it looks in all of them.
func TestFindLooksInAllTopics(t *testing.T) {
	f := newFake(t)
	f.answers["/v1/topics"] = map[string]any{"topics": []api.TopicInfo{{Topic: "empty"}, {Topic: "timers"},
		{Topic: "more"}}}
	f.answers["/v1/topics/empty/timers/count"] = counted(0, true)
	f.answers["/v1/topics/empty/timers"] = api.TimerList{}
	f.answers["/v1/topics/more/timers/count"] = counted(3, true)
	says(t, f.get("/timers?q=order-"), http.StatusOK, "1,234,567 or more pending on timers",
		`Also found on <a href="/timers?q=order-&amp;topic=more">more</a> (3).`)
	if body := f.get("/timers?q=order-&topic=empty").Body.String(); !strings.Contains(body, "0 pending on empty") ||
		strings.Contains(body, "Also found") {
		t.Error("a search that names its topic looks elsewhere")
	}
}

// A remembered timer has fired: it is not called pending, and has no actions here.
func TestRememberedTimers(t *testing.T) {
	f := newFake(t)
	w := f.get("/timers?topic=timers&state=remembered")
	says(t, w, http.StatusOK, "1,234,567 or more remembered on timers", "Taken until (UTC)",
		"These have fired, or expired. Each ID stays taken")
	lacks(t, w, "pending on timers", "Those ticked", "that match:")
	f.answers["/v1/topics/timers/timers"] = api.TimerList{}
	says(t, f.get("/timers?topic=timers&state=remembered"), http.StatusOK, "No ID that is still taken")
}

// The end of a recurrence ends its list: until is Tuesday at 10, so Wednesday is not in it.
func TestNextOccurrencesEnd(t *testing.T) {
	f := newFake(t)
	lacks(t, f.get(timerPath(evil)), "2026-11-25")
	one := *f.answers["/v1/topics/timers/timers/order-1"].(*api.Timer)
	one.Recurrence = &api.Recurrence{Every: "15m", Count: 3}
	f.answers["/v1/topics/timers/timers/order-1"] = one
	body := f.get(timerPath("order-1")).Body.String()
	if strings.Count(body, "<li><time") != 3 || !strings.Contains(body, "2026-11-22 10:30:00") {
		t.Error("of three occurrences, 15 minutes apart, other ones are shown")
	}
}

// Upcoming timers are counted in one call: its instants ascend, and each figure is the one for its
// instant.
func TestOverviewCountsOnce(t *testing.T) {
	f := newFake(t)
	f.answers["/v1/topics/timers/timers/count"] = counted(10, true)
	w := f.get("/?ahead=minute")
	var calls []asked
	for _, a := range f.asked {
		if strings.HasSuffix(a.path, "/count") {
			calls = append(calls, a)
		}
	}
	if len(calls) != 1 {
		t.Fatalf("%d calls count", len(calls))
	}
	until := strings.Split(calls[0].query.Get("until"), ",")
	first, last := strconv.FormatInt(now.Add(5*time.Second).UnixMilli(), 10),
		strconv.FormatInt(now.Add(24*time.Hour).UnixMilli(), 10)
	if len(until) != barsOfDue+3 || !slices.IsSorted(until) || until[0] != first || until[len(until)-1] != last {
		t.Errorf("until %v", until)
	}
	// The 12th and 13th instants are both the end of the minute; the hour and the day follow.
	says(t, w, http.StatusOK, "<span>next minute</span>120<", "<span>next hour</span>140<", "<span>next day</span>150<",
		`<td>09:00:55</td><td class="num">10</td>`)
	f.answers["/v1/topics/timers/timers/count"] = moving()
	says(t, f.get("/"), http.StatusOK, "on its way", "<span>next day</span>not known")
}

func TestEmptyPages(t *testing.T) {
	for path, want := range map[string]string{
		"/":             "There are no partitions",
		"/timers?q=x":   "No pending timer is like that",
		"/dead-letters": "There are none on timers",
		"/cluster":      "There are none.",
	} {
		t.Run(path, func(t *testing.T) {
			f := newFake(t)
			f.answers["/v1/topics/timers/timers"] = api.TimerList{}
			f.answers["/v1/topics/timers/timers/count"] = counted(0, true)
			f.answers["/v1/topics/timers/dead-letters"] = api.DeadLetterList{}
			f.answers["/v1/cluster"] = api.Cluster{}
			says(t, f.get(path), http.StatusOK, want)
		})
	}
	t.Run("an empty page of a list that goes on", func(t *testing.T) {
		f := newFake(t)
		f.answers["/v1/topics/timers/timers"] = api.TimerList{Cursor: "d.1.2.0~abc"}
		says(t, f.get("/timers"), http.StatusOK, "there are more to look at", "Next page")
	})
	for _, path := range []string{"/", "/timers", "/schedule", "/dead-letters"} {
		t.Run("no topic at "+path, func(t *testing.T) {
			f := newFake(t)
			f.answers["/v1/topics"] = map[string]any{"topics": []api.TopicInfo{}}
			f.answers["/v1/dead-letters"] = api.DeadLetterCountList{}
			says(t, f.get(path), http.StatusOK, "There is no request topic that you may read as a whole",
				`name="topic" required`)
		})
	}
}

// If the API rejects a call, any page shows the API's text, with its status.
func TestProblems(t *testing.T) {
	broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "<b>proxy</b> is down", http.StatusBadGateway)
	})
	for _, c := range []struct {
		name, page, path string
		answer           any
		status           int
		want             []string
	}{
		{"moving", "/timers", "/v1/topics/timers/timers", moving(), 503,
			[]string{"on its way to another owner", "<code>moving</code>", "load the page again"}},
		{"moving", timerPath("order-1"), "/v1/topics/timers/timers/order-1", moving(), 503,
			[]string{"on its way to another owner"}},
		{"moving", "/cluster", "/v1/cluster", moving(), 503, []string{"on its way to another owner"}},
		{"moving", "/dead-letters", "/v1/topics/timers/dead-letters", moving(), 503,
			[]string{"on its way to another owner"}},
		{"moving", "/", "/v1/cluster", moving(), 200,
			[]string{"on its way to another owner", "What is to come", "<rect "}},
		{"moving", "/", "/v1/topics/timers/timers/count", moving(), 200,
			[]string{"on its way to another owner", "not known", "stalled"}},
		{"forbidden", "/timers", "/v1/topics/timers/timers", forbidden(), 403, []string{"has no role read on timers"}},
		{"forbidden", timerPath("order-1"), "/v1/topics/timers/timers/order-1", forbidden(), 403,
			[]string{"has no role read"}},
		{"forbidden", "/cluster", "/v1/cluster", forbidden(), 403, []string{"has no role read"}},
		{"forbidden", "/schedule", "/v1/topics", forbidden(), 403, []string{"has no role read"}},
		{"not there", timerPath("gone"), "", nil, 404, []string{"there is nothing at"}},
		{"a path of dots", timerPath(".."), "", nil, 200, []string{"timers/0/5"}},
		{"a count that fails", "/timers", "/v1/topics/timers/timers/count", moving(), 200,
			[]string{"Pending on timers", "order-1"}},
		{"no API at all", "/timers", "/v1/topics", broken, 502, []string{"&lt;b&gt;proxy&lt;/b&gt; is down"}},
		{"no such topic", "/dead-letters?topic=x", "/v1/topics/x/dead-letters",
			refusal(404, "no-such-topic", "x is none"), 404, []string{"x is none"}},
		{"a time that is none", "/timers?from=tomorrow", "", nil, 400,
			[]string{"&#34;tomorrow&#34; is not a time", `value="tomorrow"`}},
		{"cron", "/schedule?cron=x", "/v1/next", refusal(400, "", "cron is x"), 200, []string{"cron is x"}},
		{"elsewhere", timerPath("order-1"), "/v1/topics/timers/timers/order-1",
			&api.Problem{Problem: refusal(421, "elsewhere", "ask there").Problem, Owner: "javascript:alert(1)"}, 421,
			[]string{"ask there"}},
		{"an ID that is a path of the API", timerPath("count"), "", nil, 404, []string{"cannot be got over the API"}},
		{"no timer named", "/timer", "", nil, 400, []string{"has topic and id"}},
	} {
		t.Run(c.name+" "+c.page, func(t *testing.T) {
			f := newFake(t)
			if c.path != "" {
				f.answers[c.path] = c.answer
			}
			w := f.get(c.page)
			if c.name == "elsewhere" { // html/template replaces it by a note that it was unsafe
				if strings.Contains(w.Body.String(), `href="javascript:`) {
					t.Error("an owner's address is a script")
				}
			} else {
				says(t, w, c.status, c.want...)
			}
			if c.status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "1" {
				t.Error("no Retry-After")
			}
		})
	}
}

// A partition that has failed, and brokers that cannot be reached, do not pass by themselves: each page says what is
// wrong, since when and what to do, and does not ask to load it again.
func TestWhatDoesNotPass(t *testing.T) {
	stuck := map[string]*api.Problem{
		"partition-failed": refusal(503, "partition-failed", "timers/0 has failed at instance a, since "+
			"2026-11-22T08:59:00Z, and does not go on by itself: it has 3 partitions. Mend that, then restart the "+
			"instance"),
		"kafka-unreachable": refusal(503, "kafka-unreachable",
			"Kafka cannot be reached: no broker has answered for group g for 59s. See that the brokers run"),
	}
	for reason, p := range stuck {
		for page, call := range map[string]string{
			"/timers": "/v1/topics/timers/timers", timerPath("order-1"): "/v1/topics/timers/timers/order-1",
			"/dead-letters": "/v1/topics/timers/dead-letters",
			"/cluster":      "/v1/cluster", "/": "/v1/cluster", "/?ahead=hour": "/v1/topics/timers/timers/count",
		} {
			f := newFake(t)
			f.answers[call] = p
			w := f.get(page)
			status := http.StatusServiceUnavailable
			if page[1:] == "" || page[1] == '?' {
				status = http.StatusOK
			}
			says(t, w, status, "<code>"+reason+"</code>", p.Detail)
			lacks(t, w, "passes by itself")
		}
	}
	// What the cluster is asked for says it of each partition and instance.
	f := newFake(t)
	since := time.Date(2026, 11, 22, 10, 59, 1, 0, time.FixedZone("", 2*60*60))
	f.answers["/v1/cluster"] = &api.Cluster{
		Asked: "a/1", Instances: []route.Instance{{Name: "a/1", Problem: "no broker has answered for group g for 59s"}},
		Partitions: []api.OwnedPartition{{Owner: "a/1", PartitionStatus: route.PartitionStatus{Topic: "timers",
			State: "failed", Since: since, Reason: "it has 3 partitions: restart the instance"}}},
	}
	for _, page := range []string{"/", "/cluster"} {
		says(t, f.get(page), http.StatusOK, "failed", "2026-11-22 08:59:01",
			"it has 3 partitions: restart the instance", "no broker has answered for group g for 59s")
	}
	for _, page := range []string{"/", "/cluster"} { // of the others no time is known
		lacks(t, newFake(t).get(page), "0001-")
	}
}

// A list is asked for as the form says, and its next page for the same timers: what is relative to now stays what it
// was on the first page.
func TestSearch(t *testing.T) {
	f := newFake(t)
	w := f.get("/timers?" + url.Values{"q": {evil}, "from": {"now"}, "to": {"+1h"}, "target": {"orders"},
		"state": {"paused"}}.Encode())
	says(t, w, http.StatusOK, "Next page")
	want := url.Values{
		"prefix": {evil}, "target": {"orders"}, "state": {"paused"}, "order": {"id"}, "limit": {"50"},
		"due-after": {"1795338000000"}, "due-before": {"1795341600000"},
	}
	if got := f.last(); got.path != "/v1/topics/timers/timers" || got.query.Encode() != want.Encode() {
		t.Errorf("asked for %s?%s, want %s", got.path, got.query.Encode(), want.Encode())
	}
	next := between2(w.Body.String(), `href="/timers?`, `"`)
	next = "/timers?" + html.UnescapeString(next)
	later := now
	now = now.Add(time.Minute)
	defer func() { now = later }()
	f.get(next)
	want.Set("cursor", "d.1.2.0~abc")
	if got := f.last().query.Encode(); got != want.Encode() {
		t.Errorf("the next page is asked for by %s, want %s", got, want.Encode())
	}
}

// between2 returns the last text between two others.
func between2(s, before, after string) string {
	i := strings.LastIndex(s, before)
	if i < 0 {
		return ""
	}
	s, _, _ = strings.Cut(s[i+len(before):], after)
	return s
}

func TestActions(t *testing.T) {
	done := api.Result{Outcome: "paused", Topic: "timers", Partition: 1, Offset: 12}
	base := "/v1/topics/timers/timers/" + segmentOf(evil)
	for do, want := range map[string]string{
		"pause": "POST " + base + "/pause", "resume": "POST " + base + "/resume", "trigger": "POST " + base +
			"/trigger", "cancel": "DELETE " + base,
	} {
		f := newFake(t)
		f.answers[want] = done
		w := f.post(timerPath(evil), url.Values{"do": {do}, "source": {"timers/1/7"}})
		got := f.last()
		if got.method+" "+got.path != want || got.header.Get("If-Match") != `"timers/1/7"` || got.caller != "someone" {
			t.Errorf("%s: asked %s %s with If-Match %s", do, got.method, got.path, got.header.Get("If-Match"))
		}
		if to := w.Header().Get("Location"); w.Code != http.StatusSeeOther || !strings.Contains(to, "done=paused") ||
			!strings.Contains(to, url.Values{"id": {evil}}.Encode()) {
			t.Errorf("%s: %d to %s", do, w.Code, to)
		}
		says(t, f.get(w.Header().Get("Location")), http.StatusOK, "Paused. Request timers/1/12.")
	}
	f := newFake(t)
	f.answers["DELETE "+base] = refusal(412, "condition-not-met", "nothing has changed")
	says(t, f.post(timerPath(evil), url.Values{"do": {"cancel"}, "source": {"timers/1/7"}}), 412, "nothing has changed",
		"since you looked")
	says(t, f.post(timerPath(evil), url.Values{"do": {"explode"}}), 400, "does not say what to do")
}

// The address says what was done, but the page shows that only in our own words, because anybody may
// have written the address.
func TestDoneIsOurs(t *testing.T) {
	f := newFake(t)
	for _, q := range []url.Values{{"done": {"You have won"}}, {"done": {"paused"}, "request": {"call 555-1234"}}} {
		body := f.get(timerPath("order-1") + "&" + q.Encode()).Body.String()
		if strings.Contains(body, "won") || strings.Contains(body, "555") {
			t.Errorf("%v puts words into the page", q)
		}
	}
	f.answers["/v1/topics/timers/timers/fired"] = refusal(http.StatusNotFound, "not-found",
		"no timer of ID fired is pending")
	says(t, f.get(timerPath("fired")+"&done=triggered&request=timers/0/3"), http.StatusOK,
		"It fires now. Request timers/0/3.", "No timer of this ID is pending")
}

func TestSchedule(t *testing.T) {
	f := newFake(t)
	at := "PUT /v1/topics/timers/timers/" + segmentOf(evil)
	f.answers[at] = api.Result{Outcome: "scheduled", Topic: "timers", Partition: 1, Offset: 7}
	form := url.Values{
		"topic": {"timers"}, "id": {evil}, "after": {" 10s "}, "target": {"orders"}, "payload": {"a\r\nb"},
		"headers":    {"x: 1\r\n\r\ny:z:\u202e\r\n"},
		"target-key": {" k "}, "target-partition": {"3"}, "count": {""}, "max-late": {"5m"}, "if": {"absent"},
	}
	w := f.post("/schedule", form)
	if w.Code != http.StatusSeeOther || !strings.HasPrefix(w.Header().Get("Location"), "/timer?done=scheduled") {
		t.Fatalf("%d to %s: %s", w.Code, w.Header().Get("Location"), w.Body)
	}
	put, _ := f.did(http.MethodPut)
	var got map[string]any
	if err := json.Unmarshal([]byte(put.body), &got); err != nil {
		t.Fatal(err)
	}
	want := `{"after":"10s","headers":[{"name":"x","value":"1"},{"name":"y","value":"z:\u202e"}],"if":"absent","maxLate":"5m","target":{"key":" k ","partition":3,"topic":"orders"},"value":"a\nb"}`
	text, _ := json.Marshal(got)
	var wanted map[string]any
	_ = json.Unmarshal([]byte(want), &wanted)
	wantText, _ := json.Marshal(wanted)
	if string(text) != string(wantText) || put.header.Get("Content-Type") != timerType {
		t.Errorf("%s %s, want %s", put.header.Get("Content-Type"), text, wantText)
	}

	for _, c := range []struct {
		name   string
		change url.Values
		want   string
	}{
		{"no ID", url.Values{"id": {""}}, "needs an ID"},
		{"count", url.Values{"count": {"many"}}, "not a whole number"},
		{"partition", url.Values{"target-partition": {"p1"}}, "is not a number"},
		{"header", url.Values{"headers": {"nonsense"}}, "write NAME: VALUE"},
		{"base64", url.Values{"as": {"base64"}, "payload": {"%%"}}, "is not base64"},
		{"null", url.Values{"as": {"null"}}, "is to be null and has text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong := url.Values{}
			for k, v := range form {
				wrong[k] = v
			}
			for k, v := range c.change {
				wrong[k] = v
			}
			says(t, f.post("/schedule", wrong), http.StatusBadRequest, c.want, `value="10s"`)
			if _, did := f.did(http.MethodPut); did {
				t.Error("it was written all the same")
			}
		})
	}
	t.Run("payloads", func(t *testing.T) {
		for as, want := range map[string]string{"base64": `"valueBase64":"AP8="`, "null": `"valueNull":true`} {
			form := url.Values{"topic": {"timers"}, "id": {evil}, "as": {as}}
			if as == "base64" {
				form.Set("payload", "AP8=")
			}
			f.post("/schedule", form)
			if put, _ := f.did(http.MethodPut); !strings.Contains(put.body, want) {
				t.Errorf("%s: %s", as, put.body)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		f.answers[at] = &api.Problem{Problem: refusal(400, "bad-cron", "cron is "+evil).Problem, Request: "timers/1/7"}
		says(t, f.post("/schedule", form), 400, "cron is "+escaped, "bad-cron", "timers/1/7", `value="10s"`)
	})
	t.Run("explain", func(t *testing.T) {
		form.Set("do", "explain")
		form.Set("cron", "0 10 * * *")
		says(t, f.post("/schedule", form), http.StatusOK, "At 10:00.", `value="10s"`, "a\r\nb</textarea>")
		if _, did := f.did(http.MethodPut); did {
			t.Error("it was scheduled")
		}
	})
}

func TestFormThatIsTooLarge(t *testing.T) {
	f := newFake(t)
	says(t, f.post("/schedule", url.Values{"payload": {strings.Repeat("x", maxForm)}}), 413, "api-body-limit")
	if len(f.asked) > 0 {
		t.Errorf("the API was asked for %v", f.asked)
	}
	r := httptest.NewRequest(http.MethodPost, "/schedule", strings.NewReader("a=%zz"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	says(t, f.send(r), 400, "the form cannot be read")
}

func TestResend(t *testing.T) {
	f := newFake(t)
	at := "/dead-letters?" + url.Values{"topic": {"timers"}, "id": {evil}}.Encode()
	w := f.post(at, url.Values{"partition": {"1"}, "offset": {"9"}})
	if got := f.last(); got.method != http.MethodPost || got.path != "/v1/topics/timers/dead-letters/1/9/resend" ||
		got.body != "" {
		t.Errorf("asked %s %s %s", got.method, got.path, got.body)
	}
	says(t, f.get(w.Header().Get("Location")), http.StatusOK, "Scheduled. Request timers/1/10.", escaped)
	says(t, f.post(at, url.Values{"partition": {"1"}, "offset": {"77"}}), 404, "there is nothing at")
	says(t, f.post(at, url.Values{}), 400, "does not say which")
}

// A dead letter is corrected in a form, reviewed, and sent. Untouched parts stay byte for byte, and
// nothing is sent before it is confirmed.
func TestCorrect(t *testing.T) {
	text := func(s string) *string { return &s }
	const one = "/v1/topics/timers/dead-letters/1/9"
	at := "/dead-letter?" + url.Values{"topic": {"timers"}, "partition": {"1"}, "offset": {"9"}}.Encode()
	letter := api.DeadLetter{
		ID: text(evil), Partition: 1, Offset: 9, At: now, Reason: "bad-cron", Detail: evil, Source: "timers/1/4",
		Headers: []api.Header{{Name: "timer-cron", Value: text("61 * * * *")}, {Name: "lines", Value: text("a\nb")},
			{Name: "bytes", ValueBase64: []byte{0, 255}}, {Name: "null", ValueNull: true},
			{Name: evil, Value: text("<b>")}},
		Payload: &api.Payload{Bytes: 6, Text: text("a\r\nb\rc")},
	}
	f := newFake(t)
	f.answers[one] = letter
	f.answers["POST "+one+"/resend"] = api.Result{Outcome: "scheduled", Topic: "timers", Partition: 1, Offset: 10}
	says(t, f.get(at), http.StatusOK, "bad-cron", escaped, `value="61 * * * *"`, `value="YQpi"`, `value="AP8="`,
		`value="timer-target-topic"`, "a\nb\nc</textarea>", "Look over and resend")
	typed := func(do, payload string) url.Values {
		return url.Values{
			"do": {do}, "payload": {payload},
			"name":  {"timer-cron", "lines", "bytes", "null", evil, "timer-target-topic", ""},
			"value": {"0 9 * * *", "YQpi", "AP8=", "", "<b>", "", ""},
			"as":    {"text", "base64", "base64", "null", "text", "text", "text"},
		}
	}
	says(t, f.post(at, typed("check", "a\r\nb\r\nc")), http.StatusOK, "Resend this?", "0 9 * * *", "as it was",
		`value="send"`)
	says(t, f.post(at, typed("check", "d")), http.StatusOK, "corrected", `name="payload" value="d"`)
	says(t, f.post(at, typed("edit", "d")), http.StatusOK, "Look over and resend", ">\nd</textarea>")
	if _, sent := f.did(http.MethodPost); sent {
		t.Error("it was sent before anybody was sure")
	}
	w := f.post(at, typed("send", "a\r\nb\r\nc"))
	sent, _ := f.did(http.MethodPost)
	var c api.Correction
	if err := json.Unmarshal([]byte(sent.body), &c); err != nil || w.Code != http.StatusSeeOther || c.Value != nil ||
		c.ID != "" || c.Headers == nil || len(*c.Headers) != 5 {
		t.Fatalf("%d, %v: sent %s", w.Code, err, sent.body)
	}
	if h := *c.Headers; *h[0].Value != "0 9 * * *" || string(h[1].ValueBase64) != "a\nb" ||
		string(h[2].ValueBase64) != "\x00\xff" || !h[3].ValueNull || h[4].Name != evil {
		t.Errorf("sent %s", sent.body)
	}
	f.post(at, typed("send", "d"))
	if sent, _ = f.did(http.MethodPost); !strings.Contains(sent.body, `"value":"d"`) {
		t.Errorf("sent %s", sent.body)
	}
	// An error is shown, and the typed text is still there.
	bad := typed("send", "d")
	bad["value"][2] = "!"
	says(t, f.post(at, bad), http.StatusBadRequest, "is not base64", `value="0 9 * * *"`)
	if _, sent := f.did(http.MethodPost); sent {
		t.Error("it was sent though the form is wrong")
	}
	f.answers["POST "+one+"/resend"] = refusal(400, "bad-cron", "hour is 99")
	says(t, f.post(at, typed("send", "d")), http.StatusBadRequest, "hour is 99", `value="0 9 * * *"`, ">\nd</textarea>")

	// A payload that a form cannot return is left alone; a missing one must be given.
	letter.Payload = &api.Payload{Bytes: 1, Text: text("\x00")}
	f.answers[one] = letter
	says(t, f.get(at), http.StatusOK, "sent as it was")
	f.post(at, typed("send", ""))
	if sent, _ = f.did(http.MethodPost); strings.Contains(sent.body, `"value":""`+"}") ||
		strings.Contains(sent.body, `],"value"`) {
		t.Errorf("sent %s", sent.body)
	}
	letter.Payload, letter.Truncated, letter.ID = &api.Payload{Null: true}, true, nil
	f.answers[one] = letter
	says(t, f.get(at), http.StatusOK, "did not fit and is gone", `name="id"`)
	more := typed("send", "new")
	more.Set("id", "an ID")
	f.post(at, more)
	if sent, _ = f.did(http.MethodPost); !strings.Contains(sent.body, `],"value":"new"`) ||
		!strings.Contains(sent.body, `"id":"an ID"`) {
		t.Errorf("sent %s", sent.body)
	}
	says(t, f.get("/dead-letter?topic=timers"), http.StatusBadRequest, "has topic, partition and offset")
}

// For an incomplete dead letter the form says which parts are missing and what is sent without them,
// before and during the review. A complete one has no such note.
func TestCorrectAnIncompleteDeadLetter(t *testing.T) {
	const one = "/v1/topics/timers/dead-letters/1/9"
	at := "/dead-letter?" + url.Values{"topic": {"timers"}, "partition": {"1"}, "offset": {"9"}}.Encode()
	id, after := "a", "10s"
	f := newFake(t)
	typed := url.Values{"do": {"check"}, "payload": {"x"}, "name": {"timer-after"}, "value": {"10s"}, "as": {"text"}}
	for _, c := range []struct {
		missing           []string
		says, look, never string
	}{
		{nil, "All of the request", "as it was", "are gone"},
		{[]string{"value"}, "did not fit and is gone", "corrected", "are gone"},
		{[]string{"value", "headers"}, "The headers that it passed on did not fit and are gone",
			"The headers that it passed on are gone: only those of this table are sent", "no header"},
		{[]string{"value", "headers", "key"}, "None of its headers did fit: they are gone",
			"All headers of the request are gone: only those of this table are sent", "that it passed on"},
	} {
		letter := api.DeadLetter{
			ID: &id, Partition: 1, Offset: 9, At: now, Reason: "bad-cron", Source: "timers/1/4", Missing: c.missing,
			Truncated: c.missing != nil,
			Headers:   []api.Header{{Name: "timer-after", Value: &after}},
			Payload:   &api.Payload{Null: c.missing != nil, Text: &id, Bytes: 1},
		}
		if typed.Set("payload", "x"); c.missing == nil {
			typed.Set("payload", id)
		}
		f.answers[one] = letter
		form, look := f.get(at), f.post(at, typed)
		says(t, form, http.StatusOK, c.says)
		says(t, look, http.StatusOK, c.look)
		if body := form.Body.String() + look.Body.String(); strings.Contains(body, c.never) {
			t.Errorf("missing %v: it says %q", c.missing, c.never)
		}
		f.answers["/v1/topics/timers/dead-letters"] = api.DeadLetterList{DeadLetters: []api.DeadLetter{letter}}
		if list := f.get("/dead-letters").Body.String(); strings.Contains(
			list, "its payload and headers did not fit") != (len(c.missing) > 1) {
			t.Errorf("missing %v: %s", c.missing, list)
		}
	}
}

// A letter that cannot be sent again unchanged has no button, and a payload that the list has cut
// says so.
func TestDeadLettersThatAreCut(t *testing.T) {
	f := newFake(t)
	begins := "the beginning"
	f.answers["/v1/topics/timers/dead-letters"] = api.DeadLetterList{DeadLetters: []api.DeadLetter{
		{ID: &begins, Offset: 1, At: now, Truncated: true, Payload: &api.Payload{Null: true}},
		{Offset: 2, At: now, Payload: &api.Payload{Bytes: 2013, Text: &begins}},
	}, Cursor: "abc"}
	w := f.get("/dead-letters")
	says(t, w, http.StatusOK, "did not fit and is gone", "and 2,000 bytes more", "cursor=abc")
	if strings.Contains(w.Body.String(), "<button>Resend") {
		t.Error("there is a button to send again what has no payload, or no ID")
	}
}

// A timer's page shows its history, and says where that ends.
func TestEventsOfATimer(t *testing.T) {
	const at = "/v1/topics/timers/timers/"
	f := newFake(t)
	history := at + segmentOf(evil) + "/events"
	oldest := now.Add(-time.Hour)
	f.answers[history] = api.TimerEvents{
		Events: []api.TimerEvent{
			{Offset: 9, At: now, Event: json.RawMessage(
				`{"type":"rejected","at":1795338001000,"reason":"bad-cron","detail":"<script>alert(1)</script>"}`)},
			{Offset: 8, At: now, Event: json.RawMessage(`{"other":"program"}`)},
			{Offset: 7, At: now,
				Event: json.RawMessage(
					`{"type":"fired","at":1795338000000,"source":"timers/0/5","occurrence":3,"lateness":4,"target":"orders"}`)},
		},
		Cursor: "7", Log: api.EventLog{Begins: 2, Ends: 10, LookedTo: 7, Position: "0:10"},
	}
	w := f.get(timerPath(evil))
	says(t, w, http.StatusOK, "rejected", "bad-cron", escaped, "unreadable", "offset 8", "fired", "2026-11-22 09:00:00",
		"occurrence 3 · late 4 ms · to orders · request timers/0/5",
		"events=7", "Older", "watch=1")
	lacks(t, w, "data-events", "deleted", "Newest")
	says(t, f.get(timerPath(evil, "watch", "1")), http.StatusOK,
		`data-events="/v1/topics/timers/events?id=%3Cscript%3E`, `&amp;position=0%3A10"`, "load it again")

	f.answers[history] = api.TimerEvents{Events: []api.TimerEvent{}, Log: api.EventLog{Begins: 2, Oldest: &oldest}}
	says(t, f.get(timerPath(evil, "events", "7")), http.StatusOK,
		"No event of this ID is on the topic of events before that",
		"begin at 2026-11-22 08:00:00: what was before has been deleted", "Newest")
	i := slices.IndexFunc(f.asked, func(a asked) bool { return a.path == history })
	if got := f.asked[i].query; got.Get("cursor") != "7" || got.Get("limit") != eventsShown {
		t.Errorf("asked for %v", got)
	}
	f.answers[history] = api.TimerEvents{Events: []api.TimerEvent{}, Cursor: "100",
		Log: api.EventLog{Ends: 200_100, LookedTo: 100}}
	says(t, f.get(timerPath(evil)), http.StatusOK, "among the 200,000 newest events", "Older")
	f.answers[history] = refusal(409, "no-events", "timers writes no events: set events: true")
	says(t, f.get(timerPath(evil)), http.StatusOK, "Nothing is known: timers writes no events: set events: true",
		"timers/1/7")
	f.answers[history] = moving()
	says(t, f.get(timerPath(evil)), http.StatusOK, "on its way", "timers/1/7")

	// The history of a timer that is gone is still shown.
	f.answers[at+"gone/events"] = api.TimerEvents{Events: []api.TimerEvent{{At: now,
		Event: json.RawMessage(`{"type":"cancelled","at":1795338000000,"cancel":"timers/0/6"}`)}}}
	says(t, f.get(timerPath("gone")), http.StatusNotFound, "there is nothing at", "cancelled", "request timers/0/6")
	// The script of the page asks for updates of its other parts, again and again.
	r := httptest.NewRequest(http.MethodGet, timerPath(evil), nil)
	r.Header.Set(liveHeader, "1")
	f.send(r)
	for _, a := range f.asked {
		if strings.HasSuffix(a.path, "/events") {
			t.Errorf("asked for %s", a.path)
		}
	}
}

// Forms of other sites change nothing, whatever stands in front of the console.
func TestOtherSites(t *testing.T) {
	for name, header := range map[string][2]string{"fetch": {"Sec-Fetch-Site", "cross-site"},
		"origin": {"Origin", "https://evil.example"}, "null": {"Origin", "null"}} {
		f := newFake(t)
		r := httptest.NewRequest(http.MethodPost, timerPath("order-1"),
			strings.NewReader("do=cancel&source=timers/0/5"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(header[0], header[1])
		w := f.send(r)
		if w.Code != http.StatusForbidden || len(f.asked) > 0 {
			t.Errorf("%s: %d, and the API was asked %d times", name, w.Code, len(f.asked))
		}
	}
}

// A path that is not exactly a page of the console reaches the API unchanged.
func TestOtherPathsAreTheAPIs(t *testing.T) {
	f := newFake(t)
	for _, path := range []string{"/v1/topics/timers/timers/a%2F..%2Fb", "/v1/topics//x", "//timers", "/timers/",
		"/Timers", "/static/", "/static/../timers", "/docs"} {
		f.get(path)
		if len(f.asked) != 1 || f.last().path != path {
			t.Errorf("%s: the API was asked for %+v", path, f.asked)
		}
	}
	w := f.send(httptest.NewRequest(http.MethodPut, "/timers", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" || len(f.asked) > 0 {
		t.Errorf("PUT of a page: %d, %s", w.Code, w.Header().Get("Allow"))
	}
}

func TestStatic(t *testing.T) {
	f := newFake(t)
	for path, kind := range map[string]string{"/static/console.css": "text/css; charset=utf-8",
		"/static/console.js": "text/javascript; charset=utf-8", "/static/icon.svg": "image/svg+xml"} {
		w := f.get(path)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Body.Len() == 0 {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("If-None-Match", w.Header().Get("ETag"))
		if again := f.send(r); again.Code != http.StatusNotModified {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
}

// Templates and files contain nothing that the policy forbids, and no address of another host.
func TestNothingInlineNothingFromElsewhere(t *testing.T) {
	for _, dir := range []string{"templates", "static"} {
		entries, err := files.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text := string(mustRead(dir + "/" + e.Name()))
			text = strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")
			for _, never := range []string{"http://", "https://", "<style", "style=", "onclick", "javascript:",
				"innerHTML =", "eval(", "url("} {
				if strings.Contains(text, never) {
					t.Errorf("%s has %q", e.Name(), never)
				}
			}
		}
	}
}

func TestTarget(t *testing.T) {
	for _, c := range []struct{ id, want string }{
		{"a", "/a"},
		{".", "/%2E"},
		{"..", "/%2E%2E"},
		{"a/../b", "/a%2F..%2Fb"},
		{"%2F", "/%252F"},
		{"\xff\x00", "/%FF%00"},
		{"a?b#c", "/a%3Fb%23c"},
		{strings.Repeat("é", 256), "/" + strings.Repeat("%C3%A9", 256)},
	} {
		at := (&call{path: []string{c.id}}).target()[len("/v1"):]
		if at != c.want {
			t.Errorf("%q is at %s, want %s", c.id, at, c.want)
		}
		u, err := url.Parse(at)
		if err != nil || u.Path != "/"+c.id || u.EscapedPath() != at {
			t.Errorf("%q comes as %q (%v)", c.id, u.Path, err)
		}
	}
}

func TestOwners(t *testing.T) {
	states, rows := byOwner([]api.OwnedPartition{owned("b", "stalled"), owned("a", "live"), owned("b", "live"),
		owned("", "unowned"), owned("a", "live")})
	if !slices.Equal(states, []string{"live", "stalled", "unowned"}) {
		t.Error(states)
	}
	want := []ownerRow{{"", []int{0, 0, 1}, 1}, {"a", []int{2, 0, 0}, 2}, {"b", []int{1, 1, 0}, 2}}
	if !slices.EqualFunc(rows, want, func(x, y ownerRow) bool {
		return x.Owner == y.Owner && x.Total == y.Total && slices.Equal(x.Counts, y.Counts)
	}) {
		t.Errorf("%+v", rows)
	}
}

func owned(owner, state string) (p api.OwnedPartition) {
	p.Owner, p.State = owner, state
	return p
}

// Only callers that may see the cluster see what the instance does.
func TestFiguresOfTheInstance(t *testing.T) {
	for _, c := range []struct {
		name    string
		cluster any
		shown   bool
	}{{"all", nil, true}, {"cannot be asked now", moving(), true}, {"forbidden", forbidden(), false}} {
		f := newFake(t)
		f.history = recent.New(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if c.cluster != nil {
			f.answers["/v1/cluster"] = c.cluster
		}
		if w := f.get("/"); strings.Contains(w.Body.String(), "This instance, last hour") != c.shown {
			t.Errorf("%s: shown %v, want %v", c.name, !c.shown, c.shown)
		}
	}
}

package console

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/recent"
	"github.com/waterclock/waterclock/internal/api/route"
)

// calm makes all partitions of the fake live and all targets healthy.
func calm(f *fakeAPI) *api.Cluster {
	c := &api.Cluster{Asked: "a/1", Instances: []route.Instance{{Name: "a/1", Member: true}},
		Partitions: []api.OwnedPartition{owned("a/1", "live")}}
	f.answers["/v1/cluster"] = c
	return c
}

// The overview is green only if it is known that nothing was refused.
func TestOverviewInAFlood(t *testing.T) {
	const green = `class="note good"`
	f := newFake(t)
	calm(f)
	w := f.get("/")
	says(t, w, http.StatusOK, "Dead letters of the last hour: 12.", `12 <code>bad-cron</code>`,
		"live, and no target is unhealthy", `<span class="count new">1,235<`, "<dd>12 <small>in 1 h</small></dd>")
	if body := w.Body.String(); strings.Contains(body, green) || strings.Contains(body, "orders.retry") ||
		strings.Contains(body, "<code>&lt;script") {
		t.Error("it is green, or tells of what was before the last hour")
	} else if strings.Index(body, "no target is unhealthy") < strings.Index(body, "Dead letters of the last hour") {
		t.Error("the good news comes before the bad")
	}
	f.answers["/v1/dead-letters"] = api.DeadLetterCountList{Topics: []api.DeadLetterCounts{{Topic: "timers", LastDay: 3,
		Exact: true}}}
	says(t, f.get("/"), http.StatusOK, green, "the last hour has no dead letters", `<span class="count">3<`)
	f.answers["/v1/dead-letters"] = api.DeadLetterCountList{Topics: []api.DeadLetterCounts{{Topic: "timers",
		LastHour: 7, LastDay: 7}}}
	says(t, f.get("/"), http.StatusOK, "last hour: 7 or more", ">7+ <")
	for name, answer := range map[string]any{
		"How many dead letters there are is not known": moving(),
		"cannot be counted: the broker is away": api.DeadLetterCountList{Topics: []api.DeadLetterCounts{
			{Topic: "timers", Problem: "the broker is away"}}},
	} {
		f.answers["/v1/dead-letters"] = answer
		w := f.get("/")
		says(t, w, http.StatusOK, name)
		if strings.Contains(w.Body.String(), green) {
			t.Errorf("%s, and it is green", name)
		}
	}
}

// If nobody serves a partition, only its overdue timers are unknown.
func TestOldestOverdue(t *testing.T) {
	f := newFake(t)
	c := calm(f)
	says(t, f.get("/"), http.StatusOK, "<dt>Oldest overdue</dt><dd>none</dd>")
	c.Unknown = 2
	says(t, f.get("/"), http.StatusOK, "<dd>not known <small>not known of 2 partitions</small>")
	c.OldestSecs = 90
	says(t, f.get("/"), http.StatusOK, "<dd>1 min 30 s <small>not known of 2 partitions</small>")
	failed := owned("a/1", "failed")
	failed.OldestUnknown = true
	unknown := owned("", "unknown")
	unknown.Pending = 0
	says(t, f.get("/"), http.StatusOK, "<dd>0 <small>not known of 2 partitions</small>")
	c.Partitions = []api.OwnedPartition{unknown}
	says(t, f.get("/cluster"), http.StatusOK, `data-label="Pending"><span class="quiet">not known`,
		`data-label="Owner"><span><span class="quiet">not known`)
	c.Partitions = []api.OwnedPartition{failed}
	says(t, f.get("/cluster"), http.StatusOK, `data-label="Oldest overdue"><span class="quiet">not known`)
}

// It is not an error that a timer has fired: its page says when, and how late it was.
func TestPageOfATimerThatIsOver(t *testing.T) {
	const at = "/v1/topics/timers/timers/gone"
	for _, c := range []struct {
		name   string
		events any
		want   []string
	}{
		{"fired", `{"type":"fired","at":1795338000001,"lateness":1,"target":"orders","pending":null}`,
			[]string{"<strong>Fired</strong>", "2026-11-22 09:00:00.001", "1 ms late, to orders."}},
		{"cancelled", `{"type":"cancelled","at":1795338000000,"pending":null}`,
			[]string{"<strong>Cancelled</strong>", "09:00:00.000"}},
		{"undeliverable",
			`{"type":"undeliverable","at":1795338000000,"reason":"target-unknown","detail":"there is none","pending":null}`, []string{"Became a dead letter", "target-unknown, there is none"}},
		{"others behind it",
			`{"type":"condition-not-met","at":1795338000009,"pending":null} {"type":"fired","at":1795338000001,"lateness":1,"target":"orders","pending":null}`, []string{"<strong>Fired</strong>"}},
		{"pending by the log", `{"type":"fired","at":1795338000001,"lateness":1,"target":"orders","pending":{"due":1}}`,
			[]string{"What has become of it is not among the events"}},
		{"nothing", ``, []string{"nothing of this ID"}},
		{"no events", refusal(409, "no-events", "timers writes no events"),
			[]string{"Whether it has fired is not known, for timers writes no events."}},
		{"events not read", moving(), []string{"could not be read"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.answers[at] = refusal(404, api.ReasonNotFound, "no timer of ID gone is pending on timers")
			f.answers[at+"/events"] = c.events
			if text, ok := c.events.(string); ok {
				page := api.TimerEvents{Events: []api.TimerEvent{}}
				for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
					var e json.RawMessage
					if err := d.Decode(&e); err != nil {
						t.Fatal(err)
					}
					page.Events = append(page.Events, api.TimerEvent{At: now, Event: e})
				}
				f.answers[at+"/events"] = page
			}
			w := f.get(timerPath("gone"))
			says(t, w, http.StatusNotFound, append(c.want, "No timer of this ID is pending on timers now.")...)
			if main, _, _ := strings.Cut(w.Body.String(), `aria-labelledby="events"`); strings.Contains(
				main, `role="alert"`) {
				t.Error("it is shown as a fault")
			}
		})
	}
}

// All dead letters of a filter are counted, confirmed, and sent again by a job of the API.
func TestResendAll(t *testing.T) {
	f := newFake(t)
	const resend = "/v1/topics/timers/dead-letters/resend"
	w := f.get("/resend?" + url.Values{"topic": {"timers"}, "reason": {"bad-cron"}, "prefix": {evil},
		"from": {"-1h"}}.Encode())
	says(t, w, http.StatusOK, "<strong>34 dead letters</strong>", "2 others are not sent", "Reason", "bad-cron",
		"2026-11-22T08:00:00.000Z", escaped, `name="replace"`)
	says(t, f.get("/resend?topic=timers"), http.StatusOK, "Reviewed, or sent again</dt><dd>",
		"marked as reviewed once they are sent", "30", escaped)
	says(t, f.get("/resend?topic=timers&seen=all"), http.StatusOK, "<strong>all</strong> that are there now",
		"they fire once more", "30", escaped)
	w = f.get("/resend?" + url.Values{"topic": {"timers"}, "reason": {"bad-cron"}, "prefix": {evil},
		"from": {"-1h"}}.Encode())
	want := url.Values{"reason": {"bad-cron"}, "prefix": {evil}, "after": {"1795334400000"}, "reviewed": {"false"},
		"dry-run": {"true"}}
	if got := f.last(); got.path != resend || got.query.Encode() != want.Encode() {
		t.Errorf("%s?%s, want %s", got.path, got.query.Encode(), want.Encode())
	}
	f.answers["POST "+resend] = api.JobStarted{Job: &api.Job{ID: "j1"}}
	action := between2(w.Body.String(), `method="post" action="`, `"`)
	started := now
	now = now.Add(time.Minute) // the filter keeps the times that were shown
	defer func() { now = started }()
	w = f.post(html.UnescapeString(action), url.Values{"replace": {"1"}, "rate": {"50"}, "sure": {"1"}})
	want = url.Values{"reason": {"bad-cron"}, "prefix": {evil}, "after": {"1795334400000"}, "reviewed": {"false"},
		"replace": {"true"}, "rate": {"50"}}
	if got := f.last(); got.query.Encode() != want.Encode() || w.Code != http.StatusSeeOther ||
		w.Header().Get("Location") != "/job?id=j1" {
		t.Errorf("%s, want %s; %d to %s", got.query.Encode(), want.Encode(), w.Code, w.Header().Get("Location"))
	}
	f.post("/resend?topic=timers", url.Values{"sure": {"1"}})
	if got := f.last().query.Encode(); got != "reviewed=false" {
		t.Errorf("all new ones of a topic: %s", got)
	}
	f.post("/resend?topic=timers&seen=all", url.Values{"sure": {"1"}})
	if got := f.last().query.Encode(); got != "all=true" {
		t.Errorf("all of a topic: %s", got)
	}
	f.answers["POST "+resend] = forbidden()
	says(t, f.post("/resend?topic=timers", url.Values{}), http.StatusForbidden, "has no role")
	says(t, f.get("/resend"), http.StatusBadRequest, "does not say of which topic")

	w = f.post("/job?id=j1", url.Values{})
	if got := f.last(); got.method != http.MethodDelete || got.path != "/v1/jobs/j1" || w.Code != http.StatusSeeOther {
		t.Errorf("stop: %s %s, %d", got.method, got.path, w.Code)
	}
	says(t, f.get("/job?id=gone"), http.StatusNotFound, "there is nothing at")
}

// Records of a fixed-delay topic have no timer pages, but can be sent again.
func TestDeadLettersOfAFixedDelayTopic(t *testing.T) {
	f := newFake(t)
	const letters = "/v1/topics/orders.retry/dead-letters"
	f.answers[letters] = api.DeadLetterList{DeadLetters: []api.DeadLetter{{Partition: 1, Offset: 9, At: now,
		Reason: "target-unknown", Source: "orders.retry/1/4"}}}
	f.answers["POST "+letters+"/1/9/resend"] = api.Result{Outcome: "written", Topic: "orders.retry",
		Partition: 1, Offset: 10}
	w := f.get("/dead-letters?topic=orders.retry")
	says(t, w, http.StatusOK, "fixed delay", "waits for the delay again", "Resend 1/9",
		"<option selected>orders.retry</option>")
	if strings.Contains(w.Body.String(), `href="/timer?`) {
		t.Error("it leads to a timer")
	}
	to := f.post("/dead-letters?topic=orders.retry", url.Values{"partition": {"1"}, "offset": {"9"}}).Header().Get(
		"Location")
	says(t, f.get(to), http.StatusOK, "after the delay of its topic", "Request orders.retry/1/10.")
}

// Axes end where the data do: one step above the largest value, and at the first and last moment.
func TestAxes(t *testing.T) {
	for most, want := range map[float64]string{1: "1,0.5,0", 7: "8,6,4,2,0", 37: "40,30,20,10,0", 101: "150,100,50,0",
		0.02: "0.02,0.015,0.01,0.005,0"} {
		var p plot
		top := p.axis(most, 0, func(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) })
		if got := strings.Join(p.Up, ","); got != want || top < most || len(p.Rules) != len(p.Up) {
			t.Errorf("up to %v: %s, want %s", most, got, want)
		}
	}
	points := []recent.Point{
		{From: now, To: now.Add(10 * time.Second), Fired: 3},
		{From: now.Add(10 * time.Second), To: now.Add(70 * time.Second), Fired: 7},
	}
	c := lineChart(points, 1, number2, series{"fired", "", "a", func(p recent.Point) float64 { return p.Fired }})
	if c.Up[0] != "8" || !strings.HasPrefix(c.Lines[0].Points, "0.0,") ||
		!strings.Contains(c.Lines[0].Points, " 600.0,") {
		t.Errorf("%v, %s", c.Up, c.Lines[0].Points)
	}
	if want := "09:00:10 to 09:01:10: fired 7"; c.Points[1].Says != want ||
		c.Points[1].X+c.Points[1].Width != chartWidth {
		t.Errorf("%+v, want %q", c.Points, want)
	}
	if want := []string{"09:00:00", "09:00:17", "09:00:35", "09:00:52", "09:01:10"}; !slices.Equal(c.Along, want) {
		t.Errorf("%v, want %v", c.Along, want)
	}
	var due plot
	bars := []bar{{From: now, To: now.Add(time.Hour), N: 3},
		{From: now.Add(time.Hour), To: now.Add(2 * time.Hour), N: 0, More: true}}
	due.bars(bars, "15:04")
	if !slices.Equal(due.Up, []string{"3", "2", "1", "0"}) || due.Points[1].Says != "10:00 to 11:00: 0 or more" ||
		bars[0].Height < chartHeight-1.01 {
		t.Errorf("%+v, %+v", due, bars)
	}
}

func number2(x float64) string { return number(x) }

// Of a target that does not exist the overview says what becomes of its timers, and how many are dead letters already.
func TestTargetThatDoesNotExist(t *testing.T) {
	f := newFake(t)
	c := calm(f)
	c.Unhealthy = []route.UnhealthyTarget{
		{Topic: "mial", Partition: "unknown", Since: now.Add(-time.Minute), DeadLetterAfterSecs: 10},
		{Topic: "few", Partition: "beyond", Since: now, DeadLetterAfterSecs: 10},
		{Topic: "*", Partition: "unknown", Since: now}, {Topic: "mail", Partition: "any", Since: now},
	}
	f.answers["/v1/dead-letters"] = api.DeadLetterCountList{Topics: []api.DeadLetterCounts{{
		Topic: "timers", LastHour: 9, LastDay: 9, Exact: true,
		Reasons: []api.ReasonCount{{Reason: "target-unknown", LastHour: 7}, {Reason: "bad-cron", LastHour: 2}},
	}}}
	for _, path := range []string{"/", "/cluster"} {
		says(t, f.get(path), http.StatusOK,
			"does not exist, as far as is known; after 10s its due timers become dead letters (target-unknown)",
			"lacks a partition that timers name; after 10s its due timers become dead letters "+
				"(target-partition-unknown)", "wait for their turn", "takes no writes; its timers wait")
	}
	says(t, f.get("/"), http.StatusOK, "7 dead letters</a> have such a reason", "Target <code>mial</code> since",
		"Target <code>mail/any</code> since")
}

package console

import (
	"html"
	"net/http"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
)

// TestJobsPage: the jobs that the caller may see are listed, and instances that could not be asked are named.
func TestJobsPage(t *testing.T) {
	f := newFake(t)
	f.answers["/v1/jobs"] = api.JobList{Jobs: []api.Job{{ID: "j1", Topic: "timers", Action: "pause", State: "running",
		Begun: now, Seen: 1234, Changed: 7, Prefix: evil}}, Unasked: []api.UnaskedInstance{{Name: evil, Problem: evil}}}
	says(t, f.get("/jobs"), 200, "pause on timers", "/job?id=j1", "1,234", "running", "its jobs are missing",
		`data-key="j1"`)
	f.answers["/v1/jobs"] = api.JobList{}
	says(t, f.get("/jobs"), 200, "There is none.")
	f.answers["/v1/jobs"] = forbidden()
	says(t, f.get("/jobs"), 403, "no role read")
}

// TestContinuedMove: the page of a move that ended early leads to the preview of one that moves the others, with the
// filter and the change of the first.
func TestContinuedMove(t *testing.T) {
	f := newFake(t)
	job := api.Job{ID: "j1", Topic: "timers", Action: "move", State: "stopped", Prefix: "order-", Position: "0:7",
		Query: "by=1h&due-after=1795341600000&due-before=2026-11-23T10%3A00%3A00Z&label=order&label=team%3Da&" +
			"prefix=order-&state=paused&target=mail"}
	f.answers["/v1/jobs/j1"] = &job
	const form = "&from=2026-11-22T10%3A00%3A00.000Z&label=order%2C+team%3Da&q=order-"
	const filter = "&state=paused&target=mail&to=2026-11-23T10%3A00%3A00Z&topic=timers"
	rest := "/bulk?by=1h&do=move" + form + "&since=0%3A7" + filter
	href := func(to string) string {
		return `href="` + strings.ReplaceAll(html.EscapeString(to), "+", "&#43;") + `"`
	}
	says(t, f.get("/job?id=j1"), 200, href(rest), "Move the others", "Each by", ">1h<", "order, team=a",
		href("/timers?"+form[1:]+filter), "Target topic", "2026-11-22T10")
	rest = strings.Replace(rest, "by=1h&", "", 1)
	says(t, f.get(rest), 200, `name="since" value="0:7"`, "This continues a job", "Preview")
	at := "POST /v1/topics/timers/timers/move"
	const asked = "due-after=1795341600000&due-before=1795428000000&label=order%2C+team%3Da&prefix=order-&" +
		"state=paused&target=mail"
	f.answers[at] = api.JobStarted{Matching: &api.TimerCount{Count: 12}}
	w := f.get(rest + "&by=1h")
	if got, _ := f.did(http.MethodPost); got.query.Encode() != "by=1h&dry-run=true&"+asked {
		t.Errorf("the preview asks for %s", got.query.Encode())
	}
	f.answers[at] = api.JobStarted{Job: &job}
	f.post(html.UnescapeString(between2(w.Body.String(), `method="post" action="`, `"`)), nil)
	if got := f.last().query.Encode(); got != "by=1h&"+asked+"&unchanged-since=0%3A7" {
		t.Errorf("the job is started with %s", got)
	}
	job.Query = "all=true&to=2026-11-23T10%3A00%3A00Z"
	says(t, f.get("/job?id=j1"), 200, "All to", "none: all of the topic",
		html.EscapeString("/bulk?at=2026-11-23T10%3A00%3A00Z&do=move&since=0%3A7&topic=timers"))
	job.Query = "" // of an earlier version: the filter is unknown
	lacks(t, f.get("/job?id=j1"), "Move the others")
	job.Query = "all=true&by=1h"
	for _, state := range []string{"running", "done"} {
		job.State = state
		lacks(t, f.get("/job?id=j1"), "Move the others")
	}
}

// TestFilterOfAResend: the page of a resend says which letters it was for, and leads back to them.
func TestFilterOfAResend(t *testing.T) {
	f := newFake(t)
	f.answers["/v1/jobs/j1"] = &api.Job{ID: "j1", Topic: "timers", Action: "resend", State: "done", Query: "after=" +
		"1795341600000&label=team%3Da&prefix=order-&reason=bad-cron&replace=true&reviewed=false"}
	back := "/dead-letters?from=2026-11-22T10%3A00%3A00.000Z&label=team%3Da&prefix=order-&reason=bad-cron&topic=timers"
	says(t, f.get("/job?id=j1"), 200, `href="`+html.EscapeString(back)+`"`, "Written from", "bad-cron", "team=a",
		"Reviewed, or sent again", "what is pending under their IDs")
}

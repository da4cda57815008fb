package console

import (
	"html"
	"net/http"
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

// TestContinuedMove: the page of a move that ended early leads to the form that moves the others.
func TestContinuedMove(t *testing.T) {
	f := newFake(t)
	job := api.Job{ID: "j1", Topic: "timers", Action: "move", State: "stopped", Prefix: "order-", Position: "0:7"}
	f.answers["/v1/jobs/j1"] = &job
	rest := "/bulk?do=move&q=order-&since=0%3A7&topic=timers"
	says(t, f.get("/job?id=j1"), 200, html.EscapeString(rest), "Move the others")
	says(t, f.get(rest), 200, `name="since" value="0:7"`, "This continues a job", "Preview")
	at := "POST /v1/topics/timers/timers/move"
	f.answers[at] = api.JobStarted{Matching: &api.TimerCount{Count: 12}}
	w := f.get(rest + "&by=1h")
	if got, _ := f.did(http.MethodPost); got.query.Encode() != "by=1h&dry-run=true&prefix=order-" {
		t.Errorf("the preview asks for %s", got.query.Encode())
	}
	f.answers[at] = api.JobStarted{Job: &job}
	f.post(html.UnescapeString(between2(w.Body.String(), `method="post" action="`, `"`)), nil)
	if got := f.last().query.Encode(); got != "by=1h&prefix=order-&unchanged-since=0%3A7" {
		t.Errorf("the job is started with %s", got)
	}
	for _, state := range []string{"running", "done"} {
		job.State = state
		lacks(t, f.get("/job?id=j1"), "Move the others")
	}
}

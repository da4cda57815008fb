package console

import (
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

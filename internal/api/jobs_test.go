package api

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// A job that steers counts a timer as changed only if its outcome says so. A letter that is sent again is done with any
// outcome but a refusal, or with none if its topic has none.
func TestCountOfOutcomes(t *testing.T) {
	with := func(outcome string) []route.Written {
		return []route.Written{{Offset: 1, Decision: &query.Decision{Outcome: outcome}}}
	}
	for _, c := range []struct {
		action                  string
		written                 []route.Written
		changed, spared, failed int
	}{
		{"cancel", with("cancelled"), 1, 0, 0},
		{"pause", with("paused"), 1, 0, 0},
		{"cancel", with("not-found"), 0, 1, 0},
		{"cancel", with("condition-not-met"), 0, 1, 0},
		{"cancel", with("rejected"), 0, 0, 1},
		{"cancel", with("of a later version"), 0, 0, 1},
		{"cancel", []route.Written{{Offset: 1}}, 0, 0, 1},
		{"cancel", []route.Written{{Offset: -1}}, 0, 0, 1},
		{"resend", with("scheduled"), 1, 0, 0},
		{"resend", []route.Written{{Offset: 1}}, 1, 0, 0},
		{"resend", []route.Written{{Offset: 1, Why: "moved"}}, 0, 0, 1},
	} {
		j := &Job{Action: c.action}
		count(j, c.written)
		if int(j.Changed) != c.changed || int(j.Spared) != c.spared || int(j.Failed) != c.failed || j.Seen != 1 {
			t.Errorf("%s of %+v: %d changed, %d spared, %d failed", c.action, c.written[0], j.Changed,
				j.Spared, j.Failed)
		}
	}
}

// A job that is stopped may still hear what became of the requests that it had sent.
func TestOutlasting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job, stop := context.WithCancel(t.Context())
		sent, done := outlasting(job)
		defer done()
		stop()
		time.Sleep(jobGrace - 1)
		if err := sent.Err(); err != nil {
			t.Errorf("ended by %v before its time", err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if sent.Err() == nil {
			t.Error("not ended")
		}
	})
}

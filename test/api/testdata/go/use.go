// Command client uses the generated client as somebody would who has only read the OpenAPI document.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"client/generated"
)

func main() {
	if err := use(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("all is well")
}

// use does one thing after the other. (It is long and flat: each is a line of a manual.)
func use(ctx context.Context, url, topic, target string) error {
	c, err := generated.NewClientWithResponses(url)
	if err != nil {
		return err
	}
	one := generated.NewTimer{Value: new("hello from Go"), After: new("1h"), Target: &generated.Target{Topic: target}}

	// Schedule: as JSON, and with the payload as the body.
	made, err := c.PutTimerWithResponse(ctx, topic, "go/one é", nil, one)
	if err != nil || made.JSON201 == nil || made.JSON201.Outcome != generated.ResultOutcomeScheduled {
		return fmt.Errorf("schedule: %w, %+v", err, made)
	}
	fires, err := c.PutTimerWithBodyWithResponse(ctx, topic, "go-fires", &generated.PutTimerParams{
		TimerAfter: new("500ms"), TimerTargetTopic: &target, WaterclockPass: new("from=go"),
	}, "application/octet-stream", strings.NewReader("fires \x00\xff"))
	if err != nil || fires.JSON201 == nil {
		return fmt.Errorf("schedule a payload: %w, %+v", err, fires)
	}

	// Get, and send what was got again.
	got, err := c.GetTimerWithResponse(ctx, topic, "go/one é", nil)
	if err != nil || got.JSON200 == nil || *got.JSON200.Id != "go/one é" ||
		*got.JSON200.Payload.Text != "hello from Go" {
		return fmt.Errorf("get: %w, %+v", err, got)
	}
	again, err := c.PutTimerWithBodyWithResponse(
		ctx, topic, "go/one é", &generated.PutTimerParams{IfMatch: new(`"` + got.JSON200.Source + `"`)},
		"application/json", strings.NewReader(string(got.Body)))
	if err != nil || again.JSON200 == nil || again.JSON200.Outcome != generated.ResultOutcomeReplaced ||
		!again.JSON200.Timer.Due.Equal(got.JSON200.Due) {
		return fmt.Errorf("put what was got: %w, %+v", err, again)
	}

	// List, pause, count.
	page, err := c.ListTimersWithResponse(ctx, topic, &generated.ListTimersParams{Prefix: new("go/")})
	if err != nil || page.JSON200 == nil || len(page.JSON200.Timers) != 1 {
		return fmt.Errorf("list: %w, %+v", err, page)
	}
	paused, err := c.PauseTimerWithResponse(ctx, topic, "go/one é", nil)
	if err != nil || paused.JSON200 == nil || paused.JSON200.Outcome != generated.ResultOutcomePaused {
		return fmt.Errorf("pause: %w, %+v", err, paused)
	}
	n, err := c.CountTimersWithResponse(
		ctx, topic, &generated.CountTimersParams{Prefix: new("go/"),
			State: new(generated.CountTimersParamsStatePaused)})
	if err != nil || n.JSON200 == nil || n.JSON200.Count != 1 {
		return fmt.Errorf("count: %w, %+v", err, n)
	}

	// What is wrong is a problem, with a reason.
	there, err := c.PutTimerWithResponse(ctx, topic, "go/one é", &generated.PutTimerParams{IfNoneMatch: new("*")}, one)
	if err != nil || there.ApplicationproblemJSON412 == nil ||
		there.ApplicationproblemJSON412.Reason != generated.ConditionNotMet {
		return fmt.Errorf("condition: %w, %+v", err, there)
	}
	one.After = new("soon")
	bad, err := c.PutTimerWithResponse(ctx, topic, "go-bad", nil, one)
	if err != nil || bad.ApplicationproblemJSON400 == nil ||
		bad.ApplicationproblemJSON400.Reason != generated.BadDuration {
		return fmt.Errorf("bad duration: %w, %+v", err, bad)
	}

	// Many.
	one.After = new("1h")
	var many generated.NewTimers
	for i := range 3 {
		each := one
		each.Id = new(fmt.Sprintf("go-many-%d", i))
		many.Timers = append(many.Timers, each)
	}
	posted, err := c.PostTimersWithResponse(ctx, topic, nil, many)
	if err != nil || posted.JSON200 == nil || len(posted.JSON200.Results) != 3 ||
		posted.JSON200.Results[2].Status != 201 {
		return fmt.Errorf("many: %w, %+v", err, posted)
	}
	job, err := c.CancelTimersWithResponse(ctx, topic, &generated.CancelTimersParams{Prefix: new("go-many-")})
	if err != nil || job.JSON202 == nil {
		return fmt.Errorf("job: %w, %+v", err, job)
	}
	jobs, err := c.ListJobsWithResponse(ctx)
	if err != nil || jobs.JSON200 == nil || len(jobs.JSON200.Jobs) != 1 ||
		jobs.JSON200.Jobs[0].Id != job.JSON202.Job.Id {
		return fmt.Errorf("jobs: %w, %+v", err, jobs)
	}

	// Cancel.
	gone, err := c.CancelTimerWithResponse(ctx, topic, "go/one é", nil)
	if err != nil || gone.JSON200 == nil {
		return fmt.Errorf("cancel: %w, %+v", err, gone)
	}
	none, err := c.GetTimerWithResponse(ctx, topic, "go/one é", nil)
	if err != nil || none.ApplicationproblemJSON404 == nil {
		return fmt.Errorf("get what is cancelled: %w, %+v", err, none)
	}
	return nil
}

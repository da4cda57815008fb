package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/client"
)

const (
	// jobLook is the interval at which a job's progress is read, and jobMissing is how often in a row that may fail.
	jobLook    = 500 * time.Millisecond
	jobMissing = 20
	// stopTimeout limits how long an interrupted command tries to stop its job.
	stopTimeout = 5 * time.Second
)

// job is a command that steers all timers that a filter chooses, over the HTTP API.
type job struct {
	asking
	filter
	all, dryRun bool
	rate        int
}

// filterFlags has the flags that make a command a job.
var filterFlags = []string{"prefix", "target", "state", "due-after", "due-before", "all", "dry-run"}

func (j *job) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	j.asking.flags(fs)
	j.filter.flags(fs)
	fs.BoolVar(&j.all, "all", false, "all timers of the topic")
	fs.BoolVar(&j.dryRun, "dry-run", false, "only count the timers")
	fs.IntVar(&j.rate, "rate", 5000, "write `N` requests a second at most")
}

// meant reports whether the command line chooses timers by a filter.
func (j *job) meant(cmd *cobra.Command) bool {
	return slices.ContainsFunc(filterFlags, cmd.Flags().Changed)
}

// run starts a job and waits for its end. An interrupt stops it.
func (j *job) run(cmd *cobra.Command, action, topic string) error {
	for _, name := range []string{"id", "if", "wait", "partition"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is for one timer, and --prefix and the other filters are for many: use one or the other", name)
		}
	}
	q, err := j.query()
	if err != nil {
		return err
	}
	chosen := len(q) > 0
	if !chosen {
		q.Set("all", "true")
	}
	started, c, err := j.start(cmd, client.Timers(topic, action), q, chosen, fmt.Sprintf("no filter chooses timers: use --all if you mean all timers of topic %s", topic))
	if err != nil {
		return err
	}
	if n := started.Matching; n != nil {
		return j.print(n, func() string { return fmt.Sprintf("%s would affect %s pending timers", action, countOf(n)) })
	}
	return j.finish(cmd, c, action, started.Job)
}

// start starts a job or, with --dry-run, asks what it would do. chosen says whether there is a filter; nothingChosen is the
// error if there is none.
func (j *job) start(cmd *cobra.Command, path string, q url.Values, chosen bool, nothingChosen string) (started api.JobStarted, c *client.Client, err error) {
	switch {
	case !chosen && !j.all && !j.dryRun:
		return started, nil, usagef("%s", nothingChosen)
	case chosen && j.all:
		return started, nil, usagef("--all and a filter exclude each other")
	}
	q.Set("dry-run", strconv.FormatBool(j.dryRun))
	q.Set("rate", strconv.Itoa(j.rate))
	if c, err = j.client(); err != nil {
		return started, nil, err
	}
	if err = c.Call(cmd.Context(), http.MethodPost, path, q, &started); err == nil && started.Job == nil && started.Matching == nil && started.Letters == nil {
		err = errors.New("the API answers neither a job nor a number")
	}
	return started, c, err
}

// finish waits for the end of a job and prints the result.
func (j *job) finish(cmd *cobra.Command, c *client.Client, action string, started *api.Job) error {
	end, err := j.await(cmd.Context(), c, started)
	if err != nil {
		return err
	}
	err = j.print(end, func() string {
		return fmt.Sprintf("%s %s: %d changed, %d spared, %d failed, of %d seen", action, end.State, end.Changed, end.Spared, end.Failed, end.Seen)
	})
	switch {
	case err != nil:
	case end.State != "done":
		err = fmt.Errorf("the job %s is %s: %s", end.ID, end.State, end.Problem)
	case end.Failure != "":
		err = fmt.Errorf("%d of %d failed, the first because of %s", end.Failed, end.Seen, end.Failure)
	case end.Failed > 0:
		err = fmt.Errorf("%d of %d failed", end.Failed, end.Seen)
	}
	return err
}

// progress returns a line about a running job: its progress, and what it waits for.
func progress(job *api.Job) string {
	line := fmt.Sprintf("%d seen, %d changed", job.Seen, job.Changed)
	if job.Problem != "" {
		line += "; " + job.Problem
	}
	return line
}

// await follows a job to its end.
func (j *job) await(ctx context.Context, c *client.Client, show *api.Job) (*api.Job, error) {
	path := "/v1/jobs/" + url.PathEscape(show.ID)
	for missing := 0; show.State == "running"; {
		select {
		case <-ctx.Done():
			stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
			defer cancel()
			if err := c.Call(stop, http.MethodDelete, path, nil, nil); err != nil {
				return nil, fmt.Errorf("interrupted, but the job %s could not be stopped and goes on: %w", show.ID, err)
			}
			return nil, fmt.Errorf("interrupted: the job %s is stopped; %d timers were changed by then", show.ID, show.Changed)
		case <-time.After(jobLook):
		}
		var now api.Job
		err := c.Call(ctx, http.MethodGet, path, nil, &now)
		var refused *client.Problem
		switch {
		case err == nil:
			missing, show = 0, &now
			if now.State == "running" && !j.json {
				fmt.Fprintln(j.p.stderr, progress(&now))
			}
		case ctx.Err() != nil:
		case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
			return nil, fmt.Errorf("the instance that had the job %s has ended, and the job with it: start it again", show.ID)
		default:
			if missing++; missing > jobMissing {
				return nil, fmt.Errorf("nothing is known of the job %s any more: %w", show.ID, err)
			}
		}
	}
	return show, nil
}

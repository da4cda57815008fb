package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/client"
)

const (
	// jobLook is how often it is asked how far a job is, and jobMissing how often in a row
	// that may fail.
	jobLook    = 500 * time.Millisecond
	jobMissing = 20
	// stopTimeout is how long it may take to stop the job of a command that is interrupted.
	stopTimeout = 5 * time.Second
)

// job is a command that steers all timers which a filter chooses, by the HTTP API.
type job struct {
	asking
	filter
	all, dryRun bool
	rate        int
}

// filterFlags are the flags of which one makes the command a job.
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
	for _, name := range filterFlags {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// run starts a job and waits for its end. An interrupt stops it.
func (j *job) run(cmd *cobra.Command, action, topic string) error {
	for _, name := range []string{"id", "if", "wait", "partition"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is for one timer, --prefix and the like for many: choose", name)
		}
	}
	q, err := j.query()
	switch {
	case err != nil:
		return err
	case len(q) == 0 && !j.all && !j.dryRun:
		return usagef("no filter chooses timers: say --all if all timers of topic %s are meant", topic)
	case len(q) > 0 && j.all:
		return usagef("--all and a filter exclude each other")
	}
	if len(q) == 0 {
		q.Set("all", "true")
	}
	q.Set("dry-run", strconv.FormatBool(j.dryRun))
	q.Set("rate", strconv.Itoa(j.rate))
	c, err := j.client()
	if err != nil {
		return err
	}
	var started api.JobStarted
	if err := c.Call(cmd.Context(), http.MethodPost, client.Timers(topic, action), q, &started); err != nil {
		return err
	}
	if started.Job == nil {
		if started.Matching == nil {
			return errors.New("the API answers neither a job nor a number")
		}
		return j.print(started.Matching, func() string {
			return fmt.Sprintf("%s timers are pending that %s would be for", countOf(started.Matching), action)
		})
	}
	return j.finish(cmd, c, action, started.Job)
}

// finish waits for the end of a job and says how it was.
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

// progress is one line about a job that runs: how far it is, and what it waits for.
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
				return nil, fmt.Errorf("interrupted, and the job %s goes on, for it could not be stopped: %w", show.ID, err)
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

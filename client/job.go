package client

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/internal/kit/span"
)

const (
	// jobLook is the interval at which a job's progress is read; jobMissing is how often in a row that may fail.
	jobLook    = 500 * time.Millisecond
	jobMissing = 20
)

// Action is the change that a job makes to each timer.
type Action string

// The actions.
const (
	CancelAll Action = "cancel"
	PauseAll  Action = "pause"
	ResumeAll Action = "resume"
	MoveAll   Action = "move" // with By or To in JobOptions
)

// JobOptions are properties of a job.
type JobOptions struct {
	All  bool // confirms that all timers are meant; needed without a filter
	Rate int  // requests a second at most; 0: 5,000, or 1,000 for dead letters

	// MoveAll shifts the due time of each timer by By, which may be negative, or makes all due at To. Set one of them.
	By time.Duration
	To time.Time
	// UnchangedSince is the Position of an earlier job that moved timers. MoveAll then spares those that were scheduled
	// or moved since that job began: it moves what that one has not.
	UnchangedSince string
}

func (j *JobOptions) add(q url.Values) url.Values {
	if j.All {
		q.Set("all", "true")
	}
	if j.Rate > 0 {
		q.Set("rate", strconv.Itoa(j.Rate))
	}
	if j.By != 0 {
		q.Set("by", span.String(j.By))
	}
	maps.Copy(q, texts("to", millis(j.To), "unchanged-since", j.UnchangedSince))
	return q
}

// Job changes many timers, or sends many dead letters again. It lives in the memory of the instance that has started
// it.
type Job struct {
	ID     string    `json:"id"`
	Topic  string    `json:"topic"`
	Action string    `json:"action"`
	Prefix string    `json:"prefix,omitempty"`
	Query  string    `json:"query,omitempty"` // the filter, and what the job changes, as the query of the call
	State  JobState  `json:"state"`
	Begun  time.Time `json:"begun"`
	Ended  time.Time `json:"ended,omitzero"`
	// Each timer or dead letter that was Seen is counted in one of the next three.
	Seen     int64  `json:"seen"`
	Changed  int64  `json:"changed"`
	Spared   int64  `json:"spared"` // it was another timer by then, or needed no change
	Failed   int64  `json:"failed"`
	Failure  string `json:"failure,omitempty"`  // the reason of the first failure
	Unmarked string `json:"unmarked,omitempty"` // of a resend: why letters are not marked as reviewed
	Position string `json:"position,omitempty"` // of a move: for UnchangedSince; a job that has one keeps it
	Problem  string `json:"problem,omitempty"`  // why it has failed, was stopped, or waits
}

// JobState is the state of a job.
type JobState string

// The states.
const (
	JobRunning JobState = "running"
	JobDone    JobState = "done"
	JobStopped JobState = "stopped"
	JobFailed  JobState = "failed"
)

// started is the answer to the start of a job.
type started struct {
	Matching *Count
	Letters  *LetterCount
	Job      *Job
}

var errNoJob = errors.New("the API's response has neither a job nor a number")

// StartJob starts a job that changes all timers that a filter selects. Timers that are scheduled again during the job
// are spared.
func (c *Client) StartJob(ctx context.Context, topic string, a Action, f Filter, o JobOptions) (*Job, error) {
	return c.start(ctx, Path(topic, "timers", string(a)), o.add(f.query()))
}

func (c *Client) start(ctx context.Context, path string, q url.Values) (*Job, error) {
	var s started
	err := c.Call(ctx, http.MethodPost, path, q, nil, &s)
	if err == nil && s.Job == nil {
		err = errNoJob
	}
	return s.Job, err
}

// CountJob counts the timers that a job would change.
func (c *Client) CountJob(ctx context.Context, topic string, a Action, f Filter) (Count, error) {
	q := f.query()
	if a == MoveAll { // wherever to: that makes no difference
		q.Set("by", "0s")
	}
	var s started
	err := c.dryRun(ctx, Path(topic, "timers", string(a)), q, &s)
	if err == nil && s.Matching == nil {
		err = errNoJob
	}
	if err != nil {
		return Count{}, err
	}
	return *s.Matching, nil
}

// dryRun asks for the effect of a job, which does no harm twice.
func (c *Client) dryRun(ctx context.Context, path string, q url.Values, out *started) error {
	q.Set("dry-run", "true")
	_, err := c.answer(ctx, &call{method: http.MethodPost, path: path, query: q, repeats: always}, out)
	return err
}

// Jobs returns the last jobs of all instances, the newest first. Those of instances that cannot be asked are missing.
func (c *Client) Jobs(ctx context.Context) ([]Job, error) {
	var list struct{ Jobs []Job }
	err := c.get(ctx, "/v1/jobs", nil, &list)
	return list.Jobs, err
}

// Job returns a job. The error has [ReasonNotFound] if its instance has ended, or has forgotten it.
func (c *Client) Job(ctx context.Context, id string) (*Job, error) {
	j := new(Job)
	return j, c.get(ctx, "/v1/jobs/"+url.PathEscape(id), nil, j)
}

// StopJob stops a job. What it has written stays.
func (c *Client) StopJob(ctx context.Context, id string) (*Job, error) {
	j := new(Job)
	q := &call{method: http.MethodDelete, path: "/v1/jobs/" + url.PathEscape(id), repeats: always}
	_, err := c.answer(ctx, q, j)
	return j, err
}

// WaitJob follows a job to its end, and calls progress, unless it is nil, about twice a second. It returns the job as
// it was last seen. If the context ends, the job goes on: see StopJob.
func (c *Client) WaitJob(ctx context.Context, j *Job, progress func(*Job)) (*Job, error) {
	for failed := 0; j.State == JobRunning; {
		select {
		case <-ctx.Done():
			return j, ctx.Err()
		case <-time.After(jobLook):
		}
		now, err := c.Job(ctx, j.ID)
		switch {
		case err == nil:
			failed, j = 0, now
			if progress != nil && now.State == JobRunning {
				progress(now)
			}
		case ctx.Err() != nil:
		case errors.Is(err, ReasonNotFound):
			return j, err
		default:
			if failed++; failed > jobMissing {
				return j, err
			}
		}
	}
	return j, nil
}

package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/api/access"
)

// Job steers all timers that match a filter, one page by ID after the other, or sends dead letters again.
type Job struct {
	ID     string    `json:"id"`
	Topic  string    `json:"topic"`
	Action string    `json:"action" enum:"cancel,pause,resume,move,resend"`
	Prefix string    `json:"prefix,omitempty" doc:"Prefix of the IDs that it was started for."`
	State  string    `json:"state" enum:"running,done,stopped,failed"`
	Begun  time.Time `json:"begun"`
	Ended  time.Time `json:"ended,omitzero"`
	// Each timer or dead letter that was seen is counted in one of the other fields.
	Seen    int64  `json:"seen" doc:"Timers, or dead letters, seen so far."`
	Changed int64  `json:"changed" doc:"Of them, those that were cancelled, paused, resumed, moved or sent again."`
	Spared  int64  `json:"spared" doc:"Of them, those that had fired, or were scheduled again, or were in the desired state already, when their request was read; also those that this job itself has changed by a request whose response was lost: such requests are written again."`
	Failed  int64  `json:"failed" doc:"Of them, those whose request was rejected or not written, or whose decision is unknown."`
	Failure string `json:"failure,omitempty" doc:"The reason of the first failure."`
	// Unmarked is about the letters sent by a resend.
	Unmarked string `json:"unmarked,omitempty" doc:"Of a resend: why the sent letters are not, or not all, marked as reviewed. Another resend may send them again."`
	Position string `json:"position,omitempty" doc:"Of a move: the end of the request log when it began, or when the job began that it continues. What has its source before it was not moved by the job; unchanged-since takes it."`
	Problem  string `json:"problem,omitempty" doc:"Why it has failed, was stopped, or waits."`
}

// JobID makes the ID of a job of a process. It names the process, so that any instance knows which process has the
// job.
func JobID(process string) string { return access.RandomID()[:16] + "-" + process }

// JobHolder has the jobs of this process.
type JobHolder interface {
	// JobsHere returns the jobs that the caller in the context may see: the one with the given ID, or all. If stop is
	// set it first stops the job, which requires a further right. Without the right to the requested job the error is
	// a ForbiddenError. None: there is no such job.
	JobsHere(ctx context.Context, id string, stop bool) ([]Job, error)
}

// HaveJobs gives the router the holder of this process's jobs. It must be called before the first call.
func (r *Router) HaveJobs(h JobHolder) { r.jobs = h }

// Job returns a job from the process that has it, and stops it first if stop is set; nil if there is no such job,
// because its process has ended or has forgotten it. Errors are those of Ask.
func (r *Router) Job(ctx context.Context, id string, stop bool) (*Job, error) {
	_, process, _ := strings.Cut(id, "-")
	var found []Job
	var err error
	if process == r.o.Process || process == "" {
		found, err = r.jobs.JobsHere(ctx, id, stop)
	} else {
		found, err = r.jobOf(ctx, process, id, stop)
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// jobOf asks another process for a job. Processes that own nothing are unknown to others.
func (r *Router) jobOf(ctx context.Context, process, id string, stop bool) ([]Job, error) {
	c := &Call{Kind: Jobs, Job: id}
	if stop {
		c.Kind = Stop
	}
	for _, known := range []time.Duration{ownersAge, ownersPause} {
		all, err := r.owners.of(ctx, known)
		if err != nil {
			return nil, err
		}
		for _, owner := range all {
			if owner.Process != process {
				continue
			}
			a, err := r.hopTo(ctx, owner, c)
			var dial *net.OpError
			switch {
			case errors.Is(err, errNotOwner) && errors.As(err, &dial):
				return nil, fmt.Errorf("%w: %w", ErrMoving, err) // it may be alive
			case errors.Is(err, errNotOwner): // another process has its address by now
				return nil, nil
			}
			return a.Jobs, err
		}
	}
	return nil, nil
}

// AllJobs returns the jobs that the caller in the context may see, of all instances that can be asked, and the other
// instances, with Problem set. An error means that the directory cannot be read.
func (r *Router) AllJobs(ctx context.Context) (all []Job, unasked []Instance, err error) {
	others, _, err := r.others(ctx, &Call{Kind: Jobs})
	if err != nil {
		return nil, nil, err
	}
	if all, err = r.jobs.JobsHere(ctx, "", false); err != nil {
		return nil, nil, err
	}
	for _, o := range others {
		if o.err != nil {
			unasked = append(unasked, o.unknown())
			continue
		}
		all = append(all, o.answer.Jobs...)
	}
	return all, unasked, nil
}

package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// Instances asks all instances that own something, and this one, which comes first; the others are sorted by name. An
// instance that cannot be asked has Problem set. If the directory cannot be read that is this instance, and the
// others are unknown. The second result is the owners according to the directory.
func (r *Router) Instances(ctx context.Context) ([]Instance, map[timer.TopicPartition]Owner) {
	list := []Instance{r.o.Local.Status()}
	list[0].SettingsDiffer = r.o.SettingsOf(r.o.Process)
	others, owners, err := r.others(ctx, &Call{Kind: Status})
	if err != nil && list[0].Problem == "" {
		list[0].Problem = err.Error()
		if stuck, ok := errors.AsType[*StuckError](err); ok {
			list[0].Problem = stuck.Detail // in this state partitions do not move
		}
	}
	for _, o := range others {
		if o.err == nil && o.answer.Instance == nil {
			o.err = errors.New("empty response")
		}
		var i Instance
		if o.err == nil {
			i = *o.answer.Instance
		} else {
			i = o.unknown()
		}
		i.SettingsDiffer = r.o.SettingsOf(o.owner.Process)
		list = append(list, i)
	}
	slices.SortFunc(list[1:], func(a, b Instance) int { return strings.Compare(a.Name, b.Name) })
	return list, owners
}

// other is another instance, and its answer.
type other struct {
	owner  Owner
	answer Answer
	err    error
}

// unknown returns the entry of an instance that could not be asked.
func (o *other) unknown() Instance {
	i := Instance{Name: o.owner.Process, API: o.owner.API, Problem: o.err.Error()}
	if elsewhere, ok := errors.AsType[*ElsewhereError](o.err); ok {
		i.Problem = elsewhere.Why
		if o.owner.API == "" {
			i.Problem = "it has no API: " + i.Problem
		}
	}
	return i
}

// others asks all instances that own something, except this process, concurrently. The second result is the owners
// according to the directory; an error means that it cannot be read.
func (r *Router) others(ctx context.Context, c *Call) ([]other, map[timer.TopicPartition]Owner, error) {
	owners, err := r.owners.of(ctx, ownersAge)
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{r.o.Process: true}
	answers := make(chan other)
	n := 0
	for _, owner := range owners {
		if seen[owner.Process] {
			continue
		}
		seen[owner.Process] = true
		n++
		go func() {
			a, err := r.hopTo(ctx, owner, c)
			answers <- other{owner, a, err}
		}()
	}
	all := make([]other, n)
	for i := range all {
		all[i] = <-answers
	}
	return all, owners, nil
}

// A timer is a stray if it is on another partition than the one that its ID belongs on, because its producer uses
// another partitioner. A caller that looks for it by its ID asks the wrong owner, which has no such timer. So before
// the caller is told that, all instances are asked. Each of them searches those of its partitions that have strays,
// which it always counts. Usually there are none. That is remembered for strayAge, during which a new stray is not
// found.

// strayAge is how long the absence of strays is remembered, and strayTimeout bounds the search for one.
const (
	strayAge     = 5 * time.Second
	strayTimeout = 2 * time.Second
	maxClean     = 10_000 // topics that are remembered
)

// clean remembers the topics that had no strays. mu guards it.
type clean struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (c *clean) is(topic string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := c.at[topic]
	return known && time.Since(at) < strayAge
}

func (c *clean) note(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil || len(c.at) >= maxClean {
		c.at = make(map[string]time.Time)
	}
	c.at[topic] = time.Now()
}

// Find returns the timer of an ID that is on another partition of a topic than the one on which it belongs, which has
// been asked; nil: no instance that answers has one. It is a help for people, so a failed call is not an error.
func (r *Router) Find(ctx context.Context, topic string, id []byte) *query.Timer {
	if r.clean.is(topic) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, strayTimeout)
	defer cancel()
	c := &Call{Kind: Find, Topic: topic, ID: id}
	here := r.find(ctx, c)
	if here.Timer != nil {
		return here.Timer
	}
	others, _, err := r.others(ctx, c)
	none := here.Clean && err == nil
	for _, o := range others {
		if o.err == nil && o.answer.Timer != nil {
			return o.answer.Timer
		}
		none = none && o.err == nil && o.answer.Clean
	}
	if none {
		r.clean.note(topic)
	}
	return nil
}

// find searches the partitions of this process.
func (r *Router) find(ctx context.Context, c *Call) Answer {
	strays := r.o.Local.Strays(c.Topic)
	for _, p := range strays {
		if t, err := p.Get(ctx, c.ID); err == nil && t != nil && t.State != query.Remembered {
			return Answer{Timer: t}
		}
	}
	return Answer{Clean: len(strays) == 0}
}

// Job steers all timers that match a filter, one page by ID after the other, or sends dead letters again.
type Job struct {
	ID     string    `json:"id"`
	Topic  string    `json:"topic"`
	Action string    `json:"action" enum:"cancel,pause,resume,move,resend"`
	Prefix string    `json:"prefix,omitempty" doc:"Prefix of the IDs that it was started for."`
	Query  string    `json:"query,omitempty" doc:"The filter that it was started with, and what it changes, as the query of the call. Absent: its instance has an earlier version."`
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

package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// Job steers all timers that a filter chooses, one page by ID after the other, or sends dead letters
// again.
type Job struct {
	ID     string    `json:"id"`
	Topic  string    `json:"topic"`
	Action string    `json:"action" enum:"cancel,pause,resume,resend"`
	Prefix string    `json:"prefix,omitempty" doc:"Of the IDs that it was started for."`
	State  string    `json:"state" enum:"running,done,stopped,failed"`
	Begun  time.Time `json:"begun"`
	Ended  time.Time `json:"ended,omitzero"`
	// Each timer or dead letter that was seen is counted in one of the other fields.
	Seen    int64  `json:"seen" doc:"Timers, or dead letters, that it has come to."`
	Changed int64  `json:"changed" doc:"Of them, those that were cancelled, paused, resumed or sent again."`
	Spared  int64  `json:"spared" doc:"Of them, those that had fired, or were scheduled again, or were so already, when their request was read; also those that this job has changed itself by a request whose answer was lost: such requests are written again."`
	Failed  int64  `json:"failed" doc:"Of them, those whose request was refused or not written, or whose decision is not known."`
	Failure string `json:"failure,omitempty" doc:"Of a resend: what the first that failed has met."`
	// Unmarked is about what a resend has sent.
	Unmarked string `json:"unmarked,omitempty" doc:"Of a resend: why what it has sent is not marked as reviewed, or not all of it. Another resend may send it again."`
	Problem  string `json:"problem,omitempty" doc:"Why it has failed or was stopped, or what it waits for."`
}

// JobID makes the ID of a job of a process. It names the process, so that any instance knows which
// process has the job.
func JobID(process string) string { return access.RandomID()[:16] + "-" + process }

// JobHolder has the jobs of this process.
type JobHolder interface {
	// JobsHere returns the jobs that the caller in the context may see: the one with the given ID, or all.
	// If stop is set it first stops the job, which takes a right of its own. Without the right to the
	// requested job the error is a ForbiddenError. None: there is no such job.
	JobsHere(ctx context.Context, id string, stop bool) ([]Job, error)
}

// HaveJobs gives the router the holder of this process's jobs. It must be called before the first call.
func (r *Router) HaveJobs(h JobHolder) { r.jobs = h }

// Job returns a job from the process that has it, and stops it first if stop is set; nil if there is
// no such job, because its process has ended or has forgotten it. Errors are those of Ask.
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

// jobOf asks another process for a job. A process that owns nothing is not known to other processes.
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

// AllJobs returns the jobs that the caller in the context may see, of all instances that can be asked,
// and the other instances, with Problem set. An error says that the directory cannot be read.
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

// A timer is a stray if it lies on another partition than the one that its ID belongs on, because its
// producer uses another partitioner. A caller that looks for it by its ID asks the wrong owner, for which
// nothing is pending. So before the caller is told that, all instances are asked. Each of them looks in
// those of its partitions that have strays, which it always counts. Usually there are none. That is
// remembered for strayAge, during which a new stray is not found.

// strayAge is for how long it is believed that a topic has no strays, and strayTimeout bounds the
// look for one.
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

// Find returns the timer of an ID that lies on another partition of a topic than the one on which
// it belongs, which has been asked; nil: no instance that answers has one. It is a help for people,
// so what cannot be asked is no error.
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

// find looks in the partitions of this process.
func (r *Router) find(ctx context.Context, c *Call) Answer {
	strays := r.o.Local.Strays(c.Topic)
	for _, p := range strays {
		if t, err := p.Get(ctx, c.ID); err == nil && t != nil && t.State != query.Remembered {
			return Answer{Timer: t}
		}
	}
	return Answer{Clean: len(strays) == 0}
}

const (
	// ownersAge is how old the known owners may be. If an instance turns out not to be the owner,
	// they are read again, but not within ownersPause.
	ownersAge   = time.Second
	ownersPause = 100 * time.Millisecond
	// ownersTimeout bounds one read of the directory.
	ownersTimeout = 3 * time.Second
)

// Owner is the process that has committed the last offset of a partition.
type Owner struct {
	Process string // ID of its process
	API     string // address of its API, as a URL; empty: it has none
}

// Directory reads who owns the partitions of the group.
type Directory interface {
	Owners(ctx context.Context) (map[timer.TopicPartition]Owner, error)
}

// owners caches the directory.
type owners struct {
	from   Directory
	flight singleflight.Group // callers that find the cache too old share one read

	mu  sync.Mutex // guards what follows
	at  time.Time  // when the last read began; zero: it has failed
	all map[timer.TopicPartition]Owner
}

// of returns the owners as they were at most max ago.
func (o *owners) of(ctx context.Context, max time.Duration) (map[timer.TopicPartition]Owner, error) {
	o.mu.Lock()
	at, all := o.at, o.all
	o.mu.Unlock()
	if time.Since(at) < max {
		return all, nil
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: its owner cannot be read: %w", ErrMoving, ctx.Err())
	case read := <-o.flight.DoChan("", o.read):
		if read.Err != nil {
			return nil, fmt.Errorf("%w: its owner cannot be read: %w", ErrMoving, read.Err)
		}
		return read.Val.(map[timer.TopicPartition]Owner), nil
	}
}

// read reads the directory. No caller's end ends it, but ownersTimeout does.
func (o *owners) read() (any, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), ownersTimeout)
	defer cancel()
	all, err := o.from.Owners(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at, o.all = began, all; err != nil {
		o.at = time.Time{}
	}
	return all, err
}

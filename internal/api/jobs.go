package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

const (
	// maxRunning limits the running jobs, maxKept the remembered ones.
	maxRunning, maxKept = 16, 100
	// runningEach limits the running jobs of one caller.
	runningEach = 4
	// jobPage is the number of timers that a job looks up at a time.
	jobPage = 500
	// rateSteps is the number of parts into which a job divides the requests of a second.
	rateSteps = 10
	// jobPause is the pause between two attempts. jobPatience limits the attempts at the same page.
	jobPause, jobPatience = time.Second, 5 * time.Minute
	// jobGrace is how long a job that is stopped waits for the answers to what it has sent.
	jobGrace = 2 * time.Second
)

// Job is a job as callers see it.
type Job = route.Job

// JobList is a list of jobs of all instances.
type JobList struct {
	Jobs    []Job             `json:"jobs" nullable:"false" doc:"Jobs that the caller may see, the newest first."`
	Unasked []UnaskedInstance `json:"unasked,omitempty" nullable:"false" doc:"Instances that could not be asked: their jobs are missing."`
}

// UnaskedInstance is an instance that could not be asked.
type UnaskedInstance struct {
	Name    string `json:"name"`
	API     string `json:"api,omitempty" doc:"Address of its API, if it has one."`
	Problem string `json:"problem" doc:"Why it could not be asked."`
}

// jobs holds the jobs of this process, in memory.
type jobs struct {
	*common
	lists   *lists
	process string // is in the jobs' IDs
	free    *access.Pool

	mu  sync.Mutex // guards all, and the shown state of every job
	all map[string]*job
}

type job struct {
	show   Job // guarded by jobs.mu
	cancel context.CancelFunc
	topic  Topic
	rate   *rate.Limiter // of requests, including repeated ones
}

func (j *jobs) register(h huma.API) {
	for _, s := range []struct{ action, header, summary string }{
		{"cancel", waterclock.HeaderCancel, "Cancel all timers that a filter chooses"},
		{"pause", waterclock.HeaderPause, "Pause all timers that a filter chooses"},
		{"resume", waterclock.HeaderResume, "Resume all timers that a filter chooses"},
	} {
		op := operation("jobs", http.MethodPost, "/v1/topics/{topic}/timers/"+s.action, s.action+"Timers", s.summary,
			"With dry-run it counts. Otherwise it starts a job, which writes a request for each timer, under the "+
				"condition that it is still that timer:",
			"what is scheduled again meanwhile is spared. The job lives in the memory of the instance that is "+
				"asked, and ends with it.")
		startsJob(h, op, func(ctx context.Context, in *Chosen) (*startedJob, error) {
			show := Job{Action: s.action, Query: in.asQuery()}
			return j.start(ctx, show, in, func(*query.Timer) []timer.Header {
				return []timer.Header{{Key: s.header, Value: []byte(waterclock.True)}}
			})
		})
	}
	move := operation("jobs", http.MethodPost, "/v1/topics/{topic}/timers/move", "moveTimers",
		"Make all timers that a filter chooses due at another time", "With by each becomes due that much later, "+
			"or earlier, than it is; with to all become due at one time. Otherwise as cancelTimers. If the job does "+
			"not finish, another one with unchanged-since moves the others, and none twice.")
	startsJob(h, move, j.move)
	list := operation("jobs", http.MethodGet, "/v1/jobs", "listJobs", "List jobs", "Of all instances: those that "+
		"run, and those that are remembered. An instance that owns no partition is known to itself alone.")
	reads(h, list, func(ctx context.Context, _ *struct{}) (l JobList, err error) {
		all, unasked, err := j.asker.AllJobs(ctx)
		if err != nil {
			return l, err
		}
		slices.SortFunc(all, func(x, y Job) int { return cmp.Or(y.Begun.Compare(x.Begun), cmp.Compare(x.ID, y.ID)) })
		l.Jobs = append([]Job{}, all...)
		for _, in := range unasked {
			l.Unasked = append(l.Unasked, UnaskedInstance{in.Name, in.API, in.Problem})
		}
		return l, nil
	})
	for _, s := range []struct {
		method, id, summary, doc string
		stop                     bool
	}{
		{http.MethodGet, "getJob", "See how far a job has come", "Asked of any instance.", false},
		{http.MethodDelete, "stopJob", "Stop a job", "Asked of any instance. What it has written stays.", true},
	} {
		op := operation("jobs", s.method, "/v1/jobs/{id}", s.id, s.summary, s.doc)
		op.DefaultStatus = http.StatusOK
		reads(h, op, func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"100"`
		}) (*Job, error) {
			found, err := j.asker.Job(ctx, in.ID, s.stop)
			if err == nil && found == nil {
				err = problem(http.StatusNotFound, ReasonNotFound,
					"there is no job %.60q: a job lives in the memory of the instance that was asked to start it, "+
						"ends with it, and the last %d of each are remembered", in.ID, maxKept)
			}
			return found, err
		})
	}
}

// Chosen has the parameters of operations on all timers that a filter chooses.
type Chosen struct {
	Topic string `path:"topic" doc:"Request topic."`
	Filter
	All    bool `query:"all" doc:"Confirms that all timers of the topic are meant: required without a filter."`
	DryRun bool `query:"dry-run" doc:"Only count."`
	Rate   int  `query:"rate" minimum:"1" maximum:"50000" default:"5000" doc:"The most requests that it writes per second."`
}

// asQuery returns the filter, with more parameters, as the query of a call that chooses the same timers.
func (c *Chosen) asQuery(more ...string) string {
	return queryOf(c.Label, append(more, "due-after", c.DueAfter, "due-before", c.DueBefore, "prefix", c.Prefix,
		"target", c.Target, "state", c.State, "all", flag(c.All))...)
}

// queryOf returns labels, and pairs of a name and a value that may be empty, as a query.
func queryOf(labels []string, pairs ...string) string {
	q := url.Values{"label": labels}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q.Encode()
}

// flag returns the value of a parameter that is absent if it is false.
func flag(set bool) string {
	if set {
		return "true"
	}
	return ""
}

// startsJob registers an operation that starts a job or, in a dry run, counts.
func startsJob[In any](h huma.API, op huma.Operation, start func(context.Context, *In) (*startedJob, error)) {
	op.DefaultStatus = http.StatusAccepted
	describe[JobStarted](h, &op, map[string]string{"200": "Of a dry run: how many there are."})
	handle(h, op, start)
}

// JobStarted is a job, or its expected effect.
type JobStarted struct {
	Matching *TimerCount    `json:"matching,omitempty" doc:"Of a dry run."`
	Letters  *LetterMatches `json:"letters,omitempty" doc:"Of a dry run that is about dead letters."`
	Job      *Job           `json:"job,omitempty"`
}

type startedJob struct {
	Status   int
	Location string `header:"Location"`
	Body     JobStarted
}

// start starts a job that steers timers or, in a dry run, counts them. show is the job as callers see it, without the
// topic and the prefix. steers returns the headers of the request for a timer, except its condition; nil: it is spared.
func (j *jobs) start(ctx context.Context, show Job, in *Chosen,
	steers func(*query.Timer) []timer.Header) (*startedJob, error) {
	name, dry := in.Topic, in.DryRun
	q, err := in.Filter.query()
	if err == nil && q == (query.Filter{}) && !in.All && !dry {
		err = invalid("nothing chooses timers: give due-after, due-before, prefix, target, state or label, or "+
			"all=true for all timers of %.100q", in.Topic)
	}
	if err != nil {
		return nil, err
	}
	role := access.Admin
	if dry {
		role = access.Read
	}
	topic, err := j.topics.topic(ctx, role, name, q.Prefix)
	if err != nil {
		return nil, err
	}
	if dry {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		n, err := j.lists.count(ctx, name, topic, &query.Page{Filter: q}, nil)
		return &startedJob{Status: http.StatusOK, Body: JobStarted{Matching: &n}}, cmp.Or(err, missingError(n.Missing))
	}
	show.Topic, show.Prefix = name, q.Prefix
	one := &job{topic: topic, show: show}
	if show.Action == "move" && show.Position == "" {
		p, err := j.position(ctx, name, topic)
		if err != nil {
			return nil, err
		}
		one.show.Position = p.String()
	}
	return j.launch(ctx, one, in.Rate, func(ctx context.Context) error { return j.steerAll(ctx, one, steers, q) })
}

// launch starts a job that may write perSecond requests a second.
func (j *jobs) launch(ctx context.Context, one *job, perSecond int,
	run func(context.Context) error) (*startedJob, error) {
	hold := j.free.Acquire(ctx, 1)
	if hold == nil {
		return nil, problem(http.StatusTooManyRequests, ReasonTooManyJobs,
			"%d jobs of a caller run on an instance at a time, and %d of all: wait for one, or stop one",
			runningEach, maxRunning)
	}
	one.show.ID, one.show.State, one.show.Begun = route.JobID(j.process), "running", j.now().UTC()
	one.rate = rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/rateSteps))
	// The caller stays known after the call is over.
	life, release := access.Outlive(ctx)
	life, cancel := context.WithCancel(life)
	one.cancel = cancel
	j.add(one)
	shown := one.show
	end := context.AfterFunc(j.life.Context(), cancel)
	j.life.Go(func(context.Context) {
		defer hold.Release()
		defer release()
		defer end()
		defer cancel()
		j.ended(life, one, run(life))
	})
	return &startedJob{Status: http.StatusAccepted, Location: "/v1/jobs/" + shown.ID, Body: JobStarted{Job: &shown}},
		nil
}

// add keeps a job. If there are too many, it forgets the one that ended first. The number that can run is smaller.
func (j *jobs) add(one *job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var first *job
	for _, other := range j.all {
		if other.show.State != "running" && (first == nil || other.show.Ended.Before(first.show.Ended)) {
			first = other
		}
	}
	if len(j.all) >= maxKept && first != nil {
		delete(j.all, first.show.ID)
	}
	j.all[one.show.ID] = one
}

// here returns the jobs that a caller may see, or stops one: see route.JobHolder.
func (j *jobs) here(ctx context.Context, id string, stop bool) ([]Job, error) {
	var found []*job
	var shown []Job
	j.mu.Lock()
	for _, one := range j.all {
		if id == "" || one.show.ID == id {
			found, shown = append(found, one), append(shown, one.show)
		}
	}
	j.mu.Unlock() // reading rights may take a file access
	if id == "" {
		return slices.DeleteFunc(shown,
			func(s Job) bool { return j.topics.may(ctx, access.Read, s.Topic, s.Prefix) != nil }), nil
	}
	role := access.Read
	if stop {
		role = access.Admin
	}
	for i := range found {
		if err := j.topics.may(ctx, role, shown[i].Topic, shown[i].Prefix); err != nil {
			return nil, &route.ForbiddenError{Detail: err.Error()}
		}
		if stop {
			found[i].cancel()
		}
	}
	return shown, nil
}

// update changes the shown state of a job.
func (j *jobs) update(one *job, change func(*Job)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&one.show)
}

// ended records how a job ended.
func (j *jobs) ended(ctx context.Context, one *job, err error) {
	var refused *Problem
	j.update(one, func(s *Job) {
		s.Ended, s.State = j.now().UTC(), "done"
		switch {
		case ctx.Err() != nil:
			s.State = "stopped"
		case errors.As(err, &refused):
			s.State, s.Problem = "stopped", "the rights that it was started with were taken away: "+refused.Detail
		case err != nil:
			s.State, s.Problem = "failed", err.Error()
		}
	})
}

// steerAll goes through the timers by ID. That order stays the same even if timers fire, are scheduled again or move
// during the job, so each timer that is there all the time is met once. Retrying a page does no harm: each request
// applies only to the exact timer that was seen.
func (j *jobs) steerAll(ctx context.Context, one *job, steers func(*query.Timer) []timer.Header,
	f query.Filter) error {
	p := query.Page{Filter: f, Order: query.ByID, Limit: jobPage}
	for {
		var found query.List
		err := j.insist(ctx, one, func() (err error) {
			var missing []Missing
			found, missing, err = j.lists.page(ctx, one.show.Topic, one.topic, p)
			return cmp.Or(err, missingError(missing))
		})
		if err != nil {
			return err
		}
		for part := range slices.Chunk(found.Timers, one.rate.Burst()) {
			if err := j.steerPart(ctx, one, steers, part); err != nil {
				return err
			}
		}
		if p.After = found.Next; p.After.IsZero() {
			return nil
		}
	}
}

// insist retries while a partition moves, a response is lost or late, or a log cannot be read, for up to jobPatience.
// Each attempt needs the right that the job was started with: once that is taken away, the job changes nothing more.
func (j *jobs) insist(ctx context.Context, one *job, try func() error) error {
	for began := time.Now(); ; {
		err := j.topics.may(ctx, access.Admin, one.show.Topic, one.show.Prefix)
		if err == nil {
			err = try()
		}
		again := errors.Is(err, errLog) || errors.Is(err, route.ErrMoving) || errors.Is(err, route.ErrUnknown) ||
			errors.Is(err, context.DeadlineExceeded)
		if !again || ctx.Err() != nil || time.Since(began) > jobPatience {
			j.update(one, func(s *Job) { s.Problem = "" })
			return err
		}
		j.update(one, func(s *Job) { s.Problem = "waits: " + err.Error() })
		if !beats.Sleep(ctx, jobPause) {
			return ctx.Err()
		}
	}
}

// steerPart writes the requests for as many timers as one step of the rate allows. It writes to all their partitions
// concurrently.
func (j *jobs) steerPart(ctx context.Context, one *job, steers func(*query.Timer) []timer.Header,
	timers []*query.Timer) error {
	requests := make(map[timer.TopicPartition][]route.Request)
	for _, t := range timers {
		headers := steers(t)
		if headers == nil {
			j.update(one, func(s *Job) { s.Seen, s.Spared = s.Seen+1, s.Spared+1 })
			continue
		}
		r := route.Request{ID: t.ID,
			Headers: append(headers, timer.Header{Key: waterclock.HeaderIf, Value: []byte(t.Source)})}
		// If its producer chose another partition, the timer is steered there.
		at := timer.TopicPartition{Topic: t.Topic, Partition: t.Partition}
		if err := one.topic.judge(at.Partition, &r); err != nil { // for example, it would be due too far ahead
			j.update(one, func(s *Job) { fail(s, err.Error()) })
			continue
		}
		requests[at] = append(requests[at], r)
	}
	asks, ctx := errgroup.WithContext(ctx)
	asks.SetLimit(asksAtOnce)
	for at, rs := range requests {
		asks.Go(func() error {
			var all []route.Written
			err := j.insist(ctx, one, func() (err error) {
				if err := one.rate.WaitN(ctx, len(rs)); err != nil {
					return err
				}
				sent, done := outlasting(ctx)
				defer done()
				all, err = write(sent, j.asker, at, "decided", rs)
				return err
			})
			if err != nil {
				return fmt.Errorf("partition %d: %w", at.Partition, err)
			}
			j.update(one, func(s *Job) { count(s, all) })
			return nil
		})
	}
	return asks.Wait()
}

// outlasting returns a context that ends jobGrace after ctx, so that a job that is stopped can say what became of the
// requests that it had sent.
func outlasting(ctx context.Context) (longer context.Context, done func()) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(jobGrace, end) })
	return longer, func() { stop(); end() }
}

// steeredOutcomes are those of requests that have changed their timer, in a job that steers timers.
var steeredOutcomes = []string{string(waterclock.EventCancelled), string(waterclock.EventPaused),
	string(waterclock.EventResumed), string(waterclock.EventMoved), string(waterclock.EventCompleted)}

// count adds the outcomes of requests.
func count(j *Job, all []route.Written) {
	for i := range all {
		w := &all[i]
		switch d := w.Decision; {
		case w.Offset < 0:
			fail(j, w.Problem)
		case d == nil && w.Why != "":
			fail(j, "it is in the log, but its outcome is unknown: "+w.Why)
		case d != nil && d.Outcome == string(waterclock.EventRejected):
			fail(j, cmp.Or(d.Reason, "rejected")+": "+d.Detail)
		case d != nil && (d.Outcome == string(waterclock.EventConditionNotMet) || d.Outcome == "not-found"):
			j.Seen, j.Spared = j.Seen+1, j.Spared+1
		case j.Action != "resend" && (d == nil || !slices.Contains(steeredOutcomes, d.Outcome)):
			fail(j, "its outcome is not one that such a request can have")
		default: // it succeeded, or it is for a fixed-delay topic, which has no decisions
			j.Seen, j.Changed = j.Seen+1, j.Changed+1
		}
	}
}

// fail counts a timer, or a letter, whose request was rejected or may not be in the log, and keeps the first reason.
func fail(j *Job, why string) {
	j.Seen, j.Failed, j.Failure = j.Seen+1, j.Failed+1, cmp.Or(j.Failure, why)
}

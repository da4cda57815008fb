package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/query"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// maxRunning is how many jobs run at a time, maxKept how many are remembered.
	maxRunning, maxKept = 16, 100
	// runningEach is how many of one caller run.
	runningEach = 4
	// jobPage is how many timers a job looks up at a time.
	jobPage = 500
	// rateSteps is in how many parts a job writes what it may in a second.
	rateSteps = 10
	// jobPause is between two tries, jobPatience how long a job tries the same page.
	jobPause, jobPatience = time.Second, 5 * time.Minute
)

// Job is one as it is shown.
type Job = route.Job

// JobList are jobs of all instances.
type JobList struct {
	Jobs    []Job             `json:"jobs" nullable:"false" doc:"Those that the caller may see, the newest first."`
	Unasked []UnaskedInstance `json:"unasked,omitempty" nullable:"false" doc:"Instances that could not be asked: their jobs are not here."`
}

// UnaskedInstance is an instance that could not be asked.
type UnaskedInstance struct {
	Name    string `json:"name"`
	API     string `json:"api,omitempty" doc:"Address of its API, if it has one."`
	Problem string `json:"problem" doc:"Why it could not be asked."`
}

// jobs are those of this process, in memory, and what ends them.
type jobs struct {
	life context.Context //nolint:containedctx // of all jobs, and of streams of events, which end with it too
	stop context.CancelFunc
	wg   sync.WaitGroup
	free *access.Pool

	mu  sync.Mutex // guards all, and what every job shows
	all map[string]*job
}

type job struct {
	show   Job // guarded by jobs.mu
	cancel context.CancelFunc
	run    func(ctx context.Context, j *job) error // does all of it
	filter query.Filter
	rate   *rate.Limiter // of requests, those that are written again too
	header string
	topic  Topic
}

func (j *jobs) begin() {
	j.life, j.stop = context.WithCancel(context.Background())
	j.all = make(map[string]*job)
	j.free = access.NewPool(maxRunning, runningEach, 0)
}

func (j *jobs) end() {
	j.stop()
	j.wg.Wait()
}

func (a *API) registerJobs(h huma.API) {
	for _, s := range []struct{ action, header, summary string }{
		{"cancel", waterclock.HeaderCancel, "Cancel all timers that a filter chooses"},
		{"pause", waterclock.HeaderPause, "Pause all timers that a filter chooses"},
		{"resume", waterclock.HeaderResume, "Resume all timers that a filter chooses"},
	} {
		op := operation(http.MethodPost, "/v1/topics/{topic}/timers/"+s.action, s.action+"Timers", s.summary,
			"With dry-run it counts. Otherwise it starts a job, which writes a request for each timer, under the condition that it is still that timer:",
			"what is scheduled again meanwhile is spared. The job lives in the memory of the instance that is asked, and ends with it.")
		op.Tags, op.DefaultStatus = []string{"jobs"}, http.StatusAccepted
		describe[JobStarted](h, &op, map[string]string{"200": "Of a dry run: how many there are."})
		huma.Register(h, op, func(ctx context.Context, in *struct {
			Topic string `path:"topic" doc:"Request topic."`
			Filter
			All    bool `query:"all" doc:"All timers of the topic are meant: needed where nothing else is asked for."`
			DryRun bool `query:"dry-run" doc:"Only count."`
			Rate   int  `query:"rate" minimum:"1" maximum:"50000" default:"5000" doc:"How many requests a second it writes at most."`
		}) (*startedJob, error) {
			if in.Filter == (Filter{}) && !in.All && !in.DryRun {
				return nil, problem(http.StatusBadRequest, ReasonBadRequest, "nothing chooses timers: give due-after, due-before, prefix, target or state, or all=true for all timers of %.100q", in.Topic)
			}
			return a.startJob(ctx, s.action, s.header, in.Topic, &in.Filter, in.DryRun, in.Rate)
		})
	}
	list := operation(http.MethodGet, "/v1/jobs", "listJobs", "List jobs", "Of all instances: those that run, and those that are remembered. An instance that owns no partition is known to itself alone.")
	list.Tags = []string{"jobs"}
	describe[JobList](h, &list, nil)
	huma.Register(h, list, func(ctx context.Context, _ *struct{}) (*struct{ Body JobList }, error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		all, unasked, err := a.o.Asker.AllJobs(ctx)
		if err != nil {
			return nil, routed(err)
		}
		slices.SortFunc(all, func(x, y Job) int { return cmp.Or(y.Begun.Compare(x.Begun), cmp.Compare(x.ID, y.ID)) })
		l := JobList{Jobs: append([]Job{}, all...)}
		for _, in := range unasked {
			l.Unasked = append(l.Unasked, UnaskedInstance{in.Name, in.API, in.Problem})
		}
		return &struct{ Body JobList }{l}, nil
	})
	for _, s := range []struct {
		method, id, summary, doc string
		stop                     bool
	}{
		{http.MethodGet, "getJob", "See how far a job has come", "Asked of any instance.", false},
		{http.MethodDelete, "stopJob", "Stop a job", "Asked of any instance. What it has written stays.", true},
	} {
		op := operation(s.method, "/v1/jobs/{id}", s.id, s.summary, s.doc)
		op.Tags, op.DefaultStatus = []string{"jobs"}, http.StatusOK
		describe[Job](h, &op, nil)
		huma.Register(h, op, func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"100"`
		}) (*struct{ Body Job }, error) {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			j, err := a.o.Asker.Job(ctx, in.ID, s.stop)
			switch {
			case err != nil:
				return nil, routed(err)
			case j == nil:
				return nil, problem(http.StatusNotFound, ReasonNotFound,
					"there is no job %.60q: a job lives in the memory of the instance that was asked to start it, ends with it, and the last %d of each are remembered", in.ID, maxKept)
			}
			return &struct{ Body Job }{*j}, nil
		})
	}
}

// JobStarted is a job, or what it would do.
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

func (a *API) startJob(ctx context.Context, action, header, name string, f *Filter, dry bool, perSecond int) (*startedJob, error) {
	q, err := f.query()
	if err != nil {
		return nil, err
	}
	role := access.Admin
	if dry {
		role = access.Read
	}
	topic, err := a.topic(ctx, role, name, q.Prefix)
	if err != nil {
		return nil, err
	}
	if dry {
		n, err := a.count(ctx, name, topic, &q)
		if err != nil {
			return nil, routed(err)
		}
		return &startedJob{Status: http.StatusOK, Body: JobStarted{Matching: &TimerCount{Count: n.N, Exact: n.Exact}}}, nil
	}
	return a.launch(ctx, &job{run: a.steerAll, filter: q, rate: paced(perSecond), header: header, topic: topic, show: Job{
		ID: route.JobID(a.o.Process), Topic: name, Action: action, Prefix: q.Prefix, State: "running", Begun: a.o.Now().UTC(),
	}})
}

// paced is how many requests a second a job writes.
func paced(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/rateSteps))
}

// launch starts a job.
func (a *API) launch(ctx context.Context, j *job) (*startedJob, error) {
	place := a.jobs.free.Take(ctx, 1, nil)
	if place == nil {
		return nil, problem(http.StatusTooManyRequests, ReasonTooManyJobs, "%d jobs of a caller run on an instance at a time, and %d of all: wait for one, or stop one", runningEach, maxRunning)
	}
	// The caller stays the same when the call is over.
	life, release := access.Outlive(ctx)
	life, cancel := context.WithCancel(life)
	j.cancel = cancel
	a.jobs.add(j)
	shown := j.show
	end := context.AfterFunc(a.jobs.life, cancel)
	a.jobs.wg.Go(func() {
		defer place.Release()
		defer release()
		defer end()
		defer cancel()
		a.runJob(life, j)
	})
	return &startedJob{Status: http.StatusAccepted, Location: "/v1/jobs/" + shown.ID, Body: JobStarted{Job: &shown}}, nil
}

// add keeps a job, and forgets the one that ended first if there are too many: those that run are
// fewer.
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

// JobsHere implements route.JobHolder.
func (a *API) JobsHere(ctx context.Context, id string, stop bool) ([]Job, error) {
	var found []*job
	var shown []Job
	a.jobs.mu.Lock()
	for _, j := range a.jobs.all {
		if id == "" || j.show.ID == id {
			found, shown = append(found, j), append(shown, j.show)
		}
	}
	a.jobs.mu.Unlock() // rights may be read from a file
	if id == "" {
		return slices.DeleteFunc(shown, func(s Job) bool { return a.may(ctx, access.Read, s.Topic, s.Prefix) != nil }), nil
	}
	role := access.Read
	if stop {
		role = access.Admin
	}
	for i := range found {
		if err := a.may(ctx, role, shown[i].Topic, shown[i].Prefix); err != nil {
			return nil, &route.ForbiddenError{Detail: err.Error()}
		}
		if stop {
			found[i].cancel()
		}
	}
	return shown, nil
}

// update changes what is shown of a job.
func (j *jobs) update(one *job, change func(*Job)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&one.show)
}

// runJob runs a job to its end.
func (a *API) runJob(ctx context.Context, j *job) {
	err := j.run(ctx, j)
	var refused *Problem
	a.jobs.update(j, func(s *Job) {
		s.Ended, s.State = a.o.Now().UTC(), "done"
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

// steerAll goes through the timers by ID. That order is the same however timers fire, are
// scheduled again or move meanwhile, so each that is there all the time is met once. A page that
// is tried again does no harm: each request counts for the very timer that was seen.
func (a *API) steerAll(ctx context.Context, j *job) error {
	p := query.Page{Filter: j.filter, Order: query.ByID, Limit: jobPage}
	for {
		var found query.List
		err := a.insist(ctx, j, func() (err error) {
			found, err = a.page(ctx, j.show.Topic, j.topic, p)
			return err
		})
		if err != nil {
			return err
		}
		for part := range slices.Chunk(found.Timers, j.rate.Burst()) {
			if err := a.steerPart(ctx, j, part); err != nil {
				return err
			}
		}
		if p.After = found.Next; p.After.IsZero() {
			return nil
		}
	}
}

// insist tries again while a partition moves, an answer is lost or late, or a log cannot be read, for
// up to jobPatience. Each try needs the right that the job was started with: who has lost it meanwhile changes nothing more.
func (a *API) insist(ctx context.Context, j *job, try func() error) error {
	for began := time.Now(); ; {
		err := a.may(ctx, access.Admin, j.show.Topic, j.show.Prefix)
		if err == nil {
			err = try()
		}
		again := errors.Is(err, errLog) || errors.Is(err, route.ErrMoving) || errors.Is(err, route.ErrUnknown) || errors.Is(err, context.DeadlineExceeded)
		if !again || ctx.Err() != nil || time.Since(began) > jobPatience {
			a.jobs.update(j, func(s *Job) { s.Problem = "" })
			return err
		}
		a.jobs.update(j, func(s *Job) { s.Problem = "waits: " + err.Error() })
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(jobPause):
		}
	}
}

// steerPart writes the requests for timers, as many as may be written at once, those of each
// partition beside the others'.
func (a *API) steerPart(ctx context.Context, j *job, timers []*query.Timer) error {
	requests := make(map[timer.TopicPartition][]route.Request)
	for _, t := range timers {
		// A timer of which the producer chose another partition is steered there.
		at := timer.TopicPartition{Topic: t.Topic, Partition: t.Partition}
		requests[at] = append(requests[at], route.Request{ID: t.ID, Headers: []timer.Header{
			{Key: j.header, Value: []byte(waterclock.True)}, {Key: waterclock.HeaderIf, Value: []byte(t.Source)},
		}})
	}
	asks, ctx := errgroup.WithContext(ctx)
	asks.SetLimit(asksAtOnce)
	for at, rs := range requests {
		asks.Go(func() error {
			var all []route.Written
			err := a.insist(ctx, j, func() (err error) {
				if err := j.rate.WaitN(ctx, len(rs)); err != nil {
					return err
				}
				all, err = a.write(ctx, at, "decided", rs)
				return err
			})
			if err != nil {
				return fmt.Errorf("partition %d: %w", at.Partition, err)
			}
			a.jobs.update(j, func(s *Job) { count(s, all) })
			return nil
		})
	}
	return asks.Wait()
}

// count adds what became of requests.
func count(j *Job, all []route.Written) {
	for _, w := range all {
		j.Seen++
		outcome := ""
		if w.Decision != nil {
			outcome = w.Decision.Outcome
		}
		switch cmp.Or(outcome, "unknown") {
		case string(waterclock.EventCancelled), string(waterclock.EventPaused), string(waterclock.EventResumed), string(waterclock.EventCompleted):
			j.Changed++
		case string(waterclock.EventConditionNotMet), "not-found":
			j.Spared++
		default:
			j.Failed++
		}
	}
}

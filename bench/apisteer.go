package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

const (
	// jobPoll is how often a job is asked how far it is.
	jobPoll = 20 * time.Millisecond
	// firesWithin is when timers are due that are to fire while a job runs.
	firesWithin = 3 * time.Second
	// steerPage is how many timers a page has by which the end is verified.
	steerPage = 1000
)

// IDs of timers that are scheduled while the job runs, by the bytes behind all others.
const (
	newPrefix  = gonePrefix + "new-"
	soonPrefix = gonePrefix + "soon-"
)

// jobJSON is as much of a job as is verified.
type jobJSON struct {
	State, Problem                string
	Seen, Changed, Spared, Failed int
}

// steer cancels all timers of a prefix by a job, while others of the same prefix are scheduled,
// re-scheduled and fire. What must have become of each is worked out from the log of requests
// and from what fired: see fates.
func (a *apiRun) steer(ctx context.Context) error {
	f, err := a.newFates(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	life, stop := context.WithCancel(ctx)
	defer stop()
	disturbed := make(chan error, 1)
	go func() { disturbed <- a.disturb(life) }()
	defer a.profile("steer")()
	m := &meter{run: a.run}
	m.start(a.serving.pid())
	job, err := a.job(ctx)
	m.stop()
	stop()
	if err = errors.Join(err, <-disturbed); err != nil {
		return err
	}
	if err := a.awaitSettled(ctx); err != nil {
		return err
	}
	p := &Phase{Name: fmt.Sprintf("cancel by prefix, of %d", a.c.Pending)}
	a.rep.Phases = append(a.rep.Phases, p)
	if p.Exact, err = a.judge(ctx, f, job); err != nil {
		return err
	}
	p.Note = fmt.Sprintf("the job came to %d timers, cancelled %d and spared %d that had fired or were re-scheduled meanwhile", job.Seen, job.Changed, job.Spared)
	p.perSecond(job.Seen, m.begin.at, m.end.at)
	m.measure(p, max(1, job.Seen))
	_, p.PeakRSS = memory(a.serving.pid())
	return p.Exact.err(p.Name)
}

// job starts the job and waits for its end.
func (a *apiRun) job(ctx context.Context) (jobJSON, error) {
	c, err := newCaller(ctx, a.serving.api)
	if err != nil {
		return jobJSON{}, err
	}
	defer c.close()
	q := request{method: "POST", path: fmt.Sprintf("%s/cancel?prefix=%s&rate=%d", a.timers(), gonePrefix, a.c.CancelRate)}
	var started struct{ Job struct{ ID string } }
	if err := c.json(&q, http.StatusAccepted, &started); err != nil {
		return jobJSON{}, err
	}
	bar := a.bar("cancel by prefix", a.c.Pending/a.c.Doomed)
	for {
		var j jobJSON
		if err := c.json(&request{method: "GET", path: "/v1/jobs/" + started.Job.ID}, http.StatusOK, &j); err != nil {
			return j, err
		}
		_ = bar.Set(j.Seen)
		switch {
		case j.State == "done" && j.Failed == 0:
			_ = bar.Finish()
			return j, nil
		case j.State != "running":
			return j, fmt.Errorf("the job has ended otherwise than it should: %+v", j)
		}
		select {
		case <-ctx.Done():
			return j, ctx.Err()
		case <-time.After(jobPoll):
		}
	}
}

// json makes a call whose answer is JSON.
func (c *caller) json(q *request, want int, answer any) error {
	code, body, err := c.do(q)
	if err == nil {
		err = status(want)(0, code, body)
	}
	if err == nil {
		err = json.Unmarshal(body, answer)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", q.method, q.path, err)
	}
	return nil
}

// disturb schedules timers of the prefix that are new, re-schedules some that are pending, and
// schedules some that fire soon, until ctx ends.
func (a *apiRun) disturb(ctx context.Context) error {
	cl, err := a.newClient()
	if err != nil {
		return err
	}
	defer cl.Close()
	gone := a.c.Pending / a.c.Doomed
	failed := make(chan error, 1)
	produce := func(id string, due time.Time) {
		rec := &kgo.Record{Topic: a.requests, Key: []byte(id), Value: []byte(id), Headers: []kgo.RecordHeader{
			{Key: waterclock.HeaderAt, Value: strconv.AppendInt(nil, due.UnixMilli(), 10)},
			{Key: waterclock.HeaderTargetTopic, Value: []byte(a.target)},
		}}
		cl.Produce(context.WithoutCancel(ctx), rec, func(_ *kgo.Record, err error) {
			select {
			case failed <- err:
			default: // one is enough, and nil says nothing
			}
		})
	}
	const stride = 7919 // of those that are re-scheduled: before and behind where the job is
	err = pace(ctx, MaxTimers, float64(a.c.Disturb), func() bool { return false }, func(i int, now time.Time) {
		produce(fmt.Sprint(newPrefix, i), now.Add(a.c.ahead))
		produce(fmt.Sprint(soonPrefix, i), now.Add(firesWithin/10+time.Duration(i)*time.Millisecond%firesWithin))
		produce(fmt.Sprint(gonePrefix, i*stride%gone), now.Add(2*a.c.ahead))
	})
	if errors.Is(err, context.Canceled) {
		err = nil // the job has ended
	}
	err = errors.Join(err, cl.Flush(context.WithoutCancel(ctx)))
	select {
	case one := <-failed:
		return errors.Join(err, one)
	default:
		return err
	}
}

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/history"
)

const (
	// jobPoll is how often a job is asked how far it is.
	jobPoll = 20 * time.Millisecond
	// firesWithin is when timers are due that are to fire while a job runs.
	firesWithin = 3 * time.Second
	// steerPage is how many timers a page has by which the end is verified.
	steerPage = 1000
)

// Prefixes of timers that are scheduled while the job runs. They sort after all others.
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
// re-scheduled and fire. What must have become of each follows from the log of requests and
// from what fired, see judge.
func (a *apiRun) steer(ctx context.Context) error {
	ends, err := a.ends(ctx, a.target)
	if err != nil {
		return err
	}
	fired, err := a.newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{a.target: ends}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer fired.Close()
	life, stop := context.WithCancel(ctx)
	defer stop()
	disturbed := make(chan error, 1)
	go func() { disturbed <- a.disturb(life) }()
	defer a.profile("steer")()
	m := &meter{r: a.run}
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
	if p.Exact, err = a.judge(ctx, fired, job); err != nil {
		return err
	}
	p.Note = fmt.Sprintf("the job came to %d timers, cancelled %d and spared %d that had fired or were re-scheduled meanwhile", job.Seen, job.Changed, job.Spared)
	p.perSecond(job.Seen, m.begin.at, m.end.at)
	m.measure(p, max(1, job.Seen))
	_, p.PeakRSS = memory(a.serving.pid())
	return p.Exact.Err(p.Name)
}

// job starts the job and waits for its end.
func (a *apiRun) job(ctx context.Context) (j jobJSON, err error) {
	var started struct{ Job struct{ ID string } }
	path := fmt.Sprintf("%s/cancel?prefix=%s&rate=%d", a.timers(), gonePrefix, a.c.cancelRate)
	if err := a.json(ctx, http.MethodPost, path, http.StatusAccepted, &started); err != nil {
		return j, err
	}
	bar := a.bar("cancel by prefix", a.c.Pending/a.c.Doomed)
	err = poll(ctx, jobPoll, func() (bool, error) {
		j = jobJSON{}
		if err := a.json(ctx, http.MethodGet, "/v1/jobs/"+started.Job.ID, http.StatusOK, &j); err != nil {
			return false, err
		}
		_ = bar.Set(j.Seen)
		switch {
		case j.State == "done" && j.Failed == 0:
			return true, bar.Finish()
		case j.State != "running":
			return false, fmt.Errorf("the job has ended otherwise than it should: %+v", j)
		}
		return false, nil
	}, ctx.Err)
	return j, err
}

// json makes a call whose answer is JSON.
func (a *apiRun) json(ctx context.Context, method, path string, want int, answer any) error {
	code, body, err := call(ctx, method, a.url(path), callTimeout)
	if err == nil {
		err = wantStatus(want, code, body)
	}
	if err == nil {
		err = json.Unmarshal(body, answer)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
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
	const stride = 7919 // spreads re-scheduled timers over what the job has passed and what it has not
	err = pace(ctx, MaxTimers, float64(a.c.disturb), func() bool { return false }, func(i int, now time.Time) {
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

// judge compares what is with what must be. Of the job's prefix all that was there before the job began, and
// was not scheduled again, must have been cancelled; and the job must know what it did.
func (a *apiRun) judge(ctx context.Context, target *kgo.Client, job jobJSON) (c history.Counts, err error) {
	log, err := a.requestsOf(ctx, gonePrefix)
	if err != nil {
		return c, err
	}
	fired, early, err := a.firedOf(ctx, target, log)
	if err != nil {
		return c, err
	}
	left, err := a.left(ctx)
	if err != nil {
		return c, err
	}
	f := history.NewFold(log, fired)
	c = f.Judge(left, time.Now().UnixMilli(), func(id string, t *history.Timer) bool {
		return !strings.HasPrefix(id, newPrefix) && !strings.HasPrefix(id, soonPrefix) && !t.Replaced
	})
	c.Early += early
	c.Altered += max(f.Cancelled-job.Changed, job.Changed-f.Cancelled) + max(f.NotCancelled-job.Spared, job.Spared-f.NotCancelled)
	return c, a.keptAll(ctx, &c)
}

// requestsOf reads all requests for IDs of a prefix.
func (a *apiRun) requestsOf(ctx context.Context, prefix string) (log []history.Request, err error) {
	end, err := a.logEnd(ctx)
	if err != nil {
		return nil, err
	}
	cl, err := a.newClient(kgo.ConsumeTopics(a.requests), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for n := int64(0); n < end; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("read the requests: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			if strings.HasPrefix(string(r.Key), prefix) {
				log = append(log, history.RequestOf(r))
			}
		})
	}
	return log, nil
}

// firedOf counts emissions by source, and those that were early, until all has come that must: what falls due
// soon and is named by no cancel. Of what is named by one, and has fired before, the emission is there, for the job
// knows what became of each. What has not come within pendingTimeout is lost.
func (a *apiRun) firedOf(ctx context.Context, target *kgo.Client, log []history.Request) (fired map[string]int, early int, err error) {
	fired = make(map[string]int)
	missing, named := make(map[string]bool), make(map[string]bool)
	for _, q := range log {
		named[q.Cancels] = true
	}
	for _, q := range log {
		if strings.HasPrefix(q.ID, soonPrefix) && q.Cancels == "" && !named[q.Source] {
			missing[q.Source] = true
		}
	}
	for quiet, deadline := false, time.Now().Add(pendingTimeout+firesWithin); !quiet || len(missing) > 0 && time.Now().Before(deadline); {
		wait, cancel := context.WithTimeout(ctx, time.Second)
		fetches, at := target.PollFetches(wait), time.Now()
		cancel()
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		quiet = fetches.NumRecords() == 0
		fetches.EachRecord(func(record *kgo.Record) {
			r := history.Received{Record: record, At: at}
			if source := r.Header(waterclock.HeaderSource); source != "" && strings.HasPrefix(string(r.Key), gonePrefix) {
				fired[source]++
				delete(missing, source)
				if r.Early() {
					early++
				}
			}
		})
	}
	return fired, early, nil
}

// left are the sources of the timers of the prefix that are pending, by ID.
func (a *apiRun) left(ctx context.Context) (map[string]string, error) {
	left := make(map[string]string)
	for cursor, more := "", true; more; more = cursor != "" {
		var list struct {
			Timers []timerJSON
			Cursor string
		}
		path := fmt.Sprintf("%s?order=id&prefix=%s&limit=%d&cursor=%s", a.timers(), gonePrefix, steerPage, url.QueryEscape(cursor))
		if err := a.json(ctx, http.MethodGet, path, http.StatusOK, &list); err != nil {
			return nil, err
		}
		for _, t := range list.Timers {
			left[t.ID] = t.Source
		}
		cursor = list.Cursor
	}
	return left, nil
}

// keptAll checks that all timers without the prefix are still there.
func (a *apiRun) keptAll(ctx context.Context, c *history.Counts) error {
	want := a.c.Pending - a.c.Pending/a.c.Doomed
	var count struct {
		Count int
		Exact bool
	}
	if err := a.json(ctx, http.MethodGet, a.timers()+"/count?prefix="+keptPrefix, http.StatusOK, &count); err != nil {
		return err
	}
	if count.Exact || count.Count > want {
		c.Lost += max(want-count.Count, count.Count-want)
	}
	c.Scheduled += want
	return nil
}

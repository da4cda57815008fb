package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// fates works out what must have become of the timers of a prefix: from the log of requests,
// in its order, and from what has fired. It knows nothing of the service's code.
//
// A cancel counts if the timer that it names by its source is the one that is pending where it
// stands. Whether that one had fired by then its emission tells: a timer either fires or is
// cancelled. So at the end pending must be exactly what the log says; what fell due and was
// not cancelled must have fired, once; and a timer that was there before the job began, and
// that nobody re-scheduled, must have been cancelled.
type fates struct {
	requests, target *kgo.Client
	log              []logged // of each partition in its order
	timers           map[string]*fate
	fired            map[string]int // by source
	changed, spared  int            // cancels
}

// logged is a request: one that schedules, or a cancel of the timer with that source.
type logged struct {
	id, source string
	due        int64
	cancels    string
}

// fate is that of one ID.
type fate struct {
	source  string // of what was scheduled last
	due     int64
	pending bool
	seed    bool // scheduled before the job, and not since
}

func (a *apiRun) newFates(ctx context.Context) (*fates, error) {
	f := &fates{timers: make(map[string]*fate), fired: make(map[string]int)}
	ends, err := kadm.NewClient(a.client).ListEndOffsets(ctx, a.target)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the ends of %s: %w", a.target, err)
	}
	from := make(map[int32]kgo.Offset)
	ends.Each(func(o kadm.ListedOffset) { from[o.Partition] = kgo.NewOffset().At(o.Offset) })
	if f.target, err = a.newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{a.target: from}), kgo.FetchIsolationLevel(kgo.ReadCommitted())); err != nil {
		return nil, err
	}
	f.requests, err = a.newClient(kgo.ConsumeTopics(a.requests), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		f.target.Close()
	}
	return f, err
}

func (f *fates) close() {
	f.requests.Close()
	f.target.Close()
}

// judge compares what is with what must be.
func (a *apiRun) judge(ctx context.Context, f *fates, job jobJSON) (e Exactness, err error) {
	end, err := a.logEnd(ctx)
	if err != nil {
		return e, err
	}
	if err := f.read(ctx, end); err != nil {
		return e, err
	}
	if err := f.emissions(ctx); err != nil {
		return e, err
	}
	f.fold()
	left, err := a.left(ctx)
	if err != nil {
		return e, err
	}
	e = f.exactness(left, time.Now())
	// What the job says of itself.
	e.Altered += max(f.changed-job.Changed, job.Changed-f.changed) + max(f.spared-job.Spared, job.Spared-f.spared)
	return e, a.keptAll(ctx, &e)
}

// read goes through all requests, of which there are so many.
func (f *fates) read(ctx context.Context, end int64) error {
	for n := int64(0); n < end; {
		fetches := f.requests.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("read the requests: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			if strings.HasPrefix(string(r.Key), gonePrefix) {
				f.log = append(f.log, loggedOf(r))
			}
		})
	}
	return nil
}

func loggedOf(r *kgo.Record) logged {
	l := logged{id: string(r.Key), source: fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)}
	for _, h := range r.Headers {
		switch h.Key {
		case waterclock.HeaderAt:
			l.due, _ = strconv.ParseInt(string(h.Value), 10, 64) // this run has written it
		case waterclock.HeaderIf:
			l.cancels = string(h.Value)
		}
	}
	return l
}

// emissions books what fires until all has come that must: what falls due soon and is named by
// no cancel. Of what is named by one, and has fired before, the emission is there, for the job
// knows what became of each. What has not come within pendingTimeout is lost.
func (f *fates) emissions(ctx context.Context) error {
	missing, named := make(map[string]bool), make(map[string]bool)
	for _, l := range f.log {
		named[l.cancels] = true
	}
	for _, l := range f.log {
		if strings.HasPrefix(l.id, soonPrefix) && l.cancels == "" && !named[l.source] {
			missing[l.source] = true
		}
	}
	for quiet, deadline := false, time.Now().Add(pendingTimeout+firesWithin); !quiet || len(missing) > 0 && time.Now().Before(deadline); {
		wait, cancel := context.WithTimeout(ctx, time.Second)
		fetches := f.target.PollFetches(wait)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		quiet = fetches.NumRecords() == 0
		fetches.EachRecord(func(r *kgo.Record) {
			if !strings.HasPrefix(string(r.Key), gonePrefix) {
				return
			}
			for _, h := range r.Headers {
				if h.Key == waterclock.HeaderSource {
					f.fired[string(h.Value)]++
					delete(missing, string(h.Value))
				}
			}
		})
	}
	return nil
}

// fold has the requests count as they must, in their order.
func (f *fates) fold() {
	for _, l := range f.log {
		t := f.timers[l.id]
		switch {
		case l.cancels == "":
			old := !strings.HasPrefix(l.id, newPrefix) && !strings.HasPrefix(l.id, soonPrefix)
			f.timers[l.id] = &fate{source: l.source, due: l.due, pending: true, seed: old && t == nil}
		case t != nil && t.pending && t.source == l.cancels && f.fired[l.cancels] == 0:
			t.pending = false
			f.changed++
		default:
			f.spared++
		}
	}
}

// exactness compares with the sources of what is left, by ID.
func (f *fates) exactness(left map[string]string, now time.Time) (e Exactness) {
	sources := make(map[string]*fate, len(f.timers))
	for id, t := range f.timers {
		e.Scheduled++
		sources[t.source] = t
		fired := f.fired[t.source]
		overdue := t.due < now.UnixMilli()
		source, there := left[id]
		switch {
		case !t.pending && there, t.pending && t.seed:
			e.Uncancelled++
		case t.pending && !overdue && !there, t.pending && overdue && fired == 0:
			e.Lost++
		case there && (source != t.source || overdue):
			e.Altered++
		}
		if !t.pending {
			e.Cancelled++
		}
		e.Duplicated += max(0, fired-1)
		e.Received += min(1, fired)
		delete(left, id)
	}
	e.Altered += len(left) // nobody has scheduled them
	for source := range f.fired {
		if t := sources[source]; t == nil {
			e.Uncancelled++ // it was replaced before, or cancelled
		}
	}
	return e
}

// left are the sources of what is pending of the prefix, by ID.
func (a *apiRun) left(ctx context.Context) (map[string]string, error) {
	c, err := newCaller(ctx, a.serving.api)
	if err != nil {
		return nil, err
	}
	defer c.close()
	left := make(map[string]string)
	for cursor, more := "", true; more; more = cursor != "" {
		var list struct {
			Timers []timerJSON
			Cursor string
		}
		q := request{method: "GET", path: fmt.Sprintf("%s?order=id&prefix=%s&limit=%d&cursor=%s", a.timers(), gonePrefix, steerPage, url.QueryEscape(cursor))}
		if err := c.json(&q, http.StatusOK, &list); err != nil {
			return nil, err
		}
		for _, t := range list.Timers {
			left[t.ID] = t.Source
		}
		cursor = list.Cursor
	}
	return left, nil
}

// keptAll sees to it that nothing has become of the others.
func (a *apiRun) keptAll(ctx context.Context, e *Exactness) error {
	c, err := newCaller(ctx, a.serving.api)
	if err != nil {
		return err
	}
	defer c.close()
	want := a.c.Pending - a.c.Pending/a.c.Doomed
	var count struct {
		Count int
		Exact bool
	}
	q := request{method: "GET", path: a.timers() + "/count?prefix=" + keptPrefix}
	if err := c.json(&q, http.StatusOK, &count); err != nil {
		return err
	}
	if count.Exact || count.Count > want {
		e.Lost += max(want-count.Count, count.Count-want)
	}
	e.Scheduled += want
	return nil
}

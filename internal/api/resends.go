package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// resendWindow limits the offsets of a partition that a job examines together; fewer if there are more than
	// lookBytes in the windows.
	resendWindow, lookBytes = 500, 32 << 20
	// resendLetters limits the letters that it holds at a time, and resendBytes their bytes. A larger one is held
	// alone.
	resendLetters, resendBytes = 500, 4 << 20
	// resendChunk is the number of requests that are written at a time; fewer if the job's rate is lower.
	resendChunk = 100
	// noteEvery is the least time between two records of the sent letters: new letters are counted anew each time.
	noteEvery = 5 * time.Second
)

// errLog means that a job could not read a log. That may be temporary.
var errLog = errors.New("the dead letters cannot be read")

// LetterMatches describes the effect of a resend.
type LetterMatches struct {
	Count    int64            `json:"count"`
	Exact    bool             `json:"exact" doc:"false: there are more; a preview searches a limited part of the log."`
	NotWhole int64            `json:"notWhole" doc:"Of them, those that are not sent, because a part of them did not fit into the dead letter and is gone."`
	Reasons  map[string]int64 `json:"reasons" doc:"The count by reason."`
}

// resendJob is a job that sends dead letters again.
//
// A letter is sent at most once. If the response is lost, so that its request may be in the log, the letter counts as
// failed: unlike a cancel, a request that schedules could fire twice.
//
// The newest letters go first, each under the condition that nothing is pending under its ID (timer-if: absent). So
// timers that were scheduled since the letter stay, and of several letters with the same ID the newest wins, on
// whichever partitions they are. With replace the oldest go first, and each replaces a pending timer. Letters with
// their own condition keep it. Records of a fixed-delay topic have no ID: they go in the order of the log.
//
// Letters that it has sent, or spared because something newer is pending, are marked as reviewed. Failed ones stay
// new.
type resendJob struct {
	filter  letterFilter
	replace bool
	by      string // the caller
	handled handled
}

// resends has the jobs that send dead letters again.
type resends struct {
	*jobs
	reviews *reviews

	starting sync.Mutex // held while a job that sends new letters is started
}

func (re *resends) register(h huma.API) {
	op := operation("jobs", http.MethodPost, "/v1/topics/{topic}/dead-letters/resend", "resendDeadLetters",
		"Send the requests of all dead letters again that a filter chooses",
		"With dry-run it counts. Otherwise it starts a job, which sends those that are in the log now, as they "+
			"were. The letters stay: what was sent again before is sent again by another job with the same filter.",
		"The newest go first, and count only if nothing is pending under their ID; with replace the oldest go first "+
			"and take the place of what is pending. Of a fixed-delay topic records go again in the order of the log.",
		"The job lives in the memory of the instance that is asked, and ends with it.")
	startsJob(h, op, func(ctx context.Context, in *struct {
		Topic string `path:"topic" doc:"Request topic, or fixed-delay topic."`
		LetterFilter
		All     bool `query:"all" doc:"Confirms that all dead letters of the topic are meant: required without a filter."`
		Replace bool `query:"replace" doc:"Replace a pending timer of the same ID."`
		DryRun  bool `query:"dry-run" doc:"Only count."`
		Rate    int  `query:"rate" minimum:"1" maximum:"50000" default:"1000" doc:"The most requests that it writes per second."`
	}) (*startedJob, error) {
		if in.LetterFilter.isZero() && !in.All && !in.DryRun {
			return nil, invalid("nothing chooses dead letters: give reviewed=false, reason, prefix, after, before or "+
				"label, or all=true for all of %.100q", in.Topic)
		}
		topics := re.topics
		topic, err := topics.withLetters(ctx, access.Read, in.Topic, "")
		if err != nil {
			return nil, err
		}
		f, err := re.reviews.filter(ctx, &in.LetterFilter, in.Topic, topic)
		if err != nil {
			return nil, err
		}
		if in.DryRun {
			return re.preview(ctx, topic.DeadLetters, &f)
		}
		if _, err := topics.withLetters(ctx, access.Admin, in.Topic, in.Prefix); err != nil {
			return nil, err
		}
		if in.Reviewed == "false" {
			re.starting.Lock()
			defer re.starting.Unlock()
			if err := re.alone(ctx, in.Topic); err != nil {
				return nil, err
			}
		}
		r := &resendJob{filter: f, replace: in.Replace, by: topics.caller(ctx)}
		j := &job{topic: topic, show: Job{Topic: in.Topic, Action: "resend", Prefix: in.Prefix,
			Query: in.asQuery("all", flag(in.All), "replace", flag(in.Replace))}}
		return re.launch(ctx, j, in.Rate, func(ctx context.Context) error { return re.resendAll(ctx, j, r) })
	})
}

// alone returns a problem if a job sends dead letters of a topic: letters that it has not recorded yet would be sent
// twice.
func (re *resends) alone(ctx context.Context, name string) error {
	all, _, err := re.asker.AllJobs(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if one := &all[i]; one.Topic == name && one.Action == "resend" && one.State == "running" {
			return problem(http.StatusTooManyRequests, ReasonTooManyJobs,
				"job %s sends dead letters of %.100q now: wait for it, or stop it, or they would be sent twice", one.ID,
				name)
		}
	}
	return nil
}

// preview counts the letters of a resend.
func (re *resends) preview(ctx context.Context, topic string, f *letterFilter) (*startedJob, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	bounds, err := re.logs.Bounds(ctx, topic)
	if err != nil {
		return nil, err
	}
	bounds = f.clip(bounds)
	m := &LetterMatches{Exact: true, Reasons: make(map[string]int64)}
	spans, left := make(map[int32][2]int64), int64(maxHistoryOffsets)
	for _, p := range slices.Sorted(maps.Keys(bounds)) {
		b := bounds[p]
		from := max(b[0], b[1]-left/int64(len(bounds)-len(spans)))
		spans[p], left, m.Exact = [2]int64{from, b[1]}, left-(b[1]-from), m.Exact && from == b[0]
	}
	err = re.logs.Read(ctx, topic, spans, func(r *Record) error {
		if f.match(r) {
			m.Count++
			m.Reasons[reasonOf(r, m.Reasons)]++
			if missing(r) != nil {
				m.NotWhole++
			}
		}
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		m.Exact, err = false, nil
	}
	if err != nil {
		return nil, err
	}
	return &startedJob{Status: http.StatusOK, Body: JobStarted{Letters: m}}, nil
}

// resendAll goes through the log as of the start of the job.
func (re *resends) resendAll(ctx context.Context, j *job, r *resendJob) error {
	var bounds map[int32][2]int64
	err := re.insist(ctx, j, func() (err error) {
		if bounds, err = re.logs.Bounds(ctx, j.topic.DeadLetters); err != nil {
			err = fmt.Errorf("%w: %w", errLog, err)
		}
		return err
	})
	if err != nil {
		return err
	}
	bounds = r.filter.clip(bounds)
	order := newTimeOrder(bounds, !r.replace && !j.topic.Delay)
	r.handled = newHandled(bounds, r.filter.selects(), order.newestFirst)
	defer re.reviewHandled(ctx, j, r)
	noted := re.now()
	for {
		for spans := order.spans(); len(spans) > 0; spans = order.spans() {
			err := re.insist(ctx, j, func() error {
				return re.look(ctx, j.topic.DeadLetters, order, spans, &r.filter)
			})
			if err != nil && !errors.Is(err, errLargeSpan) {
				return err
			}
		}
		next := order.take(resendLetters, resendBytes)
		if len(next) == 0 {
			r.handled.rest(bounds)
			return nil
		}
		var found []*Record
		err := re.insist(ctx, j, func() (err error) {
			found, err = re.readLetters(ctx, j.topic.DeadLetters, next)
			return err
		})
		if err != nil {
			return err
		}
		for chunk := range slices.Chunk(found, min(resendChunk, j.rate.Burst())) {
			if err := j.rate.WaitN(ctx, len(chunk)); err != nil {
				return err
			}
			if err := re.resendChunk(ctx, j, r, chunk); err != nil {
				return err
			}
		}
		if now := re.now(); now.Sub(noted) >= noteEvery {
			re.reviewHandled(ctx, j, r)
			noted = now
		}
	}
}

// reviewHandled marks the letters that a job has handled so far as reviewed, even if it was stopped.
func (re *resends) reviewHandled(ctx context.Context, j *job, r *resendJob) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	err := re.reviews.add(ctx, j.topic.DeadLetters, r.by, maps.Clone(r.handled.set))
	if err == nil && r.handled.dropped {
		err = errMarks
	}
	re.update(j, func(shown *Job) {
		if shown.Unmarked = ""; err != nil {
			shown.Unmarked = err.Error()
		}
	})
}

// look finds the letters of spans that a job sends, without keeping them. If it returns errLargeSpan, the order has
// smaller ones.
func (re *resends) look(
	ctx context.Context, topic string, order *timeOrder, spans map[int32][2]int64, f *letterFilter,
) error {
	found, size := make(map[int32][]recordAt), 0
	err := re.read(ctx, topic, spans, func(r *Record) error {
		if size += r.size(); size > lookBytes && order.shrink() {
			return errLargeSpan
		}
		if f.match(r) {
			source, _ := waterclock.ParseSource(r.header(waterclock.HeaderSource)) // the filter has parsed it
			source.Topic = ""
			found[r.Partition] = append(found[r.Partition], recordAt{r.Partition, r.Offset, r.Time, source, r.size(),
				nil})
		}
		return nil
	})
	if err == nil {
		order.looked(spans, found)
	}
	return err
}

// readLetters reads the given letters, and returns them in the same order. Letters that retention has deleted since
// are missing.
func (re *resends) readLetters(ctx context.Context, topic string, all []recordAt) (found []*Record, err error) {
	type place struct {
		partition int32
		offset    int64
	}
	index, spans := make(map[place]int, len(all)), make(map[int32][2]int64)
	for i, l := range all {
		index[place{l.partition, l.offset}] = i
		span, some := spans[l.partition]
		if !some {
			span = [2]int64{l.offset, l.offset + 1}
		}
		spans[l.partition] = [2]int64{min(span[0], l.offset), max(span[1], l.offset+1)}
	}
	found = make([]*Record, len(all))
	err = re.read(ctx, topic, spans, func(r *Record) error {
		if i, wanted := index[place{r.Partition, r.Offset}]; wanted {
			found[i] = slim(r, len(r.Value))
		}
		return nil
	})
	return slices.DeleteFunc(found, func(r *Record) bool { return r == nil }), err
}

// read reads spans of a log. Errors other than errLargeSpan wrap errLog.
func (re *resends) read(ctx context.Context, topic string, spans map[int32][2]int64, fn func(*Record) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := re.logs.Read(ctx, topic, spans, fn)
	if err != nil && !errors.Is(err, errLargeSpan) {
		err = fmt.Errorf("%w: %w", errLog, err)
	}
	return err
}

// resendChunk writes the requests of some letters in order, those of each partition together.
func (re *resends) resendChunk(ctx context.Context, j *job, r *resendJob, letters []*Record) error {
	requests, from := make(map[timer.TopicPartition][]route.Request), make(map[timer.TopicPartition][]*Record)
	done := make(map[*Record]bool, len(letters)) // letters that have not failed
	defer func() {
		for _, l := range letters {
			r.handled.note(l, done[l])
		}
	}()
	for _, l := range letters {
		q, at, err := r.request(re.topics, j, l)
		if err == nil {
			err = finish(ctx, &q, j.topic, at.Partition)
		}
		if err != nil {
			re.update(j, func(shown *Job) { fail(shown, whyNot(err)) })
			continue
		}
		requests[at], from[at] = append(requests[at], q), append(from[at], l)
	}
	wait := "decided"
	if j.topic.Delay {
		wait = "written"
	}
	for at, rs := range requests {
		var all []route.Written
		err := re.insist(ctx, j, func() (err error) {
			all, err = write(ctx, re.asker, at, wait, rs)
			if errors.Is(err, route.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
				all = slices.Repeat([]route.Written{{Offset: -1, Unknown: true, Problem: err.Error()}}, len(rs))
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		re.update(j, func(shown *Job) {
			for i := range all {
				failed := shown.Failed
				count(shown, all[i:i+1])
				done[from[at][i]] = shown.Failed == failed
			}
		})
	}
	return nil
}

// whyNot describes a request that was not written, like one that was rejected: with the reason in front.
func whyNot(err error) string {
	var p *Problem
	if errors.As(err, &p) && p.Reason != ReasonBadRequest && p.Reason != ReasonTooLarge {
		return p.Reason + ": " + p.Detail
	}
	return err.Error()
}

// request returns the request of a letter, unchanged, and the partition for it.
func (r *resendJob) request(topics *topics, j *job, l *Record) (q route.Request, at timer.TopicPartition, err error) {
	if q, err = (*Correction)(nil).request(l, j.topic.Delay); err != nil {
		return q, at, err
	}
	if j.topic.Delay {
		return q, delayedAt(l, j.topic), nil
	}
	own := slices.ContainsFunc(q.Headers,
		func(h timer.Header) bool { return strings.EqualFold(h.Key, waterclock.HeaderIf) })
	if !r.replace && !own && len(q.ID) > 0 {
		q.Headers.Add(waterclock.HeaderIf, waterclock.IfAbsent)
	}
	return q, topics.at(j.show.Topic, j.topic, q.ID), nil
}

// delayedAt returns the original partition of the record of a dead letter of a fixed-delay topic: it goes there
// again.
func delayedAt(l *Record, topic Topic) timer.TopicPartition {
	s, _ := waterclock.ParseSource(l.header(waterclock.HeaderSource)) // the filter has parsed it
	return timer.TopicPartition{Topic: s.Topic, Partition: s.Partition % max(1, topic.Partitions)}
}

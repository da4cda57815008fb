package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// finish makes a request ready to be written to a partition. It returns a problem if Kafka would not take the
// request as a record, or if its owner would reject it: then nothing is written, and there is no dead letter. The
// request gets the trace context of its call, if there is room for that.
func finish(ctx context.Context, r *route.Request, topic Topic, partition int32) error {
	n := recordOverhead + bytesOf(r)
	if n > topic.MaxBytes {
		return problem(http.StatusRequestEntityTooLarge, ReasonTooLarge,
			"the request has %d bytes as a record, and the request topic takes %d (max.message.bytes)", n,
			topic.MaxBytes)
	}
	if err := topic.judge(partition, r); err != nil {
		return err
	}
	addParent(ctx, r, topic.MaxBytes-n)
	return nil
}

// bytesOf returns how many bytes a request has in a batch at most.
func bytesOf(r *route.Request) int {
	n := len(r.ID) + len(r.Value)
	for _, h := range r.Headers {
		n += headerOverhead + len(h.Key) + len(h.Value)
	}
	return n
}

const (
	recordOverhead = 61 + 21 // of a batch, and of one record in it, at most
	headerOverhead = 10      // two lengths
)

// callBytes limits the requests of one call to an owner, together; a single larger one goes alone. Instances
// limit what they take (api-body-limit).
const callBytes = 512 << 10

// write writes requests to one partition and waits for their outcomes, or only for Kafka if wait is "written". An error
// means that none was written, or that this is not known of any. If a part was written and the next part fails, each
// request of the rest has a Written of its own.
func write(ctx context.Context, asker Asker, at timer.TopicPartition, wait string,
	rs []route.Request) ([]route.Written, error) {
	for i := range rs {
		access.Wrote(ctx, string(rs[i].ID))
	}
	if wait == "written" {
		ctx, cancel := context.WithTimeout(ctx, produceTimeout)
		defer cancel()
		return asker.Produce(ctx, at, rs), nil
	}
	ctx, cancel := context.WithTimeout(ctx, decideTimeout+produceTimeout)
	defer cancel()
	all := make([]route.Written, 0, len(rs))
	for len(all) < len(rs) {
		part := rs[len(all):]
		part = part[:fit(part)]
		answer, err := asker.Ask(ctx, &route.Call{
			Kind: route.Write, Topic: at.Topic, Partition: at.Partition, Requests: part,
			WaitMillis: decideTimeout.Milliseconds(),
		})
		if err == nil && len(answer.Written) != len(part) {
			err = fmt.Errorf("%w: the owner answers for %d requests of %d", route.ErrUnknown,
				len(answer.Written), len(part))
		}
		if err != nil && len(all) == 0 {
			return nil, err
		}
		if err != nil {
			// None of the requests after this part was sent.
			for i := range rs[len(all):] {
				all = append(all, route.Written{Offset: -1, Unknown: i < len(part) && errors.Is(err, route.ErrUnknown),
					Problem: err.Error()})
			}
			return all, nil
		}
		all = append(all, answer.Written...)
	}
	return all, nil
}

// writeOne writes one request, and returns what a caller is told about it.
func writeOne(ctx context.Context, asker Asker, at timer.TopicPartition, wait string,
	r route.Request) (status int, result *Result, p *Problem) {
	all, err := write(ctx, asker, at, wait, []route.Request{r})
	if err != nil {
		return 0, nil, routed(err)
	}
	return decided(at, string(r.ID), &all[0])
}

// fit returns how many requests go with one call, at least one.
func fit(rs []route.Request) int {
	size := 0
	for n := range rs {
		if size += bytesOf(&rs[n]); size > callBytes && n > 0 {
			return n
		}
	}
	return len(rs)
}

// decided returns what a caller is told about a request.
func decided(at timer.TopicPartition, id string, w *route.Written) (status int, r *Result, p *Problem) {
	if w.Offset < 0 && w.Unknown {
		return 0, nil, routed(fmt.Errorf("%w: %s", route.ErrUnknown, w.Problem))
	}
	if w.Offset < 0 {
		return 0, nil, problem(http.StatusServiceUnavailable, ReasonNotWritten, "the request was not written: %s",
			w.Problem)
	}
	r = &Result{Topic: at.Topic, Partition: at.Partition, Offset: w.Offset}
	d := w.Decision
	if d == nil {
		r.Outcome, r.Note = "written", w.Why
		return http.StatusAccepted, r, nil
	}
	r.Outcome, r.Timer = d.Outcome, view(d.Pending, true)
	remembered := d.Pending != nil && d.Pending.State == query.Remembered // which is not pending
	switch d.Outcome {
	case string(waterclock.EventRejected):
		p = problem(statusOf(d.Reason), d.Reason, "%s", d.Detail)
	case string(waterclock.EventConditionNotMet):
		p = problem(http.StatusPreconditionFailed, ReasonConditionNotMet,
			"the condition does not hold for timer %.100q: nothing has changed", id)
		p.Pending = r.Timer
	case "not-found":
		if d.Pending != nil && !remembered { // for example, it was already paused
			r.Outcome = "unchanged"
			return http.StatusOK, r, nil
		}
		p = problem(http.StatusNotFound, ReasonNotFound, "no timer of ID %.100q was pending on %s: nothing has changed",
			id, at.Topic)
	case string(waterclock.EventScheduled):
		return http.StatusCreated, r, nil
	default:
		if remembered { // it has ended by a resume
			r.Timer = nil
		}
		return http.StatusOK, r, nil
	}
	p.Request = fmt.Sprintf("%s/%d/%d", at.Topic, at.Partition, w.Offset)
	return 0, nil, p
}

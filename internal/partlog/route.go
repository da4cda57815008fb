package partlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// noBroker stands for a leader that is not known.
const noBroker int32 = -1

// The replica ID of a ListOffsets request: a consumer is told of what all in-sync replicas
// have, a debugger of all that the leader has (ListOffsetsRequest.DEBUGGING_REPLICA_ID).
const (
	consumer  int32 = -1
	debugging int32 = -2
)

// route finds the leader of one partition and asks it, again and again if it
// must. It belongs to one goroutine.
type route struct {
	cl     *kgo.Client
	t      Log
	limits Limits
	leader int32 // node ID, or noBroker: look it up first
	epoch  int32 // the leader's, -1: the broker did not tell
	// replica is the replica ID of ListOffsets: consumer or debugging.
	replica int32

	// deniedSince is when the brokers began to deny the topic, zero while
	// they do not.
	deniedSince time.Time
}

func newRoute(cl *kgo.Client, t Log, l Limits) route {
	return route{cl: cl, t: t, limits: l, leader: noBroker, epoch: -1, replica: consumer}
}

// deniedError is what a look-up returns while the topic may be gone.
type deniedError struct {
	found [16]byte
	cause error
}

func (e *deniedError) Error() string { return e.cause.Error() }

// do calls try with the partition's leader until it succeeds, fails for good,
// or ctx ends. Between two attempts it waits.
func (r *route) do(ctx context.Context, try func(context.Context, *kgo.Broker) error) error {
	wait := r.limits.BackoffMin
	for {
		err := r.attempt(ctx, try)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return r.interrupted(ctx, err)
		}
		if err := r.verdict(err); err != nil {
			return err
		}
		r.leader = noBroker
		if !pause(ctx, wait) {
			return r.interrupted(ctx, err)
		}
		wait = min(2*wait, r.limits.BackoffMax)
	}
}

func (r *route) attempt(ctx context.Context, try func(context.Context, *kgo.Broker) error) error {
	if r.leader == noBroker {
		if err := r.lookUp(ctx); err != nil {
			return err
		}
	}
	return try(ctx, r.cl.Broker(int(r.leader)))
}

// verdict returns nil for an error that a later attempt may not meet, and
// otherwise what the caller gets.
func (r *route) verdict(err error) error {
	var denied *deniedError
	if errors.As(err, &denied) {
		return r.denied(denied)
	}
	if r.cl.Context().Err() != nil {
		return fmt.Errorf("ask the leader of %v: %w", r.t, kgo.ErrClientClosed)
	}
	var final *finalError
	if errors.As(err, &final) {
		return final.err
	}
	if ke := (*kerr.Error)(nil); errors.As(err, &ke) && !passing(ke) {
		return fmt.Errorf("ask the leader of %v: %w", r.t, err)
	}
	return nil // passing, or a matter of transport
}

// passing reports whether a broker that answers e may answer otherwise later.
// UNKNOWN_SERVER_ERROR is anything that a broker did not foresee, mostly while
// it starts or ends; Java's consumer repeats such a fetch too.
func passing(e *kerr.Error) bool { return e.Retriable || e.Code == kerr.UnknownServerError.Code }

// denied decides whether a topic that is denied counts as gone.
func (r *route) denied(e *deniedError) error {
	now := time.Now()
	if r.deniedSince.IsZero() {
		r.deniedSince = now
	}
	if now.Sub(r.deniedSince) < r.limits.GoneAfter {
		return nil
	}
	return &TopicGoneError{Log: r.t, Found: e.found, Cause: e.cause}
}

// interrupted returns the context's error with the last thing that went wrong.
func (r *route) interrupted(ctx context.Context, last error) error {
	if errors.Is(last, ctx.Err()) {
		return fmt.Errorf("ask the leader of %v: %w", r.t, ctx.Err())
	}
	return fmt.Errorf("ask the leader of %v: %w (before that: %w)", r.t, ctx.Err(), last)
}

// finalError carries an error out of do at once, whatever its code.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }

// pause waits for d, give or take a quarter, so that the readers of many
// partitions that lost one broker do not ask in step. False: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d*3/4 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lookUp asks any broker who leads the partition.
func (r *route) lookUp(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(r.t.Topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return &deniedError{cause: kerr.UnknownTopicOrPartition}
	}
	return r.learn(&resp.Topics[0])
}

// learn takes the leader from what a broker says about the topic.
func (r *route) learn(topic *kmsg.MetadataResponseTopic) error {
	switch err := kerr.ErrorForCode(topic.ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return &deniedError{cause: err}
	case err != nil:
		return err
	}
	if r.t.ID == ([16]byte{}) {
		r.t.ID = topic.TopicID
	}
	if topic.TopicID != r.t.ID {
		return &deniedError{found: topic.TopicID, cause: kerr.InconsistentTopicID}
	}
	for i := range topic.Partitions {
		p := &topic.Partitions[i]
		if p.Partition != r.t.Partition {
			continue
		}
		r.deniedSince = time.Time{}
		if p.Leader < 0 {
			return kerr.LeaderNotAvailable
		}
		r.leader, r.epoch = p.Leader, p.LeaderEpoch
		return nil
	}
	return &deniedError{cause: kerr.UnknownTopicOrPartition}
}

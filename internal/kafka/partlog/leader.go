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

	"github.com/waterclock/waterclock/internal/kit/beats"
)

// NoLeader is the node ID of a leader that is not known.
const NoLeader int32 = -1

// The replica ID of a ListOffsets request: a consumer learns the end of all in-sync replicas, a debugger the end of the
// leader's log (ListOffsetsRequest.DEBUGGING_REPLICA_ID).
const (
	consumer  int32 = -1
	debugging int32 = -2
)

// leader finds the leader of one partition and asks it until it answers. One goroutine uses it.
type leader struct {
	cl        *kgo.Client
	t         Log
	node      int32 // of the leader; NoLeader: look it up first
	doubted   bool  // the leader of the last look-up has failed: ask for new metadata
	epoch     int32 // of the leader; -1: the broker did not tell
	goneAfter time.Duration
	backoff   time.Duration // the longest

	// deniedSince is when the brokers began to deny the topic, zero while they do not.
	deniedSince time.Time
}

func newLeader(cl *kgo.Client, t Log) leader {
	return leader{cl: cl, t: t, node: NoLeader, epoch: -1, goneAfter: goneAfter, backoff: backoffMax}
}

// deniedError says that a broker denied knowing the topic, which may be gone.
type deniedError struct{ error }

// do calls try with the partition's leader until try succeeds or fails for good, or ctx ends. It waits between
// attempts.
func (l *leader) do(ctx context.Context, try func(context.Context, *kgo.Broker) error) error {
	wait := backoffMin
	for {
		err := l.attempt(ctx, try)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return l.interrupted(ctx, err)
		}
		if err := l.verdict(err); err != nil {
			return err
		}
		l.node, l.doubted = NoLeader, true
		if !pause(ctx, wait) {
			return l.interrupted(ctx, err)
		}
		wait = min(2*wait, l.backoff)
	}
}

func (l *leader) attempt(ctx context.Context, try func(context.Context, *kgo.Broker) error) error {
	if l.node == NoLeader {
		if err := l.lookUp(ctx); err != nil {
			return err
		}
	}
	return try(ctx, l.cl.Broker(int(l.node)))
}

// verdict returns nil for a temporary error, and otherwise the error for the caller.
func (l *leader) verdict(err error) error {
	var denied *deniedError
	if errors.As(err, &denied) {
		return l.denied(denied)
	}
	if l.cl.Context().Err() != nil {
		return fmt.Errorf("ask the leader of %v: %w", l.t, kgo.ErrClientClosed)
	}
	var final *finalError
	if errors.As(err, &final) {
		return final.err
	}
	if ke := (*kerr.Error)(nil); errors.As(err, &ke) && !passing(ke) {
		return fmt.Errorf("ask the leader of %v: %w", l.t, err)
	}
	return nil // temporary, or of the transport
}

// passing reports whether a broker that answers e may give another answer later. Brokers answer UNKNOWN_SERVER_ERROR to
// unforeseen errors, mostly while they start or stop; Java's consumer repeats such a fetch too.
func passing(e *kerr.Error) bool { return e.Retriable || e.Code == kerr.UnknownServerError.Code }

// denied decides whether a topic that is denied counts as gone.
func (l *leader) denied(e *deniedError) error {
	now := time.Now()
	if l.deniedSince.IsZero() {
		l.deniedSince = now
	}
	if now.Sub(l.deniedSince) < l.goneAfter {
		return nil
	}
	return fmt.Errorf("find %v: %w: %w", l.t, ErrTopicGone, e.error)
}

// interrupted returns the context's error together with the last error.
func (l *leader) interrupted(ctx context.Context, last error) error {
	if errors.Is(last, ctx.Err()) {
		return fmt.Errorf("ask the leader of %v: %w", l.t, ctx.Err())
	}
	return fmt.Errorf("ask the leader of %v: %w (before that: %w)", l.t, ctx.Err(), last)
}

// finalError makes do return an error immediately, whatever its code.
type finalError struct{ err error }

func (f *finalError) Error() string { return f.err.Error() }

// pause waits for d, give or take a quarter, so that the readers of many partitions of a lost broker do not retry in
// step. It returns false if ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	return beats.Sleep(ctx, d*3/4+rand.N(d/2+1))
}

// lookUp looks the partition's leader up in metadata. Metadata that the client already has will do if they are younger
// than leadersAge, unless the leader of the last look-up has failed. Otherwise the partitions of a topic that are
// acquired together would all ask for the same metadata, one after the other on one connection. Nothing may rest on
// the age of metadata: those of a broker can be as old. Old metadata that deny the topic will not do, because a denial
// may count at once (see SetGoneAfter), and the topic may have been created since. Nor will they do if the topic's ID
// is to be learned: if the topic was created again since, the reader would take it for gone.
func (l *leader) lookUp(ctx context.Context) error {
	if !l.doubted && l.t.ID != [16]byte{} {
		err := l.lookUpWithin(ctx, leadersAge)
		if _, denied := errors.AsType[*deniedError](err); !denied {
			return err
		}
	}
	return l.lookUpWithin(ctx, askNow)
}

// askNow is an age that cached metadata always exceed. 0 would be the client's own limit of 5 s.
const askNow = time.Nanosecond

// lookUpWithin looks the leader up in metadata that are at most so old.
func (l *leader) lookUpWithin(ctx context.Context, age time.Duration) error {
	resp, err := l.cl.RequestCachedMetadata(ctx, metadataRequest(l.t.Topic), age)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return &deniedError{kerr.UnknownTopicOrPartition}
	}
	return l.learn(&resp.Topics[0])
}

// metadataRequest asks for the metadata of topics, by their names.
func metadataRequest(topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// learn takes the leader from a broker's metadata of the topic.
func (l *leader) learn(topic *kmsg.MetadataResponseTopic) error {
	switch err := kerr.ErrorForCode(topic.ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return &deniedError{err}
	case err != nil:
		return err
	}
	if l.t.ID == ([16]byte{}) {
		l.t.ID = topic.TopicID
	}
	if topic.TopicID != l.t.ID {
		return &deniedError{fmt.Errorf("the name stands for topic ID %x now, not %x", topic.TopicID, l.t.ID)}
	}
	for i := range topic.Partitions {
		p := &topic.Partitions[i]
		if p.Partition != l.t.Partition {
			continue
		}
		l.deniedSince = time.Time{}
		if p.Leader < 0 {
			return kerr.LeaderNotAvailable
		}
		l.node, l.epoch, l.doubted = p.Leader, p.LeaderEpoch, false
		return nil
	}
	return &deniedError{kerr.UnknownTopicOrPartition}
}

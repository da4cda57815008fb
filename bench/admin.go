package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/node/commands"
)

const (
	// topicTimeout bounds the time until brokers know a new topic.
	topicTimeout = 10 * time.Second
	topicPoll    = 20 * time.Millisecond
	// settledPoll is the interval at which committed positions are read.
	settledPoll = 10 * time.Millisecond
)

// admin creates the topics of a run and queries brokers about them.
type admin struct {
	client   *kgo.Client
	group    string
	requests string // topic
}

func (a *admin) countPartitions(ctx context.Context, topic string) (int, error) {
	details, err := kadm.NewClient(a.client).ListTopics(ctx, topic)
	if err == nil {
		err = details[topic].Err
	}
	if err != nil {
		return 0, fmt.Errorf("look up topic %s: %w", topic, err)
	}
	return len(details[topic].Partitions), nil
}

func (a *admin) create(ctx context.Context, topic string, partitions, replication int) error {
	_, err := kadm.NewClient(a.client).CreateTopic(ctx, int32(partitions), int16(replication), nil, topic)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	return poll(ctx, topicPoll, func() (bool, error) {
		_, err = a.countPartitions(ctx, topic)
		return err == nil, nil
	}, func() error { return err })
}

// ends returns the ends of a topic's partitions.
func (a *admin) ends(ctx context.Context, topic string) (map[int32]kgo.Offset, error) {
	listed, err := kadm.NewClient(a.client).ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the ends of %s: %w", topic, err)
	}
	ends := make(map[int32]kgo.Offset)
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = kgo.NewOffset().At(o.Offset) })
	return ends, nil
}

// settled returns the number of accepted requests: the sum of the group's committed positions on the request topic.
func (a *admin) settled(ctx context.Context) (int64, error) {
	offsets, err := kadm.NewClient(a.client).FetchOffsets(ctx, a.group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("fetch the positions of group %s: %w", a.group, err)
	}
	var sum int64
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == a.requests {
			sum += max(0, o.At)
		}
	})
	return sum, nil
}

// logEnd returns the sum of the request topic's ends.
func (a *admin) logEnd(ctx context.Context) (sum int64, err error) {
	ends, err := a.ends(ctx, a.requests)
	for _, end := range ends {
		sum += end.EpochOffset().Offset
	}
	return sum, err
}

// awaitSettled waits until every request in the log has been accepted.
func (a *admin) awaitSettled(ctx context.Context) error {
	end, err := a.logEnd(ctx)
	if err != nil {
		return err
	}
	n := int64(0)
	return poll(ctx, settledPoll, func() (bool, error) {
		n, err = a.settled(ctx)
		return n >= end, err
	}, func() error {
		return fmt.Errorf("wait for %d requests to be taken in, %d are: %w", end, n, ctx.Err())
	})
}

const (
	// servedTimeout limits the wait for the instances that serve a named request topic. A hand-over takes less.
	servedTimeout = 10 * time.Second
	// tidyTimeout bounds the time to cancel timers that have not fired.
	tidyTimeout = time.Minute
)

// awaitServed sends one timer that is due immediately to the named request topic, and waits for its outcome. So if no
// instance serves the topic, if the target is not allowed, or if the group is another one, the run fails before it
// has written hundreds of thousands of timers.
func (r *run) awaitServed(ctx context.Context) error {
	id, limit := r.name+"-probe", min(servedTimeout, r.Timeout/2)
	probe := []waterclock.Option{waterclock.After(0), waterclock.To(r.target), waterclock.NullValue()}
	sent, err := commands.Send(ctx, r.Cluster, commands.Request{Topic: r.requests, ID: id, Options: probe, Wait: limit})
	switch {
	case errors.Is(err, commands.ErrUndecided):
		_, cancelled := commands.Send(ctx, r.Cluster,
			commands.Request{Topic: r.requests, ID: id, Action: commands.Cancel})
		return errors.Join(fmt.Errorf("look for the instances that serve %s: %w", r.requests, err), cancelled)
	case err != nil:
		return fmt.Errorf("look for the instances that serve %s: %w", r.requests, err)
	case sent.Outcome.Refused != nil:
		return fmt.Errorf("the instances that serve %s reject timers for %s: %s: %s", r.requests, r.target,
			string(sent.Outcome.Refused.Reason), sent.Outcome.Refused.Detail)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// The offsets may be the last partition that gets the marker of the step's transaction.
	return poll(ctx, settledPoll, func() (bool, error) {
		n, err := r.settled(ctx)
		return n > 0, err
	}, func() error {
		return fmt.Errorf("group %s has not accepted anything on %s, another group has: give the group of "+
			"the instances with --group", r.group, r.requests)
	})
}

// tidy cancels the run's timers that have not fired, unless the request topic is the run's own. Some remain after an
// error, a timeout or Ctrl-C.
func (r *run) tidy() error {
	if r.Requests == "" {
		return nil
	}
	var cancels []*kgo.Record
	for _, b := range r.batches {
		for _, n := range b.Missing() {
			rec, err := waterclock.Cancel(r.requests, string(b.id(n)))
			if err != nil {
				return err
			}
			cancels = append(cancels, rec)
		}
	}
	if len(cancels) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), tidyTimeout)
	defer cancel()
	if err := r.client.ProduceSync(ctx, cancels...).FirstErr(); err != nil {
		return fmt.Errorf("cancel %d timers on %s that have not fired: %w", len(cancels), r.requests, err)
	}
	r.Log.Warn("cancelled timers that had not fired", "topic", r.requests, "timers", len(cancels))
	return nil
}

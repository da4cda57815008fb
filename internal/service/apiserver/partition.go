package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/partition/questions"
	"github.com/waterclock/waterclock/internal/query"
)

// answering is an owned partition as the API sees it. It implements route.Partition.
type answering struct {
	p  *partition.Partition
	in *Instance
}

// Get implements route.Partition.
func (a answering) Get(ctx context.Context, id []byte) (*query.Timer, error) {
	t, err := a.p.Questions.Get(ctx, id)
	return t, a.unanswered(err)
}

// List implements route.Partition.
func (a answering) List(ctx context.Context, p query.Page) (query.List, error) {
	l, err := a.p.Questions.List(ctx, p)
	return l, a.unanswered(err)
}

// Count implements route.Partition.
func (a answering) Count(ctx context.Context, f query.Filter) (query.Count, error) {
	n, err := a.p.Questions.Count(ctx, f)
	return n, a.unanswered(err)
}

// CountUntil implements route.Partition.
func (a answering) CountUntil(ctx context.Context, f query.Filter, until []int64) ([]query.Count, error) {
	n, err := a.p.Questions.CountUntil(ctx, f, until)
	return n, a.unanswered(err)
}

// Watch implements route.Partition.
func (a answering) Watch() (route.Watch, error) {
	w, err := a.p.Questions.Watch()
	if err != nil {
		return nil, a.unanswered(err)
	}
	return watching{w, a}, nil
}

type watching struct {
	w  *questions.Watcher
	of answering
}

// Decision implements route.Watch.
func (w watching) Decision(ctx context.Context, offset int64) (query.Decision, error) {
	d, err := w.w.Decision(ctx, offset)
	if errors.Is(err, context.DeadlineExceeded) {
		if is := w.of.p.Status(); is.State != ownership.Live {
			err = errors.Join(err, &route.StuckError{Detail: fmt.Sprintf("the partition is %s: %s", is.State, is.Reason)})
		}
	}
	return d, w.of.unanswered(err)
}

// Close implements route.Watch.
func (w watching) Close() { w.w.Close() }

// unanswered turns an error into route.ErrMoving if another owner may answer the question. If no owner will, it returns
// the cause: the partition has failed, or the brokers do not answer.
func (a answering) unanswered(err error) error {
	if err == nil || !query.Again(err) {
		return err
	}
	var notLive *query.NotLiveError
	if errors.As(err, &notLive) && notLive.Failed {
		return &route.StuckError{Word: route.PartitionFailed, Detail: fmt.Sprintf("%v has failed at instance %s, since %s, and does not go on by itself: %s. Mend that, then restart the instance; until then nothing of the partition fires, and what is written waits in the log",
			a.p.Life().Requests(), a.in.Name, notLive.Since.UTC().Format(time.RFC3339), strings.TrimSuffix(notLive.Reason, "."))}
	}
	if silent := a.in.Group.Unresponsive(); silent != "" {
		return unreachable(silent)
	}
	return fmt.Errorf("%w: %w", route.ErrMoving, err)
}

// unreachable returns the error for brokers that do not answer.
func unreachable(why string) error {
	return &route.StuckError{Word: route.KafkaUnreachable, Detail: "Kafka cannot be reached: " + why + ". Nothing fires meanwhile and nothing is lost; see that the brokers run, and that this instance reaches them"}
}

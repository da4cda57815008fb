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
	"github.com/waterclock/waterclock/internal/timer/query"
)

// answering is an owned partition as the API sees it. It implements route.Partition.
type answering struct {
	*questions.Questions
	p  *partition.Partition
	in *Instance
}

// Watch implements route.Partition.
func (a answering) Watch() (route.Watch, error) {
	w, err := a.Questions.Watch()
	if err != nil {
		return nil, err
	}
	return watching{w, a.p}, nil
}

type watching struct {
	*questions.Watcher
	p *partition.Partition
}

// Decision implements route.Watch.
func (w watching) Decision(ctx context.Context, offset int64) (query.Decision, error) {
	d, err := w.Watcher.Decision(ctx, offset)
	if errors.Is(err, context.DeadlineExceeded) {
		if is := w.p.Status(); is.State != ownership.Live {
			err = errors.Join(
				err, &route.StuckError{Detail: fmt.Sprintf("the partition is %s: %s", is.State, is.Reason)})
		}
	}
	return d, err
}

// Explain implements route.Partition. It turns an error into route.ErrMoving if another owner may answer the question.
// If no owner will, it returns the cause: the partition has failed, or the brokers do not answer.
func (a answering) Explain(err error) error {
	if err == nil || !query.Again(err) {
		return err
	}
	if notLive, ok := errors.AsType[*query.NotLiveError](err); ok && notLive.Failed {
		return &route.StuckError{Word: route.PartitionFailed, Detail: fmt.Sprintf("%v has failed at instance %s, "+
			"since %s, and does not go on by itself: %s. Mend that, then restart the instance; until then nothing "+
			"of the partition fires, and what is written waits in the log",
			a.p.Life().Requests(), a.in.Name, notLive.Since.UTC().Format(time.RFC3339),
			strings.TrimSuffix(notLive.Reason, "."))}
	}
	if silent := a.in.Group.Unresponsive(); silent != "" {
		return unreachable(silent)
	}
	return fmt.Errorf("%w: %w", route.ErrMoving, err)
}

// unreachable returns the error for brokers that do not answer.
func unreachable(why string) error {
	return &route.StuckError{Word: route.KafkaUnreachable, Detail: "Kafka cannot be reached: " + why +
		". Nothing fires meanwhile and nothing is lost; see that the brokers run, and that this instance reaches them"}
}

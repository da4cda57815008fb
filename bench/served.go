package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/node/commands"
)

const (
	// servedTimeout is how long a run waits for the instances that serve a named request topic. A hand-over takes less.
	servedTimeout = 10 * time.Second
	// tidyTimeout bounds the time to cancel timers that have not fired.
	tidyTimeout = time.Minute
)

// awaitServed sends one timer that is due at once to the named request topic, and waits for its outcome. So if no
// instance serves the topic, if the target is not allowed, or if the group is another one, the run fails before it has
// written hundreds of thousands of timers.
func (r *run) awaitServed(ctx context.Context) error {
	id, limit := r.name+"-probe", min(servedTimeout, r.Timeout/2)
	probe := []waterclock.Option{waterclock.After(0), waterclock.To(r.target), waterclock.NullValue()}
	sent, err := commands.Send(ctx, r.Cluster, commands.Request{Topic: r.requests, ID: id, Options: probe, Wait: limit})
	switch {
	case errors.Is(err, commands.ErrUndecided):
		_, cancelled := commands.Send(
			ctx, r.Cluster, commands.Request{Topic: r.requests, ID: id, Action: commands.Cancel})
		return errors.Join(fmt.Errorf("look for the instances that serve %s: %w", r.requests, err), cancelled)
	case err != nil:
		return fmt.Errorf("look for the instances that serve %s: %w", r.requests, err)
	case sent.Outcome.Refused != nil:
		return fmt.Errorf("the instances that serve %s refuse timers for %s: %s: %s", r.requests, r.target,
			sent.Outcome.Refused.Reason, sent.Outcome.Refused.Detail)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// The offsets may be the last partition that gets the marker of the step's transaction.
	return poll(ctx, settledPoll, func() (bool, error) {
		n, err := r.settled(ctx)
		return n > 0, err
	}, func() error {
		return fmt.Errorf("group %s has taken nothing in on %s, somebody else has: give the group of the instances "+
			"with --group", r.group, r.requests)
	})
}

// tidy cancels the run's timers that have not fired, if the request topic is not the run's own. There are some after an
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
	r.Log.Warn("cancelled what had not fired", "topic", r.requests, "timers", len(cancels))
	return nil
}

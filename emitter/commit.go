package emitter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

// commit runs one transaction. It returns nil if the step is committed, and errUnknown if the outcome must be
// resolved. With any other error the step is certainly aborted.
func (l *Lane) commit(ctx context.Context, shares []*Share) (err error) {
	if _, err := memberOf(shares); err != nil {
		return err
	}
	to := partitionSetOf(shares)
	parts := to.partitions()
	ctx, release := l.during(ctx, parts)
	defer release()
	l.timings.begin()
	defer func() {
		if err != nil && !errors.Is(err, errUnknown) && !errors.Is(err, errUnreachable) &&
			errors.Is(context.Cause(ctx), errUnreachable) {
			err = fmt.Errorf("%w: %w", errUnreachable, err)
		}
		if !l.aborts.apart { // the tries of a quarantine always take long, and the log has already said why
			l.timings.end(l.o.Logger, l.name, err)
		}
	}()
	c, err := l.open(ctx, shares, parts)
	if err != nil {
		return err
	}
	l.startsWriting()
	out := outgoing{lane: l, c: c, shares: shares, to: to}
	err = out.produce(ctx)
	if err == nil {
		err = c.awaitKnown(ctx, parts)
	}
	l.timings.through("produce")
	if err == nil {
		_, err = memberOf(shares)
	}
	if err == nil {
		err = checked(shares, c)
	} else {
		// Shares whose records were acknowledged learn the offsets of these, and need not look for them.
		_ = checked(out.acknowledged(), c)
	}
	if err != nil {
		l.abandon(ctx, &out, shares)
		l.timings.through("abort")
		return err
	}
	for _, s := range shares {
		if s.Committing != nil {
			s.Committing()
		}
	}
	return l.end(ctx, c)
}

// named lists topics with their errors.
func named(culprits map[string]error) string {
	var all []string
	for topic, err := range culprits {
		all = append(all, fmt.Sprintf("%s (%v)", topic, err))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// open begins a transaction and commits the offsets in it. If it returns an error, nothing was produced and the
// transaction is given up.
func (l *Lane) open(ctx context.Context, shares []*Share, parts map[string][]int32) (*txnClient, error) {
	c, culprits, err := l.begin(ctx, parts)
	l.timings.through("announce")
	switch {
	case c == nil:
		return nil, err
	case errors.Is(err, errEmissions):
		// The whole announce was refused: the broker began nothing.
		if !l.blame(shares, culprits) {
			// not errEmissions: the step is tried again later
			err = fmt.Errorf("target topics changed: %s", named(culprits))
		}
		c.parts = nil
		if c.abort(ctx) != nil {
			l.drop(c)
		}
		return nil, err
	case err == nil:
		err = c.commitOffsets(ctx, l.o.Group, shares)
		l.timings.through("offsets")
	}
	if err != nil {
		// Nothing is produced yet, so kgo's own abort would send nothing and leave the broker's transaction open for
		// the next one to continue.
		l.drop(c)
		return nil, err
	}
	return c, nil
}

// abandon aborts a transaction in which something was produced. A partition that failed may have no leader, and then
// misses the marker.
func (l *Lane) abandon(ctx context.Context, out *outgoing, shares []*Share) {
	if out.unsafe || out.held {
		l.drop(out.c)
	} else {
		l.abort(ctx, out.c)
	}
	for p := range out.tripped {
		l.o.Markers.Moved(p)
	}
	for _, s := range shares {
		for p := range s.Held {
			l.o.Markers.Moved(p)
		}
	}
}

// begin opens a transaction and announces its partitions. If the broker has not ended the last transaction of the ID
// yet, it takes a fresh ID, once. If c is nil, nothing was begun.
func (l *Lane) begin(
	ctx context.Context, parts map[string][]int32) (c *txnClient, culprits map[string]error, err error) {
	for fresh := false; ; fresh = true {
		if c, err = l.pool.next(ctx, fresh); err != nil {
			return nil, nil, err
		}
		l.needs(c)
		c.hurried = needsUnreachable(l.o.Leaders, nil, c.parts)
		c.renew()
		c.refresh(parts, l.o.Targets)
		if err := c.BeginTransaction(); err != nil {
			l.drop(c)
			return nil, nil, fmt.Errorf("begin transaction: %w", err)
		}
		culprits, err = c.announce(ctx, parts)
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			return c, culprits, err
		}
		c.parts = nil // the previous transaction has not ended, so the new one was never begun
		l.drop(c)
		if fresh {
			return nil, nil, err
		}
	}
}

// end commits. It waits for the answer up to CommitTimeout. A later answer goes to resolve.
func (l *Lane) end(ctx context.Context, c *txnClient) error {
	bounded, cancel := context.WithTimeout(ctx, l.o.CommitTimeout)
	defer cancel()
	answer := make(chan error, 1)
	c.answer = answer
	go func() { answer <- c.EndTransaction(l.background.Context(), kgo.TryCommit) }()
	var err error
	select {
	case err = <-answer:
		c.answer = nil
	case <-bounded.Done():
		err = context.Cause(bounded)
	}
	l.timings.through("end")
	switch {
	case err == nil:
		c.noteEnd(l.o.Markers, repair.EndingCommit)
		return nil
	case errors.Is(err, kerr.OperationNotAttempted):
		l.drop(c)
		return fmt.Errorf("end transaction: %w", err)
	default:
		l.o.Logger.Warn("commit not answered, resolving the outcome of the step", "lane", l.name,
			"transactional_id", c.id, "err", err)
		return errUnknown
	}
}

// passed tells Health of committed emissions, if any target is unhealthy.
func (l *Lane) passed(shares []*Share) {
	if l.o.Health.AllHealthy() {
		return
	}
	counts := make(map[timer.TopicPartition]int)
	for _, s := range shares {
		for i := range s.Emissions {
			counts[s.Emissions[i].to()]++
		}
	}
	for p, n := range counts {
		l.o.Health.Committed(p, n)
	}
}

// abort aborts a transaction in which something was produced. It does not wait for a coordinator that cannot be
// reached.
func (l *Lane) abort(ctx context.Context, c *txnClient) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if needsUnreachable(l.o.Leaders, c, nil) || c.AbortBufferedRecords(bounded) != nil {
		c.UnsafeAbortBufferedRecords()
		l.drop(c)
		return
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer stop()
	if err := c.abort(end); err != nil {
		l.drop(c)
		return
	}
	c.noteEnd(l.o.Markers, repair.EndingAbort)
}

// blame marks emissions and records for refused topics, and reports whether there are any. A target that is gone is
// looked up again first: it may have been recreated, or this broker may not know it yet.
func (l *Lane) blame(shares []*Share, culprits map[string]error) (blamed bool) {
	for _, s := range shares {
		for i := range s.Emissions {
			topic := s.Emissions[i].Record.Topic
			switch err, ok := culprits[topic]; {
			case !ok:
			case targets.Gone(err):
				l.o.Targets.Refuted(topic)
			default:
				s.Emissions[i].Err, blamed = err, true
			}
		}
		for _, r := range s.Records {
			if err, ok := culprits[r.Topic]; ok {
				s.refused(timer.TopicPartition{Topic: r.Topic, Partition: r.Partition}, err)
				blamed = true
			}
		}
	}
	return blamed
}

// drop discards a client that must not end its own transaction, and makes the broker abort that transaction: a new
// client with the same ID calls InitProducerID. The ID is not used again. drop waits for the end no longer than
// dropWait. The lane does not depend on it, because the transaction can no longer be committed. But readers of every
// target in it do, so the attempts continue in the background, even while the coordinator cannot be reached, until the
// broker's transaction timeout has passed.
func (l *Lane) drop(c *txnClient) {
	l.pool.forget(c)
	c.Close()
	l.o.Metrics.retired.Inc()
	if c.parts != nil {
		defer c.noteEnd(l.o.Markers, repair.EndingAbort)
	}
	done := l.aborts.begin(c)
	if !l.o.Leaders.AllReachable() {
		return // the end may wait for the broker that cannot be reached
	}
	t := time.NewTimer(dropWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

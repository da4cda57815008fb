package emitter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

// transaction is the transaction of one step. The lane's loop commits it. If the outcome of EndTxn is unknown (see
// end), a goroutine of its own takes the transaction over and resolves the outcome (see resolve).
//
// If a partition does not acknowledge its records in time, the transaction is aborted and the partition is named: in
// Share.Held if the records are the share's own, and by its breaker if it is a target. Only a partition's own errors
// count against it, never the producer's.
//
// The promises of acknowledged records, which are nearly all, only count down in the partition set. mu guards the
// fields that the other promises and the watch use.
type transaction struct {
	lane   *Lane
	shares []*Share
	to     *partitionSet
	c      *txnClient // from open on
	sent   int32      // the number of records to the service's own topics, once all are sent
	unsafe bool       // buffered records were abandoned: the client is to be retired
	// emitting is the context of emissions, nil before the first one. The loop changes it between two flushes. The
	// watch of a flush ends it.
	emitting *patience

	mu      sync.Mutex            // guards the following fields
	failure error                 // the last one
	broken  map[*kgo.Record]error // the emissions that were not acknowledged, and why
	// the last time in the flush at which a dying broker kept all of the shares' own records waiting
	taken       time.Duration
	held        bool // a share holds up the step
	unreachable bool // the leader of an outstanding partition cannot be reached
	tripped     map[timer.TopicPartition]error
}

// commit runs the transaction. It returns nil if the step is committed, and errUnknown if the outcome must be resolved.
// With any other error the step is certainly aborted.
func (t *transaction) commit(ctx context.Context) (err error) {
	if _, err := memberOf(t.shares); err != nil {
		return err
	}
	l := t.lane
	t.to = partitionSetOf(t.shares)
	parts := t.to.partitions()
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
	if err = t.open(ctx, parts); err != nil {
		return err
	}
	l.startsWriting()
	err = t.produce(ctx)
	if err == nil {
		err = t.c.awaitKnown(ctx, parts)
	}
	l.timings.through("produce")
	if err == nil {
		_, err = memberOf(t.shares)
	}
	if err == nil {
		err = checked(t.shares, t.c)
	} else {
		// Shares whose records were acknowledged learn the offsets of these, and need not look for them.
		_ = checked(t.acknowledged(), t.c)
	}
	if err != nil {
		t.abandon(ctx)
		l.timings.through("abort")
		return err
	}
	for _, s := range t.shares {
		if s.Committing != nil {
			s.Committing()
		}
	}
	return t.end(ctx)
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

// open begins the transaction and commits the offsets in it. If it returns an error, nothing was produced and the
// transaction is given up.
func (t *transaction) open(ctx context.Context, parts map[string][]int32) error {
	l := t.lane
	culprits, err := t.begin(ctx, parts)
	l.timings.through("announce")
	switch {
	case t.c == nil:
		return err
	case errors.Is(err, errEmissions):
		// The whole announce was refused: the broker began nothing.
		if !t.blame(culprits) {
			// not errEmissions: the step is tried again later
			err = fmt.Errorf("target topics changed: %s", named(culprits))
		}
		t.c.parts = nil
		if t.c.abort(ctx) != nil {
			l.drop(t.c)
		}
		return err
	case err == nil:
		err = t.c.commitOffsets(ctx, l.o.Group, t.shares)
		l.timings.through("offsets")
	}
	if err != nil {
		// Nothing is produced yet, so kgo's own abort would send nothing and leave the broker's transaction open for
		// the next one to continue.
		l.drop(t.c)
	}
	return err
}

// blame marks emissions and records for refused topics, and reports whether there are any. A target that is gone is
// looked up again first: it may have been recreated, or this broker may not know it yet.
func (t *transaction) blame(culprits map[string]error) (blamed bool) {
	for _, s := range t.shares {
		for i := range s.Emissions {
			topic := s.Emissions[i].Record.Topic
			switch err, ok := culprits[topic]; {
			case !ok:
			case targets.Gone(err):
				t.lane.o.Targets.Refuted(topic)
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

// abandon aborts a transaction in which something was produced. A partition that failed may have no leader, and then
// misses the marker.
func (t *transaction) abandon(ctx context.Context) {
	l := t.lane
	if t.unsafe || t.held {
		l.drop(t.c)
	} else {
		l.abort(ctx, t.c)
	}
	for p := range t.tripped {
		l.o.Markers.Moved(p)
	}
	for _, s := range t.shares {
		for p := range s.Held {
			l.o.Markers.Moved(p)
		}
	}
}

// begin picks a client, begins its transaction and announces the partitions. If the broker has not ended the last
// transaction of the ID yet, it takes a fresh ID, once. If t.c is nil afterwards, nothing was begun.
func (t *transaction) begin(ctx context.Context, parts map[string][]int32) (culprits map[string]error, err error) {
	l := t.lane
	for fresh := false; ; fresh = true {
		c, err := l.pool.next(ctx, fresh)
		if err != nil {
			return nil, err
		}
		l.needs(c)
		c.hurried = needsUnreachable(l.o.Leaders, nil, c.parts)
		c.renew()
		c.refresh(parts, l.o.Targets)
		if err := c.BeginTransaction(); err != nil {
			l.drop(c)
			return nil, fmt.Errorf("begin transaction: %w", err)
		}
		culprits, err = c.announce(ctx, parts)
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			t.c = c
			return culprits, err
		}
		c.parts = nil // the previous transaction has not ended, so the new one was never begun
		l.drop(c)
		if fresh {
			return nil, err
		}
	}
}

// end commits. It waits for the answer up to CommitTimeout; a later answer goes to resolve. Without an answer by then,
// and with any error but OperationNotAttempted, the outcome is unknown.
func (t *transaction) end(ctx context.Context) error {
	l, c := t.lane, t.c
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
		l.o.Logger.Warn("outcome of a commit unknown, resolving the step", "lane", l.name, "transactional_id", c.id,
			"err", err)
		return fmt.Errorf("%w: %w", errUnknown, err)
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
			counts[s.Emissions[i].To()]++
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

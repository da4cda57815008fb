package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

const (
	// offerTick is how often a paced producer catches up with its rate.
	offerTick = time.Millisecond
	// maxBuffered is how many requests wait in the producer; above that an
	// unbounded producer is held back.
	maxBuffered = 50_000
	// settledPoll is how often committed positions are looked at.
	settledPoll = 10 * time.Millisecond
)

// offer is a stream of timers to schedule.
type offer struct {
	timers int
	rate   float64 // a second; 0 for as fast as the producer takes them
	// due says when timer number i, sent at now, is due, in Unix milliseconds.
	due func(i int, now time.Time) int64
	// sent is called now and then with how many were sent; may be nil.
	sent func(n int)
}

// schedule sends the stream to the request topic and waits until the broker has
// it. Every request that it returns for without error is in the log.
func (r *run) schedule(ctx context.Context, l *ledger, o offer) error {
	cl, err := r.newClient(kgo.MaxBufferedRecords(maxBuffered), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer cl.Close()
	target := kgo.RecordHeader{Key: waterclock.HeaderTargetTopic, Value: []byte(r.target)}
	var failure atomic.Pointer[error]
	err = pace(ctx, o.timers, o.rate, func(i int, now time.Time) {
		due := o.due(i, now)
		id, value := l.schedule(due)
		rec := &kgo.Record{Topic: r.requests, Key: id, Value: value, Headers: []kgo.RecordHeader{
			{Key: waterclock.HeaderAt, Value: strconv.AppendInt(nil, due, 10)}, target}}
		cl.Produce(ctx, rec, func(_ *kgo.Record, err error) {
			if err != nil {
				failure.CompareAndSwap(nil, &err)
			}
		})
		if o.sent != nil && i%1024 == 0 {
			o.sent(i)
		}
	})
	if err == nil {
		err = cl.Flush(ctx)
	}
	if failed := failure.Load(); failed != nil {
		err = *failed
	}
	if err != nil {
		return fmt.Errorf("schedule timers on %s: %w", r.requests, err)
	}
	return nil
}

// pace calls do for 0 to n-1, at most rate times a second, in bursts of a tick.
func pace(ctx context.Context, n int, rate float64, do func(i int, now time.Time)) error {
	start := time.Now()
	t := time.NewTicker(offerTick)
	defer t.Stop()
	for i := 0; i < n; {
		now := time.Now()
		upTo := min(n, i+1024)
		if rate > 0 {
			upTo = min(n, int(now.Sub(start).Seconds()*rate))
		}
		for ; i < upTo; i++ {
			do(i, now)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if rate > 0 {
			<-t.C
		}
	}
	return nil
}

// settled returns the sum of the group's committed positions on the request
// topic: how many requests are taken in.
func (r *run) settled(ctx context.Context) (int64, error) {
	offsets, err := kadm.NewClient(r.client).FetchOffsetsForTopics(ctx, r.group, r.requests)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("fetch the positions of group %s: %w", r.group, err)
	}
	var sum int64
	offsets.Each(func(o kadm.OffsetResponse) { sum += max(0, o.At) })
	return sum, nil
}

// logEnd returns the sum of the request topic's ends.
func (r *run) logEnd(ctx context.Context) (int64, error) {
	ends, err := kadm.NewClient(r.client).ListEndOffsets(ctx, r.requests)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("list the ends of %s: %w", r.requests, err)
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	return sum, nil
}

// awaitSettled waits until every request in the log is taken in.
func (r *run) awaitSettled(ctx context.Context, progress func(n int64)) error {
	end, err := r.logEnd(ctx)
	if err != nil {
		return err
	}
	t := time.NewTicker(settledPoll)
	defer t.Stop()
	for {
		n, err := r.settled(ctx)
		if err != nil {
			return err
		}
		if n >= end {
			return nil
		}
		progress(n)
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d requests to be taken in, %d are: %w", end, n, ctx.Err())
		case <-t.C:
		}
	}
}

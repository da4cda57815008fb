package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// logsFetchBytes bounds what a read of the topics beside a request topic holds at a time.
	logsFetchBytes = 4 << 20
	// followPause is how often who follows is called although there is nothing.
	followPause = 15 * time.Second
)

// logs reads the topics beside request topics. It implements api.Logs.
type logs struct{ in *instance }

// Bounds implements api.Logs: the ends are those of what is committed or aborted.
func (l *logs) Bounds(ctx context.Context, topic string) (map[int32][2]int64, error) {
	adm := kadm.NewClient(l.in.client)
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the starts of %s: %w", topic, err)
	}
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the ends of %s: %w", topic, err)
	}
	bounds := make(map[int32][2]int64)
	starts.Each(func(o kadm.ListedOffset) {
		if end, ok := ends.Lookup(topic, o.Partition); ok {
			bounds[o.Partition] = [2]int64{o.Offset, max(o.Offset, end.Offset)}
		}
	})
	return bounds, nil
}

// consumer reads partitions of a topic from offsets on, committed records and all markers:
// without those the end of a log that one closes could not be told.
func (l *logs) consumer(topic string, from map[int32]kgo.Offset) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append(slices.Clone(l.in.opts),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(logsFetchBytes), kgo.FetchMaxPartitionBytes(logsFetchBytes), kgo.MaxConcurrentFetches(1))...)
	if err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}
	return cl, nil
}

// Read implements api.Logs. What stands just before to may be of an aborted transaction and not
// be shown; its marker is, and stands before the end of what is decided, at to or behind it.
func (l *logs) Read(ctx context.Context, topic string, partition int32, from, to int64, fn func(*api.Record) error) error {
	if from >= to {
		return nil
	}
	cl, err := l.consumer(topic, map[int32]kgo.Offset{partition: kgo.NewOffset().At(from)})
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("read %s/%d: %w", topic, partition, err)
		}
		done := false
		var failed error
		fetches.EachRecord(func(r *kgo.Record) {
			if failed == nil && r.Offset < to && !r.Attrs.IsControl() {
				failed = fn(apiRecord(r))
			}
			done = done || r.Offset >= to-1
		})
		if failed != nil || done {
			return failed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Follow implements api.Logs.
func (l *logs) Follow(ctx context.Context, topic string, partitions []int32, fn func(*api.Record) error) error {
	bounds, err := l.Bounds(ctx, topic)
	if err != nil {
		return err
	}
	from := make(map[int32]kgo.Offset)
	for _, p := range partitions {
		from[p] = kgo.NewOffset().At(bounds[p][1])
	}
	cl, err := l.consumer(topic, from)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := fn(nil); err != nil {
		return err
	}
	for said := time.Now(); ; {
		poll, cancel := context.WithTimeout(ctx, followPause)
		fetches := cl.PollFetches(poll)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fetches.Err0(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("read %s: %w", topic, err)
		}
		var failed error
		fetches.EachRecord(func(r *kgo.Record) {
			if failed == nil && !r.Attrs.IsControl() {
				failed = fn(apiRecord(r))
			}
		})
		if failed == nil && time.Since(said) >= followPause {
			said, failed = time.Now(), fn(nil)
		}
		if failed != nil {
			return failed
		}
	}
}

func apiRecord(r *kgo.Record) *api.Record {
	out := &api.Record{Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, timer.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

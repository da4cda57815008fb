package apiserver

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
	// logsFetchBytes bounds the memory of one read of a request topic's own topics, for each broker that it reads from.
	logsFetchBytes = 1 << 20
	// logsFetches is how many brokers are asked at a time.
	logsFetches = 4
	// followPause is how often Follow calls fn with nil, whether or not something was written.
	followPause = 15 * time.Second
)

// logs reads the own topics of request topics. It implements api.Logs.
type logs struct{ in *Instance }

// Bounds implements api.Logs. The ends are the last stable offsets: every record below them is committed or aborted.
func (l *logs) Bounds(ctx context.Context, topic string) (map[int32][2]int64, error) {
	adm := kadm.NewClient(l.in.Client)
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

// consumer returns a client that reads partitions of a topic, each from the given offset on. It reads committed records
// and all markers, because a log may end with a marker.
func (l *logs) consumer(topic string, from map[int32]kgo.Offset, more ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append(append(slices.Clone(l.in.Options), more...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(logsFetchBytes), kgo.FetchMaxPartitionBytes(logsFetchBytes), kgo.MaxConcurrentFetches(logsFetches))...)
	if err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}
	return cl, nil
}

// Read implements api.Logs. The last records of a span may belong to an aborted transaction; then the client does not
// return them. It does return the transaction's marker, which lies in the span or after it, and before the last stable
// offset. So there is always a record that shows that the span was read to its end.
func (l *logs) Read(ctx context.Context, topic string, spans map[int32][2]int64, fn func(*api.Record) error) error {
	from := make(map[int32]kgo.Offset)
	for p, span := range spans {
		if span[0] < span[1] {
			from[p] = kgo.NewOffset().At(span[0])
		}
	}
	if len(from) == 0 {
		return nil
	}
	cl, err := l.consumer(topic, from)
	if err != nil {
		return err
	}
	defer cl.Close()
	for len(from) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return fmt.Errorf("read %s/%d: %w", topic, errs[0].Partition, errs[0].Err)
		}
		var failed error
		fetches.EachPartition(func(of kgo.FetchTopicPartition) {
			if _, left := from[of.Partition]; !left || failed != nil {
				return
			}
			var done bool
			if done, failed = until(of.Records, spans[of.Partition][1], fn); done {
				delete(from, of.Partition)
				cl.PauseFetchPartitions(map[string][]int32{topic: {of.Partition}})
			}
		})
		if failed != nil {
			return failed
		}
	}
	return nil
}

// until calls fn with the records before the offset end. It reports whether the records reach up to it.
func until(records []*kgo.Record, end int64, fn func(*api.Record) error) (done bool, err error) {
	for _, r := range records {
		if r.Offset < end && !r.Attrs.IsControl() {
			if err := fn(apiRecord(r)); err != nil {
				return false, err
			}
		}
		if r.Offset >= end-1 {
			return true, nil
		}
	}
	return false, nil
}

// Follow implements api.Logs. It ends if retention overtakes it or the log was truncated. Otherwise the client would
// continue at another offset, and the gap would go unnoticed.
func (l *logs) Follow(ctx context.Context, topic string, at api.Position, fn func(*api.Record) error) error {
	from := make(map[int32]kgo.Offset)
	for i, next := range at.Next {
		from[at.First+int32(i)] = kgo.NewOffset().At(next)
	}
	cl, err := l.consumer(topic, from, kgo.ConsumeResetOffset(kgo.NoResetOffset()))
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
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				return fmt.Errorf("read %s/%d: %w", topic, e.Partition, e.Err)
			}
		}
		var failed error
		fetches.EachRecord(func(r *kgo.Record) {
			if failed != nil {
				return
			}
			if at.Passed(r.Partition, r.Offset); !r.Attrs.IsControl() {
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

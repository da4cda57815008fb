package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// readRoom is the memory, in bytes, of the records that a read of a log has built and not passed on, and readFetch
	// is the size of its fetches. A stream has less: there are more of them, and events are small.
	readRoom, readFetch     = 512 << 10, 256 << 10
	streamRoom, streamFetch = 128 << 10, 256 << 10
	// logsUnpacked is the limit to which a batch may decompress, unless its topic takes larger records. Only the
	// service should write to these topics, and it writes no batch as large.
	logsUnpacked = 4 << 20
	// followPause is how often Follow calls fn with nil, even if no record was written.
	followPause = 15 * time.Second
	// unreadableReminder is how often unreadable batches of a topic are logged. Each call and each stream meets them
	// again.
	unreadableReminder = time.Minute
)

// logs reads the own topics of request topics. It implements api.Logs.
type logs struct {
	in  *Instance
	log *slog.Logger

	mu         sync.Mutex                 // guards unreadable
	unreadable map[string]*beats.Reminder // by topic
}

var _ api.Logs = (*logs)(nil)

func newLogs(in *Instance, log *slog.Logger) *logs {
	return &logs{in: in, log: log, unreadable: make(map[string]*beats.Reminder)}
}

// Bounds implements api.Logs. The ends are the last stable offsets: every record below them is committed or aborted.
func (l *logs) Bounds(ctx context.Context, topic string) (map[int32][2]int64, error) {
	adm := kadm.NewClient(l.in.Client)
	starts, err := connect.Offsets(adm.ListStartOffsets(ctx, topic))
	if err != nil {
		return nil, fmt.Errorf("list the starts of %s: %w", topic, err)
	}
	ends, err := connect.Offsets(adm.ListCommittedOffsets(ctx, topic))
	if err != nil {
		return nil, fmt.Errorf("list the ends of %s: %w", topic, err)
	}
	bounds := make(map[int32][2]int64)
	for p, start := range starts {
		if end, ok := ends[p]; ok {
			bounds[p] = [2]int64{start, max(start, end)}
		}
	}
	return bounds, nil
}

// Since implements api.Logs.
func (l *logs) Since(ctx context.Context, topic string, at time.Time) (map[int32]int64, error) {
	offsets, err := connect.Offsets(kadm.NewClient(l.in.Client).ListOffsetsAfterMilli(ctx, at.UnixMilli(), topic))
	if err != nil {
		return nil, fmt.Errorf("list the offsets of %s at %s: %w", topic, at.UTC().Format(time.RFC3339), err)
	}
	return offsets, nil
}

// Read implements api.Logs.
func (l *logs) Read(ctx context.Context, topic string, spans map[int32][2]int64, fn func(*api.Record) error) error {
	from := make(map[int32]int64)
	for p, span := range spans {
		if span[0] < span[1] {
			from[p] = span[0]
		}
	}
	if len(from) == 0 {
		return nil
	}
	return l.consume(ctx, topic, from, readRoom, readFetch, func(d *delivered) (bool, error) {
		if d == nil {
			return false, nil
		}
		end := spans[d.partition][1]
		for _, r := range d.Records {
			if r.Offset >= end {
				break
			}
			if err := fn(apiRecord(r)); err != nil {
				return false, err
			}
		}
		if d.Next >= end { // also if the last records of the span were aborted
			delete(from, d.partition)
		}
		return len(from) == 0, nil
	})
}

// Follow implements api.Logs. It ends if retention overtakes it or the log was truncated. Otherwise the gap would go
// unnoticed.
func (l *logs) Follow(ctx context.Context, topic string, at api.Position, fn func(*api.Record) error) error {
	from := make(map[int32]int64)
	for i, next := range at.Next {
		from[at.First+int32(i)] = next
	}
	if err := fn(nil); err != nil {
		return err
	}
	called := time.Now()
	return l.consume(ctx, topic, from, streamRoom, streamFetch, func(d *delivered) (bool, error) {
		if d != nil {
			for _, r := range d.Records {
				at.Passed(r.Partition, r.Offset)
				if err := fn(apiRecord(r)); err != nil {
					return false, err
				}
			}
			at.Passed(d.partition, d.Next-1)
		}
		if time.Since(called) < followPause {
			return false, nil
		}
		called = time.Now()
		return false, fn(nil)
	})
}

// consume reads partitions of a topic, each from an offset on, until take reports that it has enough, or fails. It
// calls take at least every followPause, with nil if there is no record.
func (l *logs) consume(
	ctx context.Context, topic string, from map[int32]int64, room, fetch int, take func(*delivered) (bool, error),
) error {
	cl, err := kgo.NewClient(l.in.Options...)
	if err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	defer cl.Close()
	c := partlog.NewConsumer(cl, l.largest(topic), fetch)
	q := &queue{room: int64(room), wake: beats.NewSignal(), reader: c, topic: topic}
	for p, offset := range from {
		c.Add(topic, p, offset, &tail{q, l, p})
	}
	reading, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = c.Run(reading) })
	idle := time.NewTicker(followPause)
	defer idle.Stop()
	for {
		d, err := q.next()
		if err != nil {
			return err
		}
		if d == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-q.wake:
				continue
			case <-idle.C:
			}
		}
		if enough, err := take(d); enough || err != nil {
			return err
		}
		q.release(d)
	}
}

// largest is the limit to which a batch of a topic may decompress.
func (l *logs) largest(topic string) int {
	for i := range l.in.Topics {
		for _, t := range []*topics.Topic{&l.in.Topics[i].DeadLetters, &l.in.Topics[i].Events} {
			if t.Name == topic {
				return max(logsUnpacked, t.MaxMessageBytes)
			}
		}
	}
	return logsUnpacked
}

// logUnreadable logs a batch that is left out, for each topic at most once in unreadableReminder.
func (l *logs) logUnreadable(topic string, partition int32, u *partlog.Unreadable) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reminder := l.unreadable[topic]
	if reminder == nil {
		reminder = new(beats.Reminder)
		l.unreadable[topic] = reminder
	}
	if reminder.Due(unreadableReminder) {
		l.log.Warn("unreadable batch left out", "topic", topic, "partition", partition, "err", u)
	}
}

// delivered is a piece of a partition.
type delivered struct {
	partlog.Read
	partition int32
	memory    int64
}

// queue holds the records of some partitions until the caller takes them. Records are bounded by its room: a larger one
// comes alone. A piece without records joins the last one of its partition, because an open transaction delivers them
// all the time. So at most one of each partition waits by itself.
type queue struct {
	room   int64
	wake   beats.Signal
	reader *partlog.Consumer
	topic  string

	mu     sync.Mutex // guards the following fields; held over Pause and Resume of the reader
	list   []*delivered
	held   int64   // memory of the records in the list or not released yet
	paused []int32 // partitions for which there was no room
	err    error
}

func (q *queue) next() (d *delivered, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) > 0 {
		d, q.list = q.list[0], q.list[1:]
		return d, nil
	}
	return nil, q.err
}

func (q *queue) release(d *delivered) {
	if d != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.held -= d.memory; q.held <= q.room/2 {
			for _, p := range q.paused {
				q.reader.Resume(q.topic, p)
			}
			q.paused = nil
		}
	}
}

// tail is the sink of one partition.
type tail struct {
	*queue
	logs      *logs
	partition int32
}

var _ partlog.Sink = (*tail)(nil)

// Room implements partlog.Sink. Brokers answer at the same time, so two answers may count on the same room.
func (t *tail) Room(next int64) timer.Size {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := t.room - t.held; room >= next || t.held == 0 {
		return timer.Size{Entries: math.MaxInt, Bytes: max(room, next)}
	}
	t.paused = append(t.paused, t.partition)
	t.reader.Pause(t.topic, t.partition)
	return timer.Size{}
}

// Deliver implements partlog.Sink.
func (t *tail) Deliver(got partlog.Read) {
	d := &delivered{Read: got, partition: t.partition}
	for _, r := range got.Records {
		d.memory += partlog.Memory(r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held += d.memory
	for _, last := range slices.Backward(t.list) {
		if last.partition == d.partition && len(d.Records) == 0 {
			got.Records = last.Records
			last.Read = got
			return
		}
	}
	t.list = append(t.list, d)
	t.wake.Send()
}

// Skip implements partlog.Sink.
func (t *tail) Skip(u *partlog.Unreadable) { t.logs.logUnreadable(t.topic, t.partition, u) }

// Fail implements partlog.Sink.
func (t *tail) Fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = cmp.Or(t.err, fmt.Errorf("read %s/%d: %w", t.topic, t.partition, err))
	t.wake.Send()
}

func apiRecord(r *kgo.Record) *api.Record {
	out := &api.Record{Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, timer.Header(h))
	}
	return out
}

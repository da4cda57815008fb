package waterclocktest

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/timer"
)

// followTime is how often a reader of a log hears from it although nothing happens.
const followTime = time.Second

// log is a topic of one partition. The server's mutex guards it.
type log struct {
	records []*api.Record
	more    chan struct{} // closed at the next record
	mark    api.Mark      // which dead letters have been reviewed
}

func newLog() *log { return &log{more: make(chan struct{})} }

func (l *log) append(now int64, rec *kgo.Record) {
	r := &api.Record{Offset: int64(len(l.records)), Time: time.UnixMilli(now), Key: rec.Key, Value: rec.Value}
	for _, h := range rec.Headers {
		r.Headers = append(r.Headers, timer.Header(h))
	}
	l.records = append(l.records, r)
	close(l.more)
	l.more = make(chan struct{})
}

// logs implements api.Logs and api.Marks.
type logs struct{ s *Server }

var (
	_ api.Logs  = logs{}
	_ api.Marks = logs{}
)

// from returns the records of a topic from an offset on, and a channel that is closed when there are more.
func (l logs) from(topic string, offset int64) ([]*api.Record, <-chan struct{}) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	one := l.s.logs[topic]
	return slices.Clone(one.records[min(offset, int64(len(one.records))):]), one.more
}

// requests returns the end of a request topic.
func (l logs) requests(topic string) (end int64, ok bool) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	q := l.s.served[topic]
	if q == nil {
		return 0, false
	}
	return q.next, true
}

func (l logs) Bounds(_ context.Context, topic string) (map[int32][2]int64, error) {
	if end, ok := l.requests(topic); ok {
		return map[int32][2]int64{0: {0, end}}, nil
	}
	all, _ := l.from(topic, 0)
	return map[int32][2]int64{0: {0, int64(len(all))}}, nil
}

func (l logs) Since(_ context.Context, topic string, at time.Time) (map[int32]int64, error) {
	all, _ := l.from(topic, 0)
	n := slices.IndexFunc(all, func(r *api.Record) bool { return !r.Time.Before(at) })
	if n < 0 {
		n = len(all)
	}
	return map[int32]int64{0: int64(n)}, nil
}

func (l logs) Read(_ context.Context, topic string, spans map[int32][2]int64, fn func(*api.Record) error) error {
	all, _ := l.from(topic, spans[0][0])
	for _, r := range all {
		if r.Offset >= spans[0][1] {
			break
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func (l logs) Follow(ctx context.Context, topic string, at api.Position, fn func(*api.Record) error) error {
	if err := fn(nil); err != nil {
		return err
	}
	for {
		all, more := l.from(topic, at.Next[0])
		for _, r := range all {
			at.Next[0] = r.Offset + 1
			if err := fn(r); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-more:
		case <-time.After(followTime):
			if err := fn(nil); err != nil {
				return err
			}
		}
	}
}

func (l logs) Marks(_ context.Context, topic string) (map[int32]api.Mark, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if one := l.s.logs[topic]; one.mark != (api.Mark{}) {
		return map[int32]api.Mark{0: one.mark}, nil
	}
	return nil, nil
}

func (l logs) SetMarks(_ context.Context, topic string, marks map[int32]api.Mark) error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.logs[topic].mark = marks[0]
	return nil
}

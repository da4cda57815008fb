package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/timer"
)

// fakeLogs are the topics of dead letters and of events, and the marks of reviewed letters, which whole topics
// are read from. It implements api.Logs and api.Marks. Fakes of logs that do something odd embed emptyLogs.
type fakeLogs struct {
	mu      sync.Mutex                         // guards all fields below
	of      map[string]map[int32][]*api.Record // by topic and partition; nil: a marker
	begin   int64                              // of each partition
	calls   int                                // of Read: each takes a connection of its own
	offsets int64                              // that were read
	fail    error                              // of Bounds and Read; nil: they work
	later   func()                             // is called once, when a stream begins to follow
	marks   map[string]map[int32]api.Mark      // by topic
	refuse  error                              // of marks
	between func()                             // is called once, between the reading and the writing of marks
}

var (
	_ api.Logs  = (*fakeLogs)(nil)
	_ api.Marks = (*fakeLogs)(nil)
)

func (f *fakeLogs) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// write writes a record, followed by a marker.
func (f *fakeLogs) write(topic string, r api.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = make(map[string]map[int32][]*api.Record)
	}
	if f.of[topic] == nil {
		f.of[topic] = make(map[int32][]*api.Record)
	}
	r.Offset = int64(len(f.of[topic][r.Partition]))
	if topic != eventsTopic {
		source := fmt.Appendf(nil, "%s/%d/%d", topic[:len(topic)-len(".dead")], r.Partition, r.Offset)
		r.Headers = append(r.Headers, timer.Header{Key: waterclock.HeaderSource, Value: source})
	}
	f.of[topic][r.Partition] = append(f.of[topic][r.Partition], &r, nil)
}

// letter writes a dead letter of a request topic.
func (f *fakeLogs) letter(requests string, partition int32, at time.Time, id, reason string, headers ...string) {
	r := api.Record{Partition: partition, Time: at, Key: []byte(id), Value: []byte("v of " + id)}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, timer.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	r.Headers = append(r.Headers, timer.Header{Key: waterclock.HeaderReason, Value: []byte(reason)})
	f.write(requests+".dead", r)
}

const eventsTopic = "events"

// event writes an event to the partition of its ID.
func (f *fakeLogs) event(t *testing.T, at time.Time, id, kind, target string, more ...string) {
	t.Helper()
	e := map[string]any{"format": 1, "type": kind, "at": at.UnixMilli(), "target": target,
		"labels": map[string]string{"team": target}}
	if len(more) > 0 {
		e["detail"] = more[0]
	}
	value, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	f.write(eventsTopic, api.Record{Partition: place(t, "timers", id, partitions).Partition, Time: at,
		Key: []byte(id), Value: value})
}

// Bounds implements api.Logs. A topic of dead letters has the first partition at least.
func (f *fakeLogs) Bounds(_ context.Context, topic string) (map[int32][2]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	bounds, least := make(map[int32][2]int64), 1
	if topic == eventsTopic {
		least = partitions
	}
	for p := range int32(least) {
		bounds[p] = [2]int64{f.begin, f.begin}
	}
	for p, rs := range f.of[topic] {
		bounds[p] = [2]int64{f.begin, max(f.begin, int64(len(rs)))}
	}
	return bounds, f.fail
}

// Since implements api.Logs.
func (f *fakeLogs) Since(_ context.Context, topic string, at time.Time) (map[int32]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	offsets := make(map[int32]int64)
	for p, rs := range f.of[topic] {
		offsets[p] = int64(len(rs))
		if i := slices.IndexFunc(rs, func(r *api.Record) bool { return r != nil && !r.Time.Before(at) }); i >= 0 {
			offsets[p] = int64(i)
		}
	}
	return offsets, nil
}

// Read implements api.Logs.
func (f *fakeLogs) Read(_ context.Context, topic string, spans map[int32][2]int64, fn func(*api.Record) error) error {
	f.mu.Lock()
	f.calls++
	var all []*api.Record
	for _, p := range slices.Sorted(maps.Keys(spans)) {
		f.offsets += spans[p][1] - spans[p][0]
		all = append(all, f.of[topic][p][spans[p][0]:spans[p][1]]...)
	}
	err := f.fail
	f.mu.Unlock()
	for _, r := range all {
		if r != nil && err == nil {
			err = fn(r)
		}
	}
	return err
}

// Follow implements api.Logs. It delivers all records, and then reports the end.
func (f *fakeLogs) Follow(_ context.Context, topic string, at api.Position, fn func(*api.Record) error) error {
	if f.later != nil {
		f.later()
		f.later = nil
	}
	for i := range at.Next {
		for _, r := range f.of[topic][at.First+int32(i)][at.Next[i]:] {
			if r == nil {
				continue
			}
			at.Passed(r.Partition, r.Offset)
			if err := fn(r); err != nil {
				return err
			}
		}
	}
	return fn(nil)
}

// Marks implements api.Marks.
func (f *fakeLogs) Marks(_ context.Context, topic string) (map[int32]api.Mark, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.marks[topic]), f.refuse
}

// SetMarks implements api.Marks.
func (f *fakeLogs) SetMarks(_ context.Context, topic string, marks map[int32]api.Mark) error {
	f.mu.Lock()
	between := f.between
	f.between = nil
	f.mu.Unlock()
	if between != nil {
		between()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	if f.marks == nil {
		f.marks = make(map[string]map[int32]api.Mark)
	}
	if f.marks[topic] == nil {
		f.marks[topic] = make(map[int32]api.Mark)
	}
	maps.Copy(f.marks[topic], marks)
	return nil
}

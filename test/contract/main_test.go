// Package contract holds a whole instance on a real broker against what REFERENCE.md and
// MIGRATION.md promise of requests, emissions and dead letters: every header in every
// form, every reason, every dialect, targets that change, races of cancels with firings.
package contract

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	// arrive bounds how long anything may take to come on a machine that has
	// other work. It is a limit for the test, no claim about lateness.
	arrive = 60 * time.Second
	// settled is how long a test looks on for what must not come.
	settled = 1500 * time.Millisecond
	// onTime is what a busy machine may add to a due time: beyond it something hangs. How late timers are is
	// measured by waterclock bench.
	onTime = 30 * time.Second

	deadSuffix = ".waterclock.dead-letters"
)

// want is the emission that a request asks for, as its test wrote it down.
type want struct {
	request *kgo.Record // once produced it knows its place
	due     int64
	topic   string
	// partition is the one asked for, byKey or anywhere.
	partition  int32
	key, value []byte
	headers    []kgo.RecordHeader // passed through
}

const (
	byKey    int32 = -1
	anywhere int32 = -2
)

func (w *want) id() string { return string(w.request.Key) }

// source is the place of a request, as emissions and dead letters name it.
func source(r *kgo.Record) string { return fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset) }

func header(name, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: name, Value: []byte(value)}
}

func at(ms int64) kgo.RecordHeader { return header("timer-at", strconv.FormatInt(ms, 10)) }

func to(topic string) kgo.RecordHeader { return header("timer-target-topic", topic) }

func request(topic, id, value string, headers ...kgo.RecordHeader) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: []byte(id), Value: []byte(value), Headers: headers}
}

// plain is the want of a request without refinements.
func plain(r *kgo.Record, topic string, due int64) want {
	return want{request: r, due: due, topic: topic, partition: byKey, key: r.Key, value: r.Value}
}

// javaPartition is where a Java client puts a key: kgo's own default
// partitioner says so, none of our code.
func javaPartition(topic string, key []byte, partitions int) int32 {
	p := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	return int32(p.Partition(&kgo.Record{Topic: topic, Key: key}, partitions))
}

// produce writes records in order and waits until all are acknowledged.
func produce(t testing.TB, cl *kgo.Client, recs ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), arrive)
	defer cancel()
	if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		t.Fatalf("produce requests: %v", err)
	}
}

// sameBytes tells null from empty.
func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func sameHeader(a, b kgo.RecordHeader) bool { return a.Key == b.Key && sameBytes(a.Value, b.Value) }

func show(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 40:
		return fmt.Sprintf("%q… (%d bytes)", b[:40], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// faults compares an emission with what was asked for, byte for byte.
func (w *want) faults(r kafkatest.Received, partitions map[string]int) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if r.Topic != w.topic {
		fault("topic %s, want %s", r.Topic, w.topic)
	}
	switch want := w.partition; {
	case want == anywhere:
	case want == byKey && r.Partition != javaPartition(w.topic, w.key, partitions[w.topic]):
		fault("partition %d, a Java client would choose %d", r.Partition,
			javaPartition(w.topic, w.key, partitions[w.topic]))
	case want >= 0 && r.Partition != want:
		fault("partition %d, want %d", r.Partition, want)
	}
	if !sameBytes(r.Key, w.key) {
		fault("key %s, want %s", show(r.Key), show(w.key))
	}
	if !sameBytes(r.Value, w.value) {
		fault("value %s, want %s", show(r.Value), show(w.value))
	}
	wantHeaders := append(slices.Clip(w.headers),
		header("waterclock-id", w.id()), header("waterclock-due", strconv.FormatInt(w.due, 10)),
		header("waterclock-occurrence", "1"), header("waterclock-source", source(w.request)),
		header("waterclock-event", r.Header("waterclock-event")))
	if !slices.EqualFunc(r.Headers, wantHeaders, sameHeader) {
		fault("headers %q, want %q", r.Headers, wantHeaders)
	}
	if r.Timestamp.UnixMilli() < w.due {
		fault("early: timestamp %d, due %d", r.Timestamp.UnixMilli(), w.due)
	}
	if r.At.Before(time.UnixMilli(w.due)) {
		fault("early: received %d, due %d", r.At.UnixMilli(), w.due)
	}
	return faults
}

// maxShown is how many faults of one kind a test prints.
const maxShown = 10

// checkAll holds what came against what was asked for: every want once, byte
// for byte, and nothing else.
func checkAll(t testing.TB, received []kafkatest.Received, wants []want, partitions map[string]int) {
	t.Helper()
	rig.Emissions(t, received) // early, duplicated
	bySource := make(map[string][]kafkatest.Received)
	for _, r := range received {
		s := r.Header("waterclock-source")
		bySource[s] = append(bySource[s], r)
	}
	lost, duplicated, wrong := 0, 0, 0
	for i := range wants {
		w := &wants[i]
		s := source(w.request)
		got := bySource[s]
		delete(bySource, s)
		switch len(got) {
		case 0:
			if lost++; lost <= maxShown {
				t.Errorf("lost: %s of %s, due %d, headers %q", s, show(w.request.Key), w.due, w.request.Headers)
			}
			continue
		case 1:
		default:
			duplicated++
		}
		if faults := w.faults(got[0], partitions); len(faults) > 0 {
			if wrong++; wrong <= maxShown {
				t.Errorf("emission of %s (request headers %q): %q", s, w.request.Headers, faults)
			}
		}
	}
	shown := 0
	for s, rs := range bySource {
		if shown++; shown <= maxShown {
			t.Errorf("emitted and not asked for: %s, id %q, %d times", s, rs[0].Header("waterclock-id"), len(rs))
		}
	}
	const sum = "%d asked for, %d received: %d lost, %d duplicated, %d wrong, %d not asked for"
	say := t.Logf
	if lost+duplicated+wrong+len(bySource) > 0 {
		say = func(format string, args ...any) { kafkatest.Inexact(t, format, args...) }
	}
	say(sum, len(wants), len(received), lost, duplicated, wrong, len(bySource))
}

// lateness logs how late emissions were received, counted from the later of
// their due time and from, and fails when the 99th percentile is absurd.
func lateness(t testing.TB, received []kafkatest.Received, from time.Time) {
	t.Helper()
	var late []time.Duration
	for _, r := range received {
		ms, _ := strconv.ParseInt(r.Header("waterclock-due"), 10, 64)
		due := time.UnixMilli(ms)
		if due.Before(from) {
			due = from
		}
		late = append(late, r.At.Sub(due))
	}
	if len(late) == 0 {
		return
	}
	slices.Sort(late)
	p99 := late[len(late)*99/100]
	t.Logf("late by receipt: p50 %s, p99 %s, worst %s", late[len(late)/2], p99, late[len(late)-1])
	if p99 > onTime {
		t.Errorf("99th percentile of lateness is %s, over %s", p99, onTime)
	}
}

// serve starts an instance and waits until it is live.
func serve(t *testing.T, cfg *config.Config, partitions int) *rig.Instance {
	t.Helper()
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(partitions, arrive)
	return in
}

// awaitPending waits until the instance holds n timers.
func awaitPending(t testing.TB, in *rig.Instance, n float64) {
	t.Helper()
	awaitCount(t, fmt.Sprint(n, " pending timers"), func() (float64, bool) {
		got := in.Metric("waterclock_pending_timers")
		return got, got == n
	})
}

// awaitSettled waits until n requests have an outcome: what has not come a
// moment after that, and is not pending, never will.
func awaitSettled(t testing.TB, in *rig.Instance, n int) {
	t.Helper()
	awaitCount(t, fmt.Sprint(n, " settled requests"), func() (float64, bool) {
		got := in.Metric("waterclock_outcomes_total") - in.Metric("waterclock_outcomes_total", "outcome", "fired")
		return got, got >= float64(n)
	})
}

func awaitCount(t testing.TB, what string, look func() (float64, bool)) {
	t.Helper()
	got := 0.0
	_, ok := await.Within(arrive, func() (ok bool) {
		got, ok = look()
		return ok
	})
	if !ok {
		t.Errorf("waited %s for %s, there are %v", arrive, what, got)
	}
}

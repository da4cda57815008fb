package contract

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

// want is a request and what must become of it, as its test wrote it down: the emission described here, or a dead
// letter, or nothing if it has no topic.
type want struct {
	request *kgo.Record // once produced it knows its place
	refused waterclock.Reason
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

// plain is the want of a request without refinements.
func plain(r *kgo.Record, topic string, due int64) want {
	return want{request: r, due: due, topic: topic, partition: byKey, key: r.Key, value: r.Value}
}

// javaPartition is where a Java client puts a key: kgo's own default partitioner says so, none of our code.
func javaPartition(topic string, key []byte, partitions int) int32 {
	p := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	return int32(p.Partition(&kgo.Record{Topic: topic, Key: key}, partitions))
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
	partition := w.partition
	if partition == byKey {
		partition = javaPartition(w.topic, w.key, partitions[w.topic])
	}
	if partition != anywhere && r.Partition != partition {
		fault("partition %d, want %d", r.Partition, partition)
	}
	if !sameBytes(r.Key, w.key) || !sameBytes(r.Value, w.value) {
		fault("key %s, want %s; value %s, want %s", show(r.Key), show(w.key), show(r.Value), show(w.value))
	}
	headers := append(slices.Clip(w.headers),
		header("waterclock-id", string(w.request.Key)), header("waterclock-due", strconv.FormatInt(w.due, 10)),
		header("waterclock-occurrence", "1"), header("waterclock-source", source(w.request)),
		header("waterclock-event", r.Header("waterclock-event")))
	if !slices.EqualFunc(r.Headers, headers, sameHeader) {
		fault("headers %q, want %q", r.Headers, headers)
	}
	if r.Timestamp.UnixMilli() < w.due || r.At.Before(time.UnixMilli(w.due)) {
		fault("early: timestamp %d, received %d, due %d", r.Timestamp.UnixMilli(), r.At.UnixMilli(), w.due)
	}
	return faults
}

// checkAll holds what came against what was asked for: every want once, byte for byte, and nothing else.
func (s *setup) checkAll(wants []want) {
	s.Helper()
	var wrong []history.Violation
	complain := func(rule, format string, args ...any) {
		wrong = append(wrong, history.Violation{Rule: rule, Text: fmt.Sprintf(format, args...)})
	}
	bySource := make(map[string][]kafkatest.Received)
	for id, rs := range rig.Emissions(s, s.Out.Records()) { // early, duplicated
		for i, r := range rs {
			src := r.Header("waterclock-source")
			bySource[src] = append(bySource[src], r)
			for _, before := range rs[:i] {
				if overtakes(before, r) {
					complain("order", "%s: the emission of %s came before that of %s", id,
						before.Header("waterclock-source"), src)
				}
			}
		}
	}
	for i := range wants {
		w := &wants[i]
		src := source(w.request)
		got := bySource[src]
		delete(bySource, src)
		if len(got) != 1 {
			complain("loss", "%s of %s, due %d, headers %q, was emitted %d times", src, show(w.request.Key), w.due,
				w.request.Headers, len(got))
			continue
		}
		if faults := w.faults(got[0], s.partitions); len(faults) > 0 {
			complain("altered", "emission of %s (request headers %q): %q", src, w.request.Headers, faults)
		}
	}
	for src, rs := range bySource {
		complain("altered", "emitted and not asked for: %s, id %q", src, rs[0].Header("waterclock-id"))
	}
	rig.Violations(s, wrong)
	s.Logf("%d asked for, %d received, %d wrong", len(wants), len(s.Out.Records()), len(wrong))
}

// overtakes reports whether two emissions of one ID are on one partition in another order than their requests. One step
// writes in order of (due, request), so a later request may overtake only with an earlier due time.
func overtakes(first, second kafkatest.Received) bool {
	if first.Offset > second.Offset {
		first, second = second, first
	}
	log, before := requestOf(first)
	other, behind := requestOf(second)
	return first.Topic == second.Topic && first.Partition == second.Partition && log == other &&
		before > behind && number(first, "waterclock-due") >= number(second, "waterclock-due")
}

// requestOf is the place of an emission's request: topic and partition, and the offset.
func requestOf(r kafkatest.Received) (log string, offset int64) {
	src := r.Header("waterclock-source")
	i := strings.LastIndexByte(src, '/')
	offset, _ = strconv.ParseInt(src[i+1:], 10, 64)
	return src[:max(i, 0)], offset
}

// number is a header's value, 0 if it is none: other checks find that.
func number(r kafkatest.Received, header string) int64 {
	n, _ := strconv.ParseInt(r.Header(header), 10, 64)
	return n
}

// onTime logs how late emissions were received, counted from the later of their due time and from, and fails when the
// 99th percentile is absurd.
func (s *setup) onTime(from time.Time) {
	s.Helper()
	var late []time.Duration
	for _, r := range s.Out.Records() {
		due := time.UnixMilli(number(r, "waterclock-due"))
		if due.Before(from) {
			due = from
		}
		late = append(late, r.At.Sub(due))
	}
	slices.Sort(late)
	p99 := late[len(late)*99/100]
	s.Logf("late by receipt: p50 %s, p99 %s, worst %s", late[len(late)/2], p99, late[len(late)-1])
	if p99 > onTime {
		s.Errorf("99th percentile of lateness is %s, over %s", p99, onTime)
	}
}

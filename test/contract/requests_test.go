package contract

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// maker makes requests that differ in everything a request can say. Its random numbers have a fixed seed: the same
// requests each time, but for the clock.
type maker struct {
	rng        *rand.Rand
	requests   string
	targets    []string
	partitions map[string]int // of targets
	forms      []form
	serial     int
}

// next makes one request due about then, in the form of its turn.
func (m *maker) next(due int64) want {
	m.serial++
	f := m.forms[m.serial%len(m.forms)]
	w := want{request: &kgo.Record{Topic: m.requests, Key: m.id()}, topic: m.targets[m.rng.IntN(len(m.targets))]}
	var headers []kgo.RecordHeader
	headers, w.request.Timestamp, w.due = f.make(due)
	headers = append(headers, header("timer-target-topic", w.topic))
	w.value = m.payload()
	w.request.Value = w.value
	headers = append(headers, m.targetHeaders(&w)...)
	m.rng.Shuffle(len(headers), func(i, j int) { headers[i], headers[j] = headers[j], headers[i] })
	w.request.Headers = m.mix(&w, headers)
	return w
}

func (m *maker) id() []byte {
	id := fmt.Sprintf("timer-%d", m.serial)
	switch m.serial % 5 {
	case 0:
		return append([]byte{0, 0xff, 0xfe, '/'}, id...) // no text
	case 1:
		return []byte("Zeit-⏰-" + id)
	case 2:
		if m.serial%50 == 2 {
			return []byte(id + strings.Repeat("x", 512-len(id))) // the longest
		}
	}
	return []byte(id)
}

func (m *maker) payload() []byte {
	switch n := m.rng.IntN(20); {
	case n == 0:
		return nil
	case n == 1:
		return []byte{}
	case n == 2:
		b := make([]byte, 1+m.rng.IntN(4000))
		for i := range b {
			b[i] = byte(m.rng.Uint32())
		}
		return b
	case m.serial%700 == 0:
		return bytes.Repeat([]byte("long "), 20_000)
	}
	return fmt.Appendf(nil, "payload %d", m.serial)
}

// targetHeaders chooses key and partition and says so in headers.
func (m *maker) targetHeaders(w *want) (headers []kgo.RecordHeader) {
	w.key, w.partition = w.request.Key, byKey
	switch m.rng.IntN(8) {
	case 0:
		w.key = fmt.Appendf(nil, "customer-%d", m.rng.IntN(500))
		headers = append(headers, kgo.RecordHeader{Key: "timer-target-key", Value: w.key})
	case 1:
		w.key = []byte{0xc3, 0x28, byte(m.rng.Uint32()), 0}
		headers = append(headers, kgo.RecordHeader{Key: "timer-target-key", Value: w.key})
	case 2:
		w.key = []byte{}
		headers = append(headers, kgo.RecordHeader{Key: "timer-target-key", Value: w.key})
	case 3:
		w.key, w.partition = nil, anywhere
		headers = append(headers, header("timer-target-key-null", "true"))
	case 4:
		w.key, w.partition = nil, anywhere
		headers = append(headers, kgo.RecordHeader{Key: "timer-target-key"})
	case 5:
		w.key, w.partition = nil, anywhere
		headers = append(headers, kgo.RecordHeader{Key: "timer-target-key"}, header("timer-target-key-null", "true"))
	}
	if m.rng.IntN(4) == 0 {
		w.partition = int32(m.rng.IntN(m.partitions[w.topic]))
		headers = append(headers, header("timer-target-partition", fmt.Sprint(w.partition)))
	}
	return headers
}

// others returns headers that do not speak to the service, and whether all of them are passed through or only those
// named x.
func (m *maker) others() (headers []kgo.RecordHeader, onlyX bool) {
	switch m.rng.IntN(8) {
	case 0:
		return []kgo.RecordHeader{header("a", "1"), header("b", "2"), header("a", "3"), header("a", "1")}, false
	case 1:
		return []kgo.RecordHeader{{Key: "null"}, {Key: "empty", Value: []byte{}}, {Key: "null"},
			{Key: "null", Value: []byte{}}}, false
	case 2:
		return []kgo.RecordHeader{{Key: "", Value: []byte{0xff, 0}}, header("größe", "ä"),
			{Key: "traceparent", Value: []byte{0x80}}}, false
	case 3: // what a consumer sends that copies all headers of an emission
		return []kgo.RecordHeader{
			header("waterclock-id", "another"), header("x", "y"), header("waterclock-due", "1"),
			{Key: "waterclock-event"},
			header("waterclock-source", "a/0/1"), header("x", "z"), header("waterclock-occurrence", "7"),
			header("waterclock-", ""),
		}, true
	case 4: // names that look like ours and are not
		return []kgo.RecordHeader{
			header("Waterclock-id", "kept"), header("timers-at", "1"), header("timer", "2"), header("x-timer-at", "3"),
			header("waterclock", "4"),
		}, false
	case 5:
		if m.serial%10 == 0 {
			for i := range 100 {
				headers = append(headers, header(fmt.Sprint("many-", i%30), fmt.Sprint(i)))
			}
		}
	}
	return headers, false
}

// mix puts headers of both kinds into one list at random, others in order.
func (m *maker) mix(w *want, ours []kgo.RecordHeader) (mixed []kgo.RecordHeader) {
	others, onlyX := m.others()
	for _, h := range others {
		if !onlyX || h.Key == "x" {
			w.headers = append(w.headers, h)
		}
	}
	for len(ours)+len(others) > 0 {
		from := &others
		if m.rng.IntN(len(ours)+len(others)) < len(ours) {
			from = &ours
		}
		mixed = append(mixed, (*from)[0])
		*from = (*from)[1:]
	}
	return mixed
}

// cancel is the n-th way to cancel an ID.
func cancel(n int, topic string, id []byte) *kgo.Record {
	kinds := []kgo.Record{
		{},
		{Headers: []kgo.RecordHeader{header("a", "b"), header("waterclock-due", "1")}},
		{Headers: []kgo.RecordHeader{header("timer-cancel", "true")}},
		{Value: []byte("a value"), Headers: []kgo.RecordHeader{header("timer-cancel", "true")}},
		{Value: []byte{}, Headers: []kgo.RecordHeader{header("timer-target-topic", "no such"),
			header("timer-cancel", "true")}},
	}
	r := kinds[n%len(kinds)]
	r.Topic, r.Key = topic, id
	return &r
}

// TestTenThousandTimersOfAllForms sends, over 20 s, each form of due time, target, key, partition, value and header,
// cancels among them. Each emission comes once, byte for byte, never early, where a Java client would have put it.
func TestTenThousandTimersOfAllForms(t *testing.T) {
	t.Parallel()
	const (
		timers    = 10_000
		cancelled = 500
	)
	span := 10 * time.Second
	if runs.Slow() {
		span = 20 * time.Second
	}
	s := newSetup(t, kafkatest.Shared(t), 4, 3, "retention.ms", "-1") // some timestamps are of last week
	m := &maker{rng: rand.New(rand.NewPCG(3, 1)), requests: s.Requests, partitions: s.partitions, forms: forms()}
	for _, n := range []int32{1, 3, 7, 12} {
		m.targets = append(m.targets, s.target(fmt.Sprint("target-", n), n))
	}
	s.Out = kafkatest.Collect(t, s.Cluster, m.targets...)
	s.serve(s.Config(), 4)

	start := time.Now()
	first := start.Add(4 * time.Second)
	due := func(i, of int) int64 { return first.Add(span * time.Duration(i) / time.Duration(of)).UnixMilli() }
	var wants []want
	for i := range timers {
		wants = append(wants, m.next(due(i, timers)))
	}
	for i := range cancelled { // due in the last second, cancelled at once
		w := m.next(due(cancelled-1, cancelled))
		if w.due < start.UnixMilli()+span.Milliseconds()/2 {
			continue // a form that is past due: it would fire
		}
		wants = append(wants, want{request: w.request}, want{request: cancel(i, s.Requests, w.request.Key)})
	}
	s.send(wants...)
	t.Logf("%d requests written after %s", len(wants), time.Since(start))
	s.Out.WaitFor(timers, span+patience)
	s.end(len(wants))
	s.onTime(first)
}

// TestTimerAfterCountsFromLogAppendTime: where the broker stamps the requests, timer-after counts from its stamp, not
// from the producer's.
func TestTimerAfterCountsFromLogAppendTime(t *testing.T) {
	t.Parallel()
	s := newSetup(t, kafkatest.Shared(t), 2, 3, "message.timestamp.type", "LogAppendTime")
	s.serve(s.Config(), 2)
	written := kafkatest.Collect(t, s.Cluster, s.Requests)
	const n = 100
	for i := range n {
		r := after(s.Requests, fmt.Sprint("id-", i), "1500ms", s.Target)
		r.Timestamp = time.Now().Add(-time.Hour) // the broker's clock counts instead
		s.Send(r)
	}
	for _, r := range written.WaitFor(n, patience) {
		s.sent = append(s.sent, plain(r.Record, s.Target, r.Timestamp.UnixMilli()+1500))
	}
	s.end(n)
}

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
	"github.com/waterclock/waterclock/test/rig"
)

// maker makes requests that differ in everything a request can say. Its random
// numbers have a fixed seed: the same requests each time, but for the clock.
type maker struct {
	rng        *rand.Rand
	requests   string
	targets    []string
	partitions map[string]int
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
	headers = append(headers, to(w.topic))
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

// others returns headers that do not speak to the service, and whether all of
// them are passed through or only those named x.
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

// cancels returns one request for each way to cancel an ID.
func cancels(topic string, id []byte) []*kgo.Record {
	return []*kgo.Record{
		{Topic: topic, Key: id},
		{Topic: topic, Key: id, Headers: []kgo.RecordHeader{header("a", "b"), header("waterclock-due", "1")}},
		{Topic: topic, Key: id, Headers: []kgo.RecordHeader{header("timer-cancel", "true")}},
		{Topic: topic, Key: id, Value: []byte("a value"), Headers: []kgo.RecordHeader{header("timer-cancel", "true")}},
		{Topic: topic, Key: id, Value: []byte{}, Headers: []kgo.RecordHeader{header("timer-target-topic", "no such"),
			header("timer-cancel", "true")}},
	}
}

// TestTenThousandTimersOfAllForms sends, over 20 s, each form of
// due time, target, key, partition, value and header, cancels among them. Each
// emission comes once, byte for byte, never early, where a Java client would
// have put it.
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
	c := kafkatest.Shared(t)
	// Some records bear timestamps of last week: nothing may expire.
	requests := c.CreateTopic(t, 4, map[string]*string{"retention.ms": new("-1")})
	m := &maker{rng: rand.New(rand.NewPCG(3, 1)), requests: requests, partitions: map[string]int{}, forms: forms()}
	for _, n := range []int{1, 3, 7, 12} {
		topic := c.CreateTopic(t, int32(n), nil, fmt.Sprint(kafkatest.Topic(t), "-out-", n))
		m.targets, m.partitions[topic] = append(m.targets, topic), n
	}
	in := serve(t, rig.Config(t, c.Seeds(), requests), 4)
	out, dead := kafkatest.Collect(t, c, m.targets...), kafkatest.Collect(t, c, requests+deadSuffix)

	start := time.Now()
	first := start.Add(4 * time.Second)
	due := func(i, of int) int64 { return first.Add(span * time.Duration(i) / time.Duration(of)).UnixMilli() }
	var wants []want
	var recs []*kgo.Record
	for i := range timers {
		wants = append(wants, m.next(due(i, timers)))
		recs = append(recs, wants[i].request)
	}
	for i := range cancelled { // due in the last second, cancelled at once
		w := m.next(due(cancelled-1, cancelled))
		if w.due < start.UnixMilli()+span.Milliseconds()/2 {
			continue // a form that is past due: it would fire
		}
		kinds := cancels(requests, w.request.Key)
		recs = append(recs, w.request, kinds[i%len(kinds)])
	}
	produce(t, c.Client(t), recs...)
	t.Logf("%d requests written after %s", len(recs), time.Since(start))

	out.WaitFor(timers, span+arrive)
	awaitSettled(t, in, len(recs))
	awaitPending(t, in, 0)
	out.Quiet(settled)
	received := out.Records()
	checkAll(t, received, wants, m.partitions)
	if letters := dead.Records(); len(letters) > 0 {
		t.Errorf("%d dead letters, first: %q", len(letters), letters[0].Headers)
	}
	lateness(t, received, first)
	t.Logf("steps: %v", in.Metric("waterclock_transactions_total"))
}

// TestTimerAfterCountsFromLogAppendTime: where the broker stamps the requests,
// timer-after counts from its stamp, not from the producer's.
func TestTimerAfterCountsFromLogAppendTime(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 2, map[string]*string{"message.timestamp.type": new("LogAppendTime")})
	target := c.CreateTopic(t, 3, nil, kafkatest.Topic(t)+"-out")
	serve(t, rig.Config(t, c.Seeds(), requests), 2)
	out, in := kafkatest.Collect(t, c, target), kafkatest.Collect(t, c, requests)

	const n = 100
	var recs []*kgo.Record
	for i := range n {
		r := request(requests, fmt.Sprint("id-", i), "v", header("timer-after", "1500ms"), to(target))
		r.Timestamp = time.Now().Add(-time.Hour) // the broker's clock counts instead
		recs = append(recs, r)
	}
	produce(t, c.Client(t), recs...)
	stamped := map[string]int64{}
	for _, r := range in.WaitFor(n, arrive) {
		stamped[source(r.Record)] = r.Timestamp.UnixMilli()
	}
	var wants []want
	for _, r := range recs {
		wants = append(wants, plain(r, target, stamped[source(r)]+1500))
	}
	out.WaitFor(n, arrive)
	out.Quiet(settled)
	checkAll(t, out.Records(), wants, map[string]int{target: 3})
}

package partition

import (
	"encoding/base64"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

func emissionPartition() *Partition {
	return &Partition{o: Options{Options: ownership.Options{Partition: 7, Topics: &topics.Set{
		Request:   topics.Topic{Name: "timers", ID: [16]byte{1, 2, 3, 250}, Partitions: 8},
		Changelog: topics.Topic{Name: "timers.waterclock.changelog", ID: [16]byte{9}, Partitions: 8},
	}}}}
}

// TestEmissions checks the records of one seal. They must not share anything that one of them may change, whether their
// lists are new, too small or reused.
func TestEmissions(t *testing.T) {
	const n = 385
	used := new(emissions)
	for _, room := range []int{n, n, 0, n / 2} {
		testEmissions(t, used, room, n)
	}
	testEmissions(t, new(emissions), 0, n)
}

func testEmissions(t *testing.T, m *emissions, room, n int) {
	t.Helper()
	m.begin(emissionPartition(), 1_700_000_000_123, room, room*ownHeaders)
	var recs []*kgo.Record
	timerOf := func(i int) *timer.Timer {
		tm := &timer.Timer{
			ID: fmt.Append(nil, "id-", i), Offset: int64(i), Due: 1_700_000_000_000 + int64(i), Occurrence: 1,
			Target: timer.Target{Topic: "orders", Key: []byte("k")}, Value: []byte("v"),
		}
		if i == 0 {
			tm.Offset, tm.Due, tm.Occurrence = math.MaxInt64, math.MinInt64, math.MaxInt64
		}
		for h := range i % 3 {
			tm.Headers = append(tm.Headers, timer.Header{Key: "h", Value: fmt.Append(nil, i, "-", h)})
		}
		return tm
	}
	for i := range n {
		recs = append(recs, m.record(timerOf(i), int32(i%5)))
	}
	for _, r := range recs { // a client that appends must not overwrite the neighbour
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "appended"})
		for i := range r.Headers {
			_ = append(r.Headers[i].Value, "appended"...)
		}
	}
	uuid := base64.RawURLEncoding.EncodeToString([]byte{1, 2, 3, 250, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	for i, r := range recs {
		tm := timerOf(i)
		if r.Topic != "orders" || r.Partition != int32(i%5) || string(r.Key) != "k" || string(r.Value) != "v" ||
			!r.Timestamp.Equal(time.UnixMilli(1_700_000_000_123)) {
			t.Fatalf("%d: %+v", i, r)
		}
		var want []kgo.RecordHeader
		for _, h := range tm.Headers {
			want = append(want, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		want = append(want,
			kgo.RecordHeader{Key: waterclock.HeaderID, Value: tm.ID},
			kgo.RecordHeader{Key: waterclock.HeaderDue, Value: fmt.Append(nil, tm.Due)},
			kgo.RecordHeader{Key: waterclock.HeaderOccurrence, Value: fmt.Append(nil, tm.Occurrence)},
			kgo.RecordHeader{Key: waterclock.HeaderSource, Value: fmt.Append(nil, "timers/7/", tm.Offset)},
			kgo.RecordHeader{Key: waterclock.HeaderEvent,
				Value: fmt.Appendf(nil, "%s.7.%d.%d", uuid, tm.Offset, tm.Occurrence)},
			kgo.RecordHeader{Key: "appended"})
		if fmt.Sprintf("%q", r.Headers) != fmt.Sprintf("%q", want) {
			t.Fatalf("%d: %q\nwant %q", i, r.Headers, want)
		}
	}
}

// A moved timer names the changelog record that moved it, in its emission and in its dead
// letter.
func TestEmissionOfAMovedTimer(t *testing.T) {
	p := emissionPartition()
	for _, at := range []int64{0, 1, 12345} {
		tm := &timer.Timer{ID: []byte("id"), Offset: timer.MovedBy(at), Occurrence: 1,
			Target: timer.Target{Topic: "orders"}}
		var m emissions
		m.begin(p, 1, 1, ownHeaders)
		r := m.record(tm, 0)
		want := map[string]string{
			waterclock.HeaderSource: fmt.Sprint("timers.waterclock.changelog/7/", at),
			waterclock.HeaderEvent:  fmt.Sprintf("%s.7.%d.1", topics.TopicID([16]byte{9}), at),
		}
		for _, h := range r.Headers {
			if w, ok := want[h.Key]; ok && w != string(h.Value) {
				t.Errorf("%s is %s, want %s", h.Key, h.Value, w)
			}
		}
		if got := p.source(tm.Offset).String(); got != want[waterclock.HeaderSource] {
			t.Errorf("source %s", got)
		}
	}
}

// The memory for the headers of a step's emissions matches their need: one emission with many headers does not reserve
// room for a hundred others, and large buffers are reused.
func TestEmissionsHaveRoomForTheirHeaders(t *testing.T) {
	const headers = 100
	for _, n := range []int{1, 40} {
		c := newCore(t, newSetup(t), 1<<20, 1000)
		for id := range n {
			r := c.schedule(id, 20)
			for i := range headers {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: "h", Value: fmt.Append(nil, i)})
			}
		}
		for c.given < n {
			c.deliver(n)
			c.work()
		}
		c.seal(n)
		c.commit()
		c.apply()
		c.load()
		c.pass(30)
		step, _ := c.s.lane.step(timer.Size{Entries: n, Bytes: 1 << 20})
		if step == nil || step.Segments[0].Firings.Entries != n {
			t.Fatalf("%+v is due, want %d firings", step, n)
		}
		s := &sealedStep{l: c.s.lane, at: c.now}
		k := &sealedPart{segment: step.Segments[0], emissions: make([]emitter.Emission, n)}
		k.count()
		s.emit(k)
		if got, want := cap(k.made.headers), n*(headers+ownHeaders); got < want || got > want+want/4 {
			t.Errorf("%d emissions: room for %d headers, want %d", n, got, want)
		}
		first := &k.made.headers[0]
		if s.emit(k); first != &k.made.headers[0] {
			t.Errorf("%d emissions: room for headers is not used again", n)
		}
	}
}

package api_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
)

// eventLog is one partition of an events topic. It implements api.Logs.
type eventLog struct {
	emptyLogs

	partition  int32
	begin, end int64
	at         func(offset int64) *api.Record // nil: no record has that offset
	fail       func(from, to int64) error     // nil: never

	spans   [][2]int64 // that were read completely
	offsets int64      // in them
}

func (e *eventLog) Bounds(context.Context, string) (map[int32][2]int64, error) {
	return map[int32][2]int64{e.partition: {e.begin, e.end}}, nil
}

func (e *eventLog) Read(_ context.Context, topic string, spans map[int32][2]int64, fn func(*api.Record) error) error {
	span, ok := spans[e.partition]
	if !ok || len(spans) != 1 || topic != "events" || span[0] < e.begin || span[1] > e.end || span[0] >= span[1] {
		return fmt.Errorf("asked for %v of %s", spans, topic)
	}
	if e.fail != nil {
		if err := e.fail(span[0], span[1]); err != nil {
			return err
		}
	}
	for o := span[0]; o < span[1]; o++ {
		r := e.at(o)
		if r == nil {
			continue
		}
		r.Partition, r.Offset, r.Time = e.partition, o, time.Unix(o, 0)
		if err := fn(r); err != nil {
			return err
		}
	}
	e.spans, e.offsets = append(e.spans, span), e.offsets+span[1]-span[0]
	return nil
}

// events makes events of an ID at the offsets for which own is true, and of another ID elsewhere.
func events(id string, own func(offset int64) bool) func(int64) *api.Record {
	return func(o int64) *api.Record {
		if own(o) {
			return &api.Record{Key: []byte(id),
				Value: fmt.Appendf(nil, `{"format":1,"type":"fired","occurrence":%d}`, o)}
		}
		return &api.Record{Key: []byte("other"), Value: []byte(`{"format":1,"type":"fired"}`)}
	}
}

// walk follows cursors, and returns the offsets of all events and the last page.
func walk(t *testing.T, in *instance, id, limit string) (offsets []int64, pages int, last answer) {
	t.Helper()
	for cursor := ""; ; pages++ {
		last = in.Get(path(id)+"/events?limit="+limit+"&cursor="+cursor).Is(200, "")
		for _, e := range last.Items("events") {
			offsets = append(offsets, int64(e["offset"].(float64)))
			if event := e["event"].(map[string]any); event["id"] != id || event["occurrence"] != e["offset"] ||
				e["at"] != time.Unix(offsets[len(offsets)-1], 0).UTC().Format(time.RFC3339) {
				t.Fatalf("event %v", e)
			}
		}
		next, _ := last.Body["cursor"].(string)
		if next == "" {
			return offsets, pages + 1, last
		}
		if n, err := strconv.Atoi(next); err != nil || cursor != "" && next >= cursor && len(next) >= len(cursor) {
			t.Fatalf("cursor %q behind %q (%d)", next, cursor, n)
		}
		cursor = next
	}
}

func TestHistory(t *testing.T) {
	p := intake.Murmur2Partition([]byte("a"), partitions)
	for _, c := range []struct {
		name       string
		begin, end int64
		own        func(int64) bool
		limit      string
		pages      int
	}{
		{"nothing was ever written", 0, 0, nil, "10", 1},
		{"a few", 0, 10, func(o int64) bool { return o%3 == 1 }, "10", 1},
		{"of others alone", 0, 5000, func(int64) bool { return false }, "10", 1},
		{"page by page", 0, 100, func(o int64) bool { return o%4 == 0 }, "10", 3},
		{"a page that is full with the first", 90, 100, func(int64) bool { return true }, "10", 1},
		{"what was before is gone", 4321, 9000, func(o int64) bool { return o%1000 == 0 }, "10", 1},
		{"far back", 0, 900_000, func(o int64) bool { return o == 5 }, "10", 5},
		{"many in one span", 0, 3000, func(int64) bool { return true }, "1000", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &eventLog{partition: p, begin: c.begin, end: c.end, at: events("a", c.own)}
			in := reading(t, l)
			got, pages, last := walk(t, in, "a", c.limit)
			var want []int64
			for o := c.end - 1; o >= c.begin; o-- {
				if c.own(o) {
					want = append(want, o)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || pages != c.pages {
				t.Errorf("%d events on %d pages, want %d on %d: %.200v", len(got), pages, len(want), c.pages, got)
			}
			log := last.Object("log")
			if log["begins"] != float64(c.begin) || log["ends"] != float64(c.end) || log["partition"] != float64(p) ||
				log["topic"] != "events" || log["lookedTo"] != float64(c.begin) {
				t.Errorf("log %v", log)
			}
			oldest, want1 := log["oldest"], any(time.Unix(c.begin, 0).UTC().Format(time.RFC3339))
			if c.begin == c.end {
				want1 = nil
			}
			if oldest != want1 {
				t.Errorf("oldest is %v, want %v", oldest, want1)
			}
			if most := int64(pages) * 210_000; l.offsets > most {
				t.Errorf("%d offsets were looked at in %d calls", l.offsets, pages)
			}
		})
	}
}

// Records of other programs may be large: a call reads no more than its limit, and still gets
// on.
func TestHistoryOfLargeRecords(t *testing.T) {
	large := make([]byte, 1<<20)
	own := events("a", func(o int64) bool { return o%100 == 7 })
	l := &eventLog{partition: intake.Murmur2Partition([]byte("a"), partitions), end: 400,
		at: func(o int64) *api.Record {
			if r := own(o); string(r.Key) == "a" {
				return r
			}
			return &api.Record{Key: []byte("other"), Value: large}
		}}
	got, pages, _ := walk(t, reading(t, l), "a", "10")
	if fmt.Sprint(got) != "[307 207 107 7]" || pages < 4 {
		t.Errorf("%v on %d pages", got, pages)
	}
}

// Transaction markers and compaction leave gaps.
func TestHistoryWithGaps(t *testing.T) {
	own := events("a", func(o int64) bool { return o%10 == 0 })
	l := &eventLog{partition: intake.Murmur2Partition([]byte("a"), partitions), end: 60, at: func(o int64) *api.Record {
		if o < 15 || o > 55 || o%2 == 1 {
			return nil
		}
		return own(o)
	}}
	got, _, last := walk(t, reading(t, l), "a", "2")
	if fmt.Sprint(got) != "[50 40 30 20]" ||
		last.Object("log")["oldest"] != time.Unix(16, 0).UTC().Format(time.RFC3339) {
		t.Errorf("%v, %s", got, last.Text)
	}
}

func TestHistoryThatIsRefused(t *testing.T) {
	l := &eventLog{partition: intake.Murmur2Partition([]byte("a"), partitions), end: 20_000,
		at: events("a", func(o int64) bool { return o > 19_000 && o%100 == 0 })}
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false, withLogs(l), withQuiet)
	in.Get("/v1/topics/quiet/timers/a/events").Is(409, "no-events")
	in.Get("/v1/topics/none/timers/a/events").Is(404, "no-such-topic")
	for _, bad := range []string{"cursor=x", "cursor=-1", "limit=0", "limit=1001", "order=id"} {
		in.Get(path("a")+"/events?"+bad).Is(400, "bad-request")
	}
	// The events read so far are returned. The next call meets the error.
	l.fail = func(_, to int64) error {
		if to < 20_000 {
			return errors.New("the broker is away")
		}
		return nil
	}
	a := in.Get(path("a")+"/events").Is(200, "")
	if len(a.Items("events")) != 9 || a.Body["cursor"] != "18000" {
		t.Error(a.Text)
	}
	in.Get(path("a")+"/events?cursor=18000").Is(503, "kafka-unreachable").Has("the broker is away")
	f.set(func() {
		f.may = func(_ context.Context, role access.Role, topic, id string) error {
			return fmt.Errorf("no right to %s %s of %s", role, id, topic)
		}
	})
	in.Get(path("b%2Fc")+"/events").Is(403, "forbidden").Has("read b/c of timers")
}

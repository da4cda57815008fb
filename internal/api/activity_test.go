package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
)

// begun is when the log of the tests begins.
var begun = time.UnixMilli(1_795_338_000_000)

// busy returns a log with 300 events of 30 IDs, one each second; every third is a firing.
func busy(t *testing.T) *fakeLogs {
	l := &fakeLogs{}
	for i := range 300 {
		id := fmt.Sprintf("a%02d", i%30)
		if i%2 == 1 {
			id = fmt.Sprintf("b%02d", i%30)
		}
		kind, target := "scheduled", "orders"
		if i%3 == 0 {
			kind = "fired"
		}
		if i%5 == 0 {
			target = "mail"
		}
		l.event(t, begun.Add(time.Duration(i)*time.Second), id, kind, target)
	}
	return l
}

// told is an event as a caller gets it, in a line.
func toldOf(t *testing.T, data []byte) string {
	t.Helper()
	var e struct {
		ID, Type, Target string
		At               int64
	}
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%03d %s %s %s", (e.At-begun.UnixMilli())/1000, e.ID, e.Type, e.Target)
}

// activity follows cursors, and returns all events and the position of the first page.
func activity(t *testing.T, in *instance, q string) (all []string, position string) {
	t.Helper()
	in.Pages("/v1/topics/timers/activity?"+q, func(page answer) {
		if all == nil {
			position, _ = page.Body["position"].(string)
		}
		for _, e := range page.Items("events") {
			data, _ := json.Marshal(e["event"]) // it was JSON
			all = append(all, toldOf(t, data))
		}
	})
	return all, position
}

// streamed returns the events of a stream that ends, the rest of its lines with data, and its last ID.
func streamed(t *testing.T, in *instance, q string) (all, others []string, last string) {
	t.Helper()
	text := in.Get("/v1/topics/timers/events?" + q).Text
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var kind, data string
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "id":
				last = value
			case "event":
				kind = value
			case "data":
				data = value
			}
		}
		switch kind {
		case "event":
			all = append(all, toldOf(t, []byte(data)))
		case "":
		default:
			others = append(others, kind+" "+data)
		}
	}
	return all, others, last
}

// A list has all events of a filter once, whatever the size of its pages; a stream with since has the same ones in the
// order of time.
func TestActivity(t *testing.T) {
	l := busy(t)
	in := reading(t, l, withQuiet)
	everything, _ := activity(t, in, "limit=1000")
	if len(everything) != 300 ||
		!slices.IsSortedFunc(everything, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Fatalf("%d events: %q", len(everything), everything)
	}
	at := func(i int) string { return fmt.Sprint(begun.Add(time.Duration(i) * time.Second).UnixMilli()) }
	for _, c := range []struct {
		q    string
		want func(line string) bool
	}{
		{"", func(string) bool { return true }},
		{"prefix=a", func(l string) bool { return l[4] == 'a' }},
		{"id=b07", func(l string) bool { return l[4:7] == "b07" }},
		{"type=fired", func(l string) bool { return strings.Contains(l, "fired") }},
		{"type=fired,cancelled&prefix=b", func(l string) bool { return strings.Contains(l, " fired") && l[4] == 'b' }},
		{"target=mail", func(l string) bool { return strings.HasSuffix(l, "mail") }},
		{"type=cancelled", func(string) bool { return false }},
		{"label=team=mail", func(l string) bool { return strings.HasSuffix(l, "mail") }},
		{"label=team!=mail&type=fired", func(l string) bool { return strings.HasSuffix(l, "fired orders") }},
		{"label=team&label=team!=orders", func(l string) bool { return strings.HasSuffix(l, "mail") }},
		{"after=" + at(290), func(l string) bool { return l >= "290" }},
		{"before=" + at(7), func(l string) bool { return l < "007" }},
		{"after=" + at(100) + "&before=" + at(110) + "&type=fired",
			func(l string) bool { return l >= "100" && l < "110" && strings.Contains(l, "fired") }},
	} {
		var want []string
		for _, line := range everything {
			if c.want(line) {
				want = append(want, line)
			}
		}
		for _, limit := range []string{"&limit=1000", "&limit=7"} {
			got, _ := activity(t, in, c.q+limit)
			slices.Sort(got)
			slices.Reverse(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", c.q+limit, got, want)
			}
		}
		if strings.Contains(c.q, "before") {
			continue
		}
		since := strings.Replace(c.q, "after=", "since=", 1)
		if since == c.q {
			since += "&since=" + at(0)
		}
		slices.Reverse(want)
		got, others, last := streamed(t, in, since+"&follow=false")
		if !slices.Equal(got, want) || len(others) != 1 || others[0] != `caught-up {"olderDeleted":false}` {
			t.Errorf("%s: %q and %q, want %q", since, got, others, want)
		}
		if strings.HasPrefix(c.q, "id") {
			continue
		}
		if _, position := activity(t, in, "limit=1000"); last != position {
			t.Errorf("%s: it ends at %s, and the log at %s", since, last, position)
		}
	}
	for q, reason := range map[string]string{
		"type=fire": "bad-request", "id=a&prefix=b": "bad-request", "after=yesterday": "bad-request",
		"cursor=x": "bad-request", "limit=1001": "bad-request",
	} {
		in.Get("/v1/topics/timers/activity?"+q).Is(400, reason)
	}
	in.Get("/v1/topics/timers/activity?type=fire").Has("fired")
	in.Get("/v1/topics/timers/events?follow=false").Is(400, "bad-request")
	in.Get("/v1/topics/timers/events?since=yesterday").Is(400, "bad-request")
	in.Get("/v1/topics/quiet/activity").Is(409, "no-events")
	in.Get("/v1/topics/none/activity").Is(404, "no-such-topic")
}

// No event is lost or repeated between old ones and those written in the meantime, neither behind a list nor
// within a stream.
func TestActivityGoesOnWithoutASeam(t *testing.T) {
	for _, c := range []struct{ name, q string }{
		{"behind a list", "position="}, {"within a stream", fmt.Sprintf("since=%d", begun.UnixMilli())},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := busy(t)
			in := reading(t, l)
			all, position := activity(t, in, "limit=9")
			l.later = func() {
				for i := 300; i < 320; i++ {
					l.event(t, begun.Add(time.Duration(i)*time.Second), fmt.Sprint("new-", i), "fired", "orders")
				}
			}
			q := c.q
			if strings.HasPrefix(q, "since") {
				all = nil
			} else {
				q += position
			}
			more, _, _ := streamed(t, in, q)
			all = append(all, more...)
			slices.Sort(all)
			for i := range 320 {
				if i >= len(all) || !strings.HasPrefix(all[i], fmt.Sprintf("%03d ", i)) {
					t.Fatalf("%d events, of which number %d is wrong: %q", len(all), i, all)
				}
			}
			if len(all) != 320 {
				t.Errorf("%d events", len(all))
			}
		})
	}
}

// Events that retention has deleted are reported, and a stream does not begin too far back.
func TestActivityThatIsGone(t *testing.T) {
	l := busy(t)
	l.begin = 20
	in := reading(t, l)
	since := fmt.Sprintf("since=%d&follow=false", begun.UnixMilli())
	if got, others, _ := streamed(t, in, since); len(got) != 300-10*partitions ||
		others[0] != `caught-up {"olderDeleted":true}` {
		t.Errorf("%d events, %q", len(got), others)
	}
	if a := in.Get("/v1/topics/timers/activity").Is(200, ""); a.Body["olderDeleted"] != true {
		t.Error(a.Text)
	}
	far := make([]*api.Record, 200_001)
	far[0] = &api.Record{Time: begun, Key: []byte("x"), Value: []byte("{}")}
	l = &fakeLogs{of: map[string]map[int32][]*api.Record{eventsTopic: {0: far}}}
	in = reading(t, l)
	in.Get("/v1/topics/timers/events?"+since).Is(410, "events-gone").Has("give a later time")
}

// A caller with a right to a prefix sees that, and nothing else.
func TestActivityOfAPrefix(t *testing.T) {
	f := newFake("timers", partitions)
	f.may = func(_ context.Context, role access.Role, _, id string) error {
		if role == access.Read && strings.HasPrefix(id, "a") {
			return nil
		}
		return fmt.Errorf("no right to %s %q", role, id)
	}
	in := start(t, f, "p0", false, withLogs(busy(t)))
	if got, _ := activity(t, in, "prefix=a"); len(got) != 150 {
		t.Errorf("%d events", len(got))
	}
	for _, q := range []string{"", "prefix=b", "id=b07", "type=fired"} {
		in.Get("/v1/topics/timers/activity?"+q).Is(403, "forbidden")
		in.Get("/v1/topics/timers/events?"+q).Is(403, "forbidden")
	}
}

// A producer may write any time into a record, also one that JSON cannot express.
func TestActivityOfOddTimes(t *testing.T) {
	l := busy(t)
	for i, ms := range []int64{-1 << 60, 1 << 60} {
		l.write(eventsTopic, api.Record{Partition: int32(i), Time: time.UnixMilli(ms), Key: []byte("odd"),
			Value: fmt.Appendf(nil, `{"type":"fired","at":%d}`, begun.UnixMilli())})
	}
	in := reading(t, l)
	if got, _ := activity(t, in, "limit=1000"); len(got) != 302 {
		t.Errorf("%d events", len(got))
	}
}

// A stream that begins far back reads the log in few parts, also if it is about one timer.
func TestPastIsReadInFewParts(t *testing.T) {
	far := make([]*api.Record, 200_000)
	for o := range far {
		far[o] = &api.Record{Offset: int64(o), Time: begun, Key: []byte("y"), Value: []byte(`{"type":"fired"}`)}
	}
	p := place(t, "timers", "x", partitions).Partition
	l := &fakeLogs{of: map[string]map[int32][]*api.Record{eventsTopic: {p: far}}}
	in := reading(t, l)
	_, others, _ := streamed(t, in, fmt.Sprintf("id=x&since=%d&follow=false", begun.UnixMilli()))
	if len(others) != 1 || l.calls > 60 {
		t.Errorf("%q after %d reads", others, l.calls)
	}
}

package api

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kafka/topics"
)

// event is one of a stream: the position behind it, its data, and of these the type and the time.
type event struct {
	id, data string
	Type     string
	At       int64
}

// told are the first n events of a stream; once it is open, meanwhile is called.
func (s *setup) told(path, last string, n int, meanwhile ...func()) (events []event) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	defer cancel()
	r := s.Prepare("GET", s.at("/events")+path, nil)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := s.HTTP.Do(r.WithContext(ctx))
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "text/event-stream" {
		s.Fatal(resp.Status, ct)
	}
	var id string
	for lines := bufio.NewScanner(resp.Body); len(events) < n && lines.Scan(); {
		for _, do := range meanwhile {
			do()
		}
		meanwhile = nil
		if text, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			id = text
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			e := event{id: id, data: data}
			_ = json.Unmarshal([]byte(data), &e)
			events = append(events, e)
		}
	}
	if len(events) < n {
		s.Fatalf("%s behind %q: %v, want %d", path, last, events, n)
	}
	return events
}

func typesOf(events []event) string {
	types := make([]string, 0, len(events))
	for _, e := range events {
		types = append(types, e.Type)
	}
	return strings.Join(types, " ")
}

// sorted is what events say.
func sorted(events []event) (data []string) {
	for _, e := range events {
		data = append(data, e.data)
	}
	slices.Sort(data)
	return data
}

// What happens to a timer is told while it happens, by streams that go on where a history, a list or another stream has
// ended, in the order of time since a moment, and in a history until retention has taken it.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := start(t, withEvents)
	live := s.told("?prefix=seen", "", 2, func() {
		s.put("other", "timer-after", "1h").Is(201, "scheduled")
		s.put("seen-1", "timer-after", "1h").Is(201, "scheduled")
		s.Call("DELETE", s.timer("seen-1"), "").Is(200, "cancelled")
	})
	if typesOf(live) != "scheduled cancelled" || !strings.Contains(live[0].data, `"id":"seen-1"`) {
		t.Errorf("%v", live)
	}

	// Behind the position of a history, and of an event.
	page := s.Get(s.timer("kept-1")+"/events").Is(200, "")
	position, _ := page.Object("log")["position"].(string)
	for range 4 {
		s.put("kept-1", "timer-after", "1h")
	}
	s.put("other-2", "timer-after", "1h").Is(201, "scheduled")
	first := s.told("?id=kept-1&position="+url.QueryEscape(position), "", 2)
	rest := s.told("?id=kept-1&position="+url.QueryEscape(position), first[1].id, 2)
	if types := typesOf(append(first, rest...)); types != "scheduled replaced replaced replaced" {
		t.Errorf("behind %s, and %s, comes %s", position, first[1].id, types)
	}
	// Of all partitions, between which there is no order, all eight events so far.
	all := s.told("?position="+url.QueryEscape("0:"+strings.Repeat("0.", partitions-1)+"0"), "", 8)
	if again := s.told("", all[0].id, 7); !slices.Equal(sorted(again), sorted(all[1:])) {
		t.Errorf("behind %v comes %v, want %v", all[0], again, all[1:])
	}
	s.sinceThen(all)
	s.history()
}

// sinceThen reads the past in the order of time, to its end, and the other way around.
func (s *setup) sinceThen(all []event) {
	s.Helper()
	at := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).UnixMilli(), 10) }
	past := s.told("?follow=false&since="+at(-time.Hour), "", len(all)+1) // and the event that says that this is all
	end := past[len(all)]
	past = past[:len(all)]
	if !slices.Equal(sorted(past), sorted(all)) || end.data != `{"olderDeleted":false}` ||
		!slices.IsSortedFunc(past, func(x, y event) int { return cmp.Compare(x.At, y.At) }) {
		s.Errorf("since an hour ago: %v, then %v, want %v", past, end, all)
	}
	if later := s.told("?follow=false&since="+at(time.Hour), "", 1); later[0] != end {
		s.Errorf("since an hour ahead: %v, want %v", later, end)
	}
	page := s.Get(s.at("/activity?type=scheduled,replaced&after="+at(-time.Hour))).Is(200, "")
	want := strings.Count(typesOf(past), "scheduled") + strings.Count(typesOf(past), "replaced")
	if page.Body["position"] != end.id || page.Body["cursor"] != nil || len(page.Items("events")) != want ||
		strings.Contains(page.Text, `"cancelled"`) {
		s.Errorf("%s, want the position %s and %d events", page.Text, end.id, want)
	}
}

// history reads what has happened to seen-1, page by page, until retention has taken it.
func (s *setup) history() {
	s.Helper()
	at := s.timer("seen-1") + "/events"
	newest := s.Get(at+"?limit=1").Is(200, "").Has(`"type":"cancelled"`)
	oldest := s.Get(at+"?cursor="+newest.Body["cursor"].(string)).Is(200, "").Has(`"type":"scheduled"`)
	if len(newest.Items("events")) != 1 || len(oldest.Items("events")) != 1 || oldest.Body["cursor"] != nil {
		s.Errorf("the newest: %s, then %s", newest.Text, oldest.Text)
	}
	log := oldest.Object("log")
	partition := int32(log["partition"].(float64))
	if log["begins"] != 0.0 || log["oldest"] == nil || log["topic"] != topics.Events(s.Requests) {
		s.Errorf("log %v", log)
	}
	var cut kadm.Offsets
	cut.Add(kadm.Offset{Topic: topics.Events(s.Requests), Partition: partition, At: int64(log["ends"].(float64))})
	if gone, err := s.Cluster.Admin(s.T).DeleteRecords(s.Context(), cut); err != nil || gone.Error() != nil {
		s.Fatal(err, gone.Error())
	}
	page := s.Get(at).Is(200, "")
	if log := page.Object("log"); len(page.Items("events")) != 0 || log["begins"] == 0.0 ||
		log["oldest"] != nil {
		s.Errorf("behind retention: %s", page.Text)
	}
	s.Get(s.at(fmt.Sprintf("/events?id=seen-1&position=%d:0", partition))).Is(410, "events-gone").Has("retention")
}

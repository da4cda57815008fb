package api

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// Dead letters are listed from the newest on, page by page, and sent again as they were or
// corrected; what they become is told.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	in, a := serve(t, rig.Config(t, c.Seeds(), requests), "")
	in.Ready(partitions, limit)
	letters := "/v1/topics/" + requests + "/dead-letters"
	if got := a.call(t, "GET", letters, "").is(t, 200, ""); got.text != `{"deadLetters":[],"position":"0:0.0.0.0"}`+
		"\n" {
		t.Error(got.text)
	}
	const n = 25
	for i := range n { // by a producer: the API does not write what is wrong
		rig.Send(t, c.Client(t), &kgo.Record{
			Topic: requests, Key: fmt.Appendf(nil, "bad-%02d", i), Value: fmt.Append(nil, "payload ", i),
			Headers: []kgo.RecordHeader{
				{Key: "timer-after", Value: []byte("soon")}, {Key: "timer-target-topic", Value: []byte(target)},
				{Key: "a", Value: []byte("1")},
			},
		})
	}
	// Their step is committed; its marker comes to the topic a moment later.
	await.Until(t, limit, "all are to be read", func() bool {
		return len(a.call(t, "GET", letters+"?limit=100", "").is(t, 200, "").body["deadLetters"].([]any)) == n
	})
	seen := map[string]map[string]any{}
	cursor, pages := "", 0
	for {
		page := a.call(t, "GET", letters+"?limit=7&cursor="+cursor, "").is(t, 200, "")
		for _, item := range page.body["deadLetters"].([]any) {
			one := item.(map[string]any)
			id := one["id"].(string)
			if seen[id] != nil {
				t.Errorf("%s twice", id)
			}
			seen[id] = one
		}
		pages++
		if cursor, _ = page.body["cursor"].(string); cursor == "" || pages > n {
			break
		}
	}
	if len(seen) != n {
		t.Fatalf("%d letters on %d pages, want %d: %v", len(seen), pages, n, slices.Sorted(maps.Keys(seen)))
	}
	one := seen["bad-07"]
	if text := fmt.Sprint(one); !strings.Contains(text, "bad-duration") || !strings.Contains(text, "payload 7") ||
		!strings.Contains(text, requests+"/") {
		t.Error(text)
	}
	again := fmt.Sprintf("%s/%.0f/%.0f/resend", letters, one["partition"], one["offset"])
	delete(one, "reviewed") // a list has that
	if whole := a.call(t, "GET", strings.TrimSuffix(again, "/resend"), "").is(t, 200, ""); !reflect.DeepEqual(
		whole.body, one) {
		t.Errorf("alone it is %s", whole.text)
	}
	a.call(t, "GET", letters+"/0/999999", "").is(t, 404, "not-found")
	a.call(t, "POST", again, "").is(t, 400, "bad-duration")
	a.call(t, "POST", again, `{"headers":[{"name":"timer-after","value":"1h"},{"name":"timer-target-topic","value":"`+
		target+`"},{"name":"a","value":"2"}]}`,
		"Content-Type", "application/json").is(t, 201, "scheduled")
	got := a.call(t, "GET", timersOf(requests)+"/bad-07", "").is(t, 200, "")
	if !strings.Contains(got.text, "payload 7") || !strings.Contains(got.text, `{"name":"a","value":"2"}`) {
		t.Error(got.text)
	}
	a.call(t, "POST", letters+"/0/999999/resend", "").is(t, 404, "not-found")
	a.call(t, "GET", "/v1/topics/"+requests+"/events", "").is(t, 409, "no-events")
}

// What happens to a timer is told while it happens.
func TestEvents(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	cfg := rig.Config(t, c.Seeds(), requests)
	cfg.Tenants = map[string]config.Policy{requests: func() config.Policy {
		p := cfg.PolicyOf(
			requests)
		p.Events = true
		return p
	}()}
	in, a := serve(t, cfg, "")
	in.Ready(partitions, limit)
	req, err := http.NewRequestWithContext(t.Context(), "GET", a.url+"/v1/topics/"+requests+"/events?prefix=seen", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := a.c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "text/event-stream" || !lines.Scan() {
		t.Fatalf("%d %s", resp.StatusCode, ct)
	}
	a.call(t, "PUT", timersOf(requests)+"/other", "v", "timer-after", "1h", "timer-target-topic", target).is(
		t, 201, "scheduled")
	a.call(t, "PUT", timersOf(requests)+"/seen-1", "v", "timer-after", "1h", "timer-target-topic", target).is(
		t, 201, "scheduled")
	a.call(t, "DELETE", timersOf(requests)+"/seen-1", "").is(t, 200, "cancelled")
	var told []string
	for len(told) < 2 && lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			told = append(told, data)
		}
	}
	if len(told) != 2 || !strings.Contains(told[0], `"type":"scheduled"`) ||
		!strings.Contains(told[1], `"type":"cancelled"`) || strings.Contains(fmt.Sprint(told), "other") ||
		!strings.Contains(told[0], `"id":"seen-1"`) {
		t.Errorf("%q, %v", told, lines.Err())
	}
	resumed(t, a, requests, target)
	historyOf(t, c, a, requests)
}

// resumed reads a history, or a stream to its end, and goes on with streams: what happened in
// between is told by them, once, in its order.
func resumed(t *testing.T, a *asked, requests, target string) {
	t.Helper()
	stream := "/v1/topics/" + requests + "/events"
	page := a.call(t, "GET", timersOf(requests)+"/kept-1/events", "").is(t, 200, "")
	position, _ := page.body["log"].(map[string]any)["position"].(string)
	for n := range 4 {
		a.call(t, "PUT", timersOf(requests)+"/kept-1", strconv.Itoa(n), "timer-after", "1h",
			"timer-target-topic", target)
	}
	a.call(t, "PUT", timersOf(requests)+"/other-2", "v", "timer-after", "1h", "timer-target-topic", target).is(
		t, 201, "scheduled")
	first := told(t, a, stream+"?id=kept-1&position="+url.QueryEscape(position), "", 2)
	rest := told(t, a, stream+"?id=kept-1&position="+url.QueryEscape(position), first[1].id, 2)
	if types := typesOf(append(first, rest...)); types != "scheduled replaced replaced replaced" {
		t.Errorf("behind %s, and %s, comes %s", position, first[1].id, types)
	}

	// Of all partitions, between which there is no order, all eight events so far.
	all := told(t, a, stream+"?position="+url.QueryEscape("0:"+strings.Repeat("0.", partitions-1)+"0"), "", 8)
	again := told(t, a, stream, all[0].id, 7)
	if got, want := dataOf(again), dataOf(all[1:]); !slices.Equal(got, want) {
		t.Errorf("behind %v comes %v, want %v", all[0], got, want)
	}
	sinceThen(t, a, requests, all)
}

// sinceThen reads the past in the order of time, to its end, and the other way around.
func sinceThen(t *testing.T, a *asked, requests string, all []event) {
	t.Helper()
	at := func(e event) int64 {
		var of struct{ At int64 }
		_ = json.Unmarshal([]byte(e.data), &of)
		return of.At
	}
	hour := strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10)
	stream := "/v1/topics/" + requests + "/events?follow=false&since="
	past := told(t, a, stream+hour, "", len(all)+1) // and the event that says that this is all
	end := past[len(all)]
	past = past[:len(all)]
	if !slices.Equal(dataOf(past), dataOf(all)) ||
		!slices.IsSortedFunc(past, func(x, y event) int { return cmp.Compare(at(x), at(y)) }) ||
		end.data != `{"olderDeleted":false}` {
		t.Errorf("since an hour ago: %v, then %v, want %v", past, end, all)
	}
	soon := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	if later := told(t, a, stream+soon, "", 1); later[0] != end {
		t.Errorf("since an hour ahead: %v, want %v", later, end)
	}
	page := a.call(t, "GET", "/v1/topics/"+requests+"/activity?type=scheduled,replaced&after="+hour, "").is(t, 200, "")
	if page.body["position"] != end.id || page.body["cursor"] != nil {
		t.Errorf("%s, want the position %s", page.text, end.id)
	}
	var got []string
	for _, e := range page.body["events"].([]any) {
		got = append(got, e.(map[string]any)["event"].(map[string]any)["type"].(string))
	}
	if want := strings.Count(typesOf(past), "scheduled") + strings.Count(typesOf(past), "replaced"); len(got) != want ||
		slices.Contains(got, "cancelled") {
		t.Errorf("%q, want %d events", got, want)
	}
}

// dataOf is what events say, sorted.
func dataOf(events []event) (data []string) {
	for _, e := range events {
		data = append(data, e.data)
	}
	slices.Sort(data)
	return data
}

type event struct{ id, data string }

// told are the first events of a stream that goes on behind an ID.
func told(t *testing.T, a *asked, at, last string, n int) (events []event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", a.url+at, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := a.c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var id string
	for lines := bufio.NewScanner(resp.Body); len(events) < n && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			id = text
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			events = append(events, event{id, data})
		}
	}
	if len(events) < n {
		t.Fatalf("%s behind %q: %d, %v", at, last, resp.StatusCode, events)
	}
	return events
}

func typesOf(events []event) string {
	types := make([]string, 0, len(events))
	for _, e := range events {
		var of struct{ Type string }
		_ = json.Unmarshal([]byte(e.data), &of)
		types = append(types, of.Type)
	}
	return strings.Join(types, " ")
}

// historyOf reads what has happened before, page by page, until retention has taken it.
func historyOf(t *testing.T, c *kafkatest.Cluster, a *asked, requests string) {
	t.Helper()
	at := timersOf(requests) + "/seen-1/events"
	page := a.call(t, "GET", at+"?limit=1", "").is(t, 200, "")
	if !strings.Contains(page.text, `"type":"cancelled"`) || strings.Contains(page.text, `"type":"scheduled"`) {
		t.Errorf("the newest: %s", page.text)
	}
	cursor, _ := page.body["cursor"].(string)
	page = a.call(t, "GET", at+"?cursor="+cursor, "").is(t, 200, "")
	if events := page.body["events"].([]any); len(events) != 1 || !strings.Contains(page.text, `"type":"scheduled"`) ||
		page.body["cursor"] != nil {
		t.Errorf("the oldest: %s", page.text)
	}
	log := page.body["log"].(map[string]any)
	partition := int32(log["partition"].(float64))
	if log["begins"] != 0.0 || log["oldest"] == nil || log["topic"] != topics.Events(requests) {
		t.Errorf("log %v", log)
	}
	adm := c.Admin(t)
	var cut kadm.Offsets
	cut.Add(kadm.Offset{Topic: topics.Events(requests), Partition: partition, At: int64(log["ends"].(float64))})
	if gone, err := adm.DeleteRecords(t.Context(), cut); err != nil || gone.Error() != nil {
		t.Fatal(err, gone.Error())
	}
	page = a.call(t, "GET", at, "").is(t, 200, "")
	if log := page.body["log"].(map[string]any); len(page.body["events"].([]any)) != 0 || log["begins"] == 0.0 ||
		log["oldest"] != nil {
		t.Errorf("behind retention: %s", page.text)
	}
	gone := a.call(t, "GET", fmt.Sprintf("/v1/topics/%s/events?id=seen-1&position=%d:0", requests, partition), "").is(
		t, 410, "events-gone")
	if !strings.Contains(gone.text, "retention") {
		t.Error(gone.text)
	}
}

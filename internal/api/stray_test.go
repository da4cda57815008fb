package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
)

// A timer may lie on another partition than the one that its ID belongs on. It is found there by
// its ID, whoever owns the partition, requests that steer it go there, and the answer says so.
// For a timer where it belongs nothing is said.
func TestTimersOffTheirPartition(t *testing.T) {
	t.Parallel()
	const id, path = "a1", "/v1/topics/timers/timers/a1"
	f := newFake("timers", partitions)
	home := timer.TopicPartition{Topic: "timers", Partition: intake.Murmur2Partition([]byte(id), partitions)}
	other := timer.TopicPartition{Topic: "timers", Partition: (home.Partition + 1) % partitions}
	a := start(t, f, "p0", true)
	start(t, f, "p1", true)
	f.move(other, "p1")
	stray := func() {
		f.set(func() {
			f.parts[other].take(&route.Request{ID: []byte(id), Value: []byte("v"), Headers: []timer.Header{
				{Key: "timer-after", Value: []byte("1h")}, {Key: "timer-target-topic", Value: []byte("orders")},
			}})
		})
	}
	says := func(a answer, words ...string) {
		t.Helper()
		note, _ := a.body["note"].(string)
		for _, w := range append(words, "partition") {
			if !strings.Contains(note, w) {
				t.Errorf("%s: the note lacks %q", a.text, w)
			}
		}
	}
	stray()
	says(a.call(t, "GET", path, "").is(t, 200, ""), "another partitioner")
	says(a.call(t, "POST", path+"/pause", "").is(t, 200, ""), "another partitioner")
	says(a.call(t, "PUT", path, "v", "timer-after", "1h", "timer-target-topic", "orders").is(t, 201, ""),
		"which this one does not replace")
	if is := a.call(t, "GET", path, "").is(t, 200, ""); is.body["note"] != nil {
		t.Errorf("one that lies where it belongs: %s", is.text)
	}
	if is := a.call(t, "DELETE", path, "").is(t, 200, ""); is.body["note"] != nil || is.body["partition"] != float64(
		home.Partition) {
		t.Errorf("the one that lies where it belongs: %s", is.text)
	}
	is := a.call(t, "DELETE", path, "").is(t, 200, "")
	says(is, "another partitioner")
	if is.body["outcome"] != "cancelled" || is.body["partition"] != float64(other.Partition) {
		t.Errorf("cancelled: %s", is.text)
	}
	a.call(t, "DELETE", path, "").is(t, 404, "not-found")
	// For a while the router believes that there are no more.
	stray()
	began := time.Now()
	for a.call(t, "GET", path, "").status != 200 {
		if time.Since(began) > 30*time.Second {
			t.Fatal("a timer off its partition is not found any more")
		}
		<-time.After(100 * time.Millisecond)
	}
}

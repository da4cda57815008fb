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
	const id, path = "a1", allTimers + "/a1"
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
		note, _ := a.Body["note"].(string)
		for _, w := range append(words, "partition") {
			if !strings.Contains(note, w) {
				t.Errorf("%s: the note lacks %q", a.Text, w)
			}
		}
	}
	stray()
	says(a.Get(path).Is(200, ""), "another partitioner")
	says(a.Call("POST", path+"/pause", "").Is(200, ""), "another partitioner")
	says(a.Call("PUT", path, "v", "timer-after", "1h", "timer-target-topic", "orders").Is(201, ""),
		"which this one does not replace")
	if is := a.Get(path).Is(200, ""); is.Body["note"] != nil {
		t.Errorf("one that lies where it belongs: %s", is.Text)
	}
	if is := a.Call("DELETE", path, "").Is(200, ""); is.Body["note"] != nil ||
		is.Body["partition"] != float64(home.Partition) {
		t.Errorf("the one that lies where it belongs: %s", is.Text)
	}
	is := a.Call("DELETE", path, "").Is(200, "")
	says(is, "another partitioner")
	if is.Body["outcome"] != "cancelled" || is.Body["partition"] != float64(other.Partition) {
		t.Errorf("cancelled: %s", is.Text)
	}
	a.Call("DELETE", path, "").Is(404, "not-found")
	// For a while the router believes that there are no more.
	stray()
	began := time.Now()
	for a.Get(path).Status != 200 {
		if time.Since(began) > 30*time.Second {
			t.Fatal("a timer off its partition is not found any more")
		}
		<-time.After(100 * time.Millisecond)
	}
}

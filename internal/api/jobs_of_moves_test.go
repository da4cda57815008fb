package api_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// requestEnds knows where the request log of a fake ends.
type requestEnds struct {
	emptyLogs
	f *fake
}

func (r requestEnds) Bounds(context.Context, string) (map[int32][2]int64, error) {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	bounds := make(map[int32][2]int64)
	for at, p := range r.f.parts {
		bounds[at.Partition] = [2]int64{0, p.next}
	}
	return bounds, nil
}

// A move that is wrong starts no job. A timer that cannot be moved so far fails, with the reason, and nothing is
// written for it.
func TestJobsOfMoves(t *testing.T) {
	in, f := faked(t)
	in.put("a", "").Is(201, "")
	in.put("b", "").Is(201, "")
	const move = allTimers + "/move?all=true"
	for _, wrong := range []struct{ query, reason, words string }{
		{"", "bad-request", "either by"}, {"&by=1h&to=1800000000000", "bad-request", "either by"},
		{"&by=soon", "bad-request", "by is"}, {"&by=--1h", "bad-request", "by is"}, {"&by=-", "bad-request", "by is"},
		{"&by=0s", "bad-request", "moves nothing"}, {"&to=1800000000", "bad-request", "seconds"},
		{"&to=tomorrow", "bad-request", "RFC 3339"},
		{"&to=9000-01-01T00:00:00Z", "beyond-horizon", ""},
		{"&by=1h&unchanged-since=x", "bad-request", "position of a job"},
		{"&by=1h&unchanged-since=0:1", "bad-request", "position of a job"}, // of a topic of one partition
		{"&by=1h&unchanged-since=1:1.1.1.1", "bad-request", "position of a job"},
		{"&by=1h&dry-run=true&unchanged-since=0:1.1.1.1", "bad-request", "dry-run"},
		{"&by=1h&rate=0", "bad-request", "rate"},
	} {
		in.Call("POST", move+wrong.query, "").Is(400, wrong.reason).Has(wrong.words)
	}
	in.Call("POST", allTimers+"/move?by=1h", "").Is(400, "bad-request").Has("all=true")
	in.Call("POST", move+"&by=0s&dry-run=true", "").Is(200, "").Has(`"count":2`)
	in.Call("POST", allTimers+"/cancel?all=true&unchanged-since=0:1", "").Is(400, "bad-request")

	requests := func() (n int64) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, p := range f.parts {
			n += p.next
		}
		return n
	}
	before := requests()
	job := ended(t, in, in.Call("POST", move+"&by=2000000h", "").Is(202, "")) // into the year 2254
	if job["state"] != "done" || job["failed"] != 2.0 || job["seen"] != 2.0 || job["failure"] == nil {
		t.Errorf("%v", job)
	}
	if n := requests(); n != before {
		t.Errorf("%d requests were written that their owner rejects", n-before)
	}
}

// A job that is stopped in the middle, or whose instance ends, is continued by another one: each timer is moved once.
func TestAMoveIsContinued(t *testing.T) {
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false, withLogs(requestEnds{f: f}))
	const n = 200
	for i := range n {
		in.put(fmt.Sprintf("%03d", i), "").Is(201, "")
	}
	before := make(map[string]int64)
	for _, tm := range f.all() {
		before[string(tm.ID)] = tm.Due
	}
	const move = allTimers + "/move?all=true&by=1h"
	first := in.Call("POST", move+"&rate=100", "").Is(202, "")
	at, position := first.Header.Get("Location"), fmt.Sprint(first.Object("job")["position"])
	await.Until(t, 20*time.Second, "some are moved", func() bool { return in.Get(at).Body["changed"].(float64) > 0 })
	in.Call("DELETE", at, "").Is(200, "")
	stopped := ended(t, in, first)
	in.put("new", "").Is(201, "") // scheduled since
	rest := ended(t, in, in.Call("POST", move+"&unchanged-since="+position, "").Is(202, ""))
	if stopped["state"] != "stopped" || stopped["changed"].(float64)+rest["changed"].(float64) != n ||
		rest["spared"] != stopped["changed"].(float64)+1 {
		t.Errorf("first %v, then %v", stopped, rest)
	}
	// A third job may follow the position of the second, which is that of the first.
	third := ended(t, in, in.Call("POST", move+"&unchanged-since="+fmt.Sprint(rest["position"]), "").Is(202, ""))
	if third["changed"] != 0.0 || third["spared"] != float64(n+1) || third["position"] != position {
		t.Errorf("third %v", third)
	}
	for _, tm := range f.all() {
		if due, ok := before[string(tm.ID)]; ok && tm.Due != due+time.Hour.Milliseconds() {
			t.Errorf("%s is moved by %d ms", tm.ID, tm.Due-due)
		}
	}
}

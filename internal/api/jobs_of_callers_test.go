package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// A job steers the timers that its filter chooses and no others.
func TestJobs(t *testing.T) {
	in, f := faked(t)
	for i := range 100 {
		in.put(fmt.Sprintf("%d-%d", i%2, i), "").Is(201, "")
	}
	dry := in.Call("POST", allTimers+"/cancel?prefix=1-&dry-run=true", "").Is(200, "")
	if dry.Object("matching")["count"] != 50.0 || len(f.all()) != 100 {
		t.Fatal(dry.Text)
	}
	run := func(action string) map[string]any {
		t.Helper()
		a := in.Call("POST", allTimers+"/"+action+"?prefix=1-", "").Is(202, "")
		return ended(t, in, a)
	}
	if j := run("pause"); j["state"] != "done" || j["changed"] != 50.0 {
		t.Error(j)
	}
	if j := run("pause"); j["spared"] != 50.0 {
		t.Error(j)
	}
	if j := run("cancel"); j["changed"] != 50.0 || j["failed"] != 0.0 {
		t.Error(j)
	}
	if n := len(f.all()); n != 50 {
		t.Errorf("%d timers are left", n)
	}
	in.Call("POST", allTimers+"/cancel?dry-run=true", "").Is(200, "")
	// A job that waits for a partition can be stopped.
	f.move(place(t, "timers", "0-0", partitions), "")
	a := in.Call("POST", allTimers+"/cancel?prefix=0-", "").Is(202, "")
	at := a.Header.Get("Location")
	in.Call("DELETE", at, "").Is(200, "")
	await.Until(t, 20*time.Second, "the job is stopped",
		func() bool { return in.Get(at).Is(200, "").Body["state"] == "stopped" })
}

// At a time, a caller has four jobs, all callers have 16 jobs and 32 streams of events, and a POST
// has a limit: docs/LIMITS.md. Other callers have their share of each.
func TestAtMost(t *testing.T) {
	in, f := faked(t)
	f.move(place(t, "timers", "a", partitions), "") // jobs wait for it
	const job = allTimers + "/cancel?all=true"
	first := in.Call("POST", job, "").Is(202, "").Header.Get("Location")
	for range 3 {
		in.Call("POST", job, "").Is(202, "")
	}
	in.Call("POST", job, "").Is(429, "too-many-jobs")
	in.Call("DELETE", first, "").Is(200, "")
	await.Until(t, 20*time.Second, "a job that was stopped gives its place up",
		func() bool { return in.Call("POST", job, "").Status == 202 })
	for _, caller := range []string{"a", "b", "c"} {
		for range 4 {
			in.Call("POST", job, "", "Test-Caller", caller).Is(202, "")
		}
	}
	in.Call("POST", job, "", "Test-Caller", "d").Is(429, "too-many-jobs")

	const events = "/v1/topics/timers/events"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	streams := func(n int, caller string) {
		t.Helper()
		for range n {
			resp, err := in.HTTP.Do(in.Prepare("GET", events, nil, "Test-Caller", caller).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { resp.Body.Close() })
			if resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
		}
		in.Get(events, "Test-Caller", caller).Is(429, "too-many-streams")
	}
	streams(32, "")
	streams(16, "other") // each one ends one of the first caller's
	cancel()

	const post = allTimers
	in.Call("POST", post, `{"timers":[`+strings.Repeat(`{"id":"a"},`, 1000)+`{"id":"a"}]}`, "Content-Type",
		"application/json").Is(400, "bad-request")
	in.Call("POST", post, `{"timers":[]}`+strings.Repeat(" ", 8<<20), "Content-Type", "application/json").Is(413, "too-large")
	in.Get(allLetters+"?limit=101").Is(400, "bad-request")
}

// A job writes no more requests a second than it was told to, however large its pages are.
func TestRateOfAJob(t *testing.T) {
	in, f := faked(t)
	var timers []string
	for i := range 40 {
		timers = append(timers, fmt.Sprintf(`{"id":"rate-%d","after":"1h","target":{"topic":"orders"}}`, i))
	}
	in.post(`{"timers":[`+strings.Join(timers, ",")+`]}`).Is(200, "")
	const perSecond = 30
	began := time.Now()
	job := in.Call("POST", fmt.Sprint(allTimers+"/cancel?all=true&rate=", perSecond), "").Is(202, "")
	for len(f.all()) > 0 {
		gone := 40 - len(f.all())
		if may := 3 + int(time.Since(began).Seconds()*perSecond) + 1; gone > may {
			t.Fatalf("%d are cancelled after %v, want %d at most", gone, time.Since(began), may)
		}
		if time.Since(began) > time.Minute {
			t.Fatal(in.Get(job.Header.Get("Location")).Text)
		}
		await.For(t, time.Millisecond)
	}
	if took, want := time.Since(began), time.Second*(40-3)/perSecond; took < want {
		t.Errorf("it has taken %v, want %v at least", took, want)
	}
}

// Jobs by filter, and stopping them, need a right, because they affect the work of others.
func TestJobsNeedAdmin(t *testing.T) {
	in, f := faked(t)
	cancel := allTimers + "/cancel?prefix=a-"
	var as atomic.Int32 // of the caller; a job checks it too
	f.may = func(_ context.Context, role access.Role, topic, id string) error {
		rank := map[access.Role]int{access.Read: 1, access.Write: 2, access.Admin: 3}
		if rank[access.Role(as.Load())] < rank[role] || topic != "timers" || !strings.HasPrefix(id, "a-") {
			return fmt.Errorf("no right to %s %s", role, id)
		}
		return nil
	}
	as.Store(int32(access.Write))
	in.Call("POST", cancel, "").Is(403, "forbidden")
	in.Call("POST", cancel+"&dry-run=true", "").Is(200, "")
	as.Store(int32(access.Admin))
	in.Call("POST", allTimers+"/cancel?all=true", "").Is(403, "forbidden")
	at := in.Call("POST", cancel, "").Is(202, "").Header.Get("Location")
	as.Store(int32(access.Write))
	in.Get(at).Is(200, "")
	in.Call("DELETE", at, "").Is(403, "forbidden")
}

// A job can be found and stopped from any instance, and any instance lists all jobs, for callers
// that may see them.
func TestJobsOfAllInstances(t *testing.T) {
	f := newFake("timers", partitions)
	a, b := start(t, f, "p0", true), start(t, f, "p1", true)
	alone := start(t, f, "p2", false)
	f.move(timer.TopicPartition{Topic: "timers", Partition: 1}, "p1")
	f.move(timer.TopicPartition{Topic: "timers", Partition: 2}, "") // a job waits for it
	const from = allTimers + "/cancel?prefix="
	at := a.Call("POST", from+"a-", "").Is(202, "").Header.Get("Location")
	other := b.Call("POST", from+"b-", "").Is(202, "").Header.Get("Location")
	for _, in := range []*instance{a, b} {
		in.Get(at).Is(200, "")
		in.Get(other).Is(200, "")
		list := in.Get("/v1/jobs").Is(200, "")
		if all := list.Body["jobs"].([]any); len(all) != 2 || all[0].(map[string]any)["prefix"] != "b-" ||
			list.Body["unasked"] != nil {
			t.Errorf("jobs %s", list.Text)
		}
	}
	elsewhere := alone.Get(at).Is(421, "elsewhere")
	if owner, _ := elsewhere.Body["owner"].(string); owner != a.URL {
		t.Errorf("owner %q of %s, want %q", owner, elsewhere.Text, a.URL)
	}
	if list := alone.Get("/v1/jobs").Is(200, ""); len(list.Items("jobs")) != 0 ||
		len(list.Items("unasked")) != 2 {
		t.Errorf("jobs of one that asks nobody: %s", list.Text)
	}
	f.set(func() {
		f.may = func(_ context.Context, _ access.Role, _, id string) error {
			if strings.HasPrefix(id, "b-") {
				return nil
			}
			return errors.New("no right")
		}
	})
	b.Get(at).Is(403, "forbidden")
	b.Call("DELETE", at, "").Is(403, "forbidden")
	if list := a.Get("/v1/jobs").Is(200, ""); len(list.Items("jobs")) != 1 {
		t.Errorf("jobs of who may see one: %s", list.Text)
	}
	f.set(func() { f.may = nil })
	b.Call("DELETE", at, "").Is(200, "")
	await.Until(t, time.Minute, "a job is stopped by another instance",
		func() bool { return b.Get(at).Body["state"] == "stopped" })
	for _, id := range []string{"none", "none-p0", "none-p1", "none-p9"} {
		a.Get("/v1/jobs/"+id).Is(404, "not-found")
	}
	f.set(func() { f.urls["p0"] = "http://127.0.0.1:1" }) // it may be alive
	c := start(t, f, "p3", true)                          // it has not looked up the other instances yet
	c.Get(at).Is(503, "moving")
}

// A job stops when the right that it was started with is taken away. Timers that it has not reached
// by then are not changed.
func TestJobEndsWithItsRight(t *testing.T) {
	in, f := faked(t)
	const n = 900 // more than a job steers at a time
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"id":"a-%d","after":"1h","target":{"topic":"orders"}}`, i))
	}
	in.post(`{"timers":[`+strings.Join(all, ",")+`]}`).Is(200, "")
	f.set(func() {
		f.may = func(_ context.Context, role access.Role, _, _ string) error {
			if role == access.Admin && len(f.all()) < n { // it has begun
				return errors.New("no right any more")
			}
			return nil
		}
	})
	job := ended(t, in, in.Call("POST", allTimers+"/cancel?prefix=a-", ""))
	if text := fmt.Sprint(job); job["state"] != "stopped" || !strings.Contains(text, "taken away") ||
		len(f.all()) == 0 || len(f.all()) == n {
		t.Errorf("%s, and %d of %d timers are left", text, len(f.all()), n)
	}
}

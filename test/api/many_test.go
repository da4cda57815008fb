package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// A thousand timers in one call, listed page by page while the other instance answers for half
// of them; a job cancels those of a prefix and spares what is scheduled again meanwhile.
func TestManyTimers(t *testing.T) {
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	key := keyFile(t)
	one, _, a, b := two(t, c, requests, key)
	from := timersOf(requests)
	const timers = 1000
	var items []string
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range timers {
		items = append(items, fmt.Sprintf(`{"id":"%c-%04d","value":"v","at":"%d","target":{"topic":"%s"}}`, 'a'+i%2, i,
			due+int64(i%10), target))
	}
	await.Until(t, limit, "all are scheduled", func() bool {
		got := a.call(t, "POST", from, `{"timers":[`+strings.Join(items, ",")+`]}`, "Content-Type",
			"application/json").is(t, 200, "")
		return strings.Count(got.text, `"status":201`)+strings.Count(got.text, `"status":200`) >= timers &&
			!strings.Contains(got.text, `"problem"`)
	})
	for _, order := range []string{"due", "id"} {
		seen, cursor := map[string]bool{}, ""
		for i := 0; i == 0 || cursor != ""; i++ {
			page := []*asked{a, b}[i%2].call(
				t, "GET", fmt.Sprintf("%s?order=%s&limit=77&cursor=%s", from, order, cursor), "").is(t, 200, "")
			for _, item := range page.body["timers"].([]any) {
				id := item.(map[string]any)["id"].(string)
				if seen[id] {
					t.Fatalf("%s twice", id)
				}
				seen[id] = true
			}
			cursor, _ = page.body["cursor"].(string)
		}
		if len(seen) != timers {
			t.Errorf("by %s: %d timers, want %d", order, len(seen), timers)
		}
	}
	job := b.call(t, "POST", from+"/cancel?prefix=a-&rate=1000", "").is(t, 202, "")
	again := a.call(t, "PUT", from+"/a-0998", "again", "timer-after", "2h", "timer-target-topic", target)
	await.Until(t, limit, "the job is done", func() bool {
		return b.call(t, "GET", job.header.Get("Location"), "").body["state"] != "running"
	})
	done := b.call(t, "GET", job.header.Get("Location"), "").is(t, 200, "").body
	t.Logf("scheduled again: %d; job %v", again.status, done)
	if done["state"] != "done" || done["failed"] != 0.0 || done["changed"].(float64)+
		done["spared"].(float64) < timers/2-1 {
		t.Errorf("job %v", done)
	}
	left := a.call(t, "GET", from+"/count", "").is(t, 200, "").body["count"].(float64)
	// one more if it was cancelled before it came
	if want := float64(timers) - done["changed"].(float64); left != want && left != want+1 {
		t.Errorf("%v timers are left; job %v", left, done)
	}
	if n := one.Metric("waterclock_api_calls_total", "status", "200"); n == 0 {
		t.Error("no call was counted")
	}
	if n := one.Metric("waterclock_api_call_seconds"); n == 0 {
		t.Error("the time of no call was taken")
	}
	a.call(t, "GET", "/v1/topics", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
		"document").is(t, 200, "")
	a.call(t, "GET", "/v1/topics", "", "Sec-Fetch-Site", "cross-site", "Origin", "https://elsewhere.example").is(
		t, 403, "cross-origin")
	a.call(t, "POST", from+"/a/trigger", "", "Sec-Fetch-Site", "cross-site").is(t, 403, "cross-origin")
	if n := one.Metric("waterclock_api_refused_total", "reason", "cross-origin"); n != 2 {
		t.Errorf("%v calls of other sites were counted, want 2", n)
	}
}

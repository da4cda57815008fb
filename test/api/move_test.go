package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// An owner is killed (SIGKILL). Asked of the other, who has owned nothing of it, each call is
// answered as before or with 503 and when to ask again: never that a timer is not there, and
// what was said to be scheduled is there in the end.
func TestTheOwnerIsKilled(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	key := keyFile(t)
	start := func() (*rig.Process, *asked) {
		addr := rig.FreeAddr(t)
		p := rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir(), "--api", addr, "--api-key-file", key)...)
		return p, &asked{client(t), "http://" + addr}
	}
	one, a := start()
	one.Ready(partitions, limit)
	other, b := start()
	share(t, &one.Web, &other.Web)
	from := timersOf(requests)
	const timers = 50
	await.Until(t, limit, "timers are scheduled", func() bool {
		for i := range timers {
			if got := a.call(t, "PUT", fmt.Sprintf("%s/before-%d", from, i), "v", "timer-after", "1h",
				"timer-target-topic", target); got.status != 200 && got.status != 201 {
				return false
			}
		}
		return true
	})

	one.Kill()
	killed := time.Now()
	scheduled := map[string]bool{}
	refused, worst := 0, time.Duration(0)
	for round := 0; ; round++ {
		moving := 0
		for i := range timers {
			got := b.call(t, "GET", fmt.Sprintf("%s/before-%d", from, i), "")
			switch {
			case got.status == http.StatusServiceUnavailable && got.header.Get("Retry-After") != "":
				moving++
			case got.status != 200:
				t.Fatalf("a timer that is pending: %d %s %v", got.status, got.text, got.err)
			}
		}
		id := fmt.Sprintf("/after-%d", round)
		switch got := b.call(t, "PUT", from+id, "v", "timer-after", "1h", "timer-target-topic", target); got.status {
		case 201, 202:
			scheduled[id] = true
		case 503:
		default:
			t.Fatalf("scheduled: %d %s %v", got.status, got.text, got.err)
		}
		if refused += moving; moving > 0 {
			worst = time.Since(killed)
		} else if round > 3 && other.Metric("waterclock_partitions", "state", "live") == partitions {
			break
		}
		if time.Since(killed) > limit {
			t.Fatalf("%d of %d timers cannot be asked for", moving, timers)
		}
	}
	t.Logf("%d calls answered 503, the last one %s after the kill", refused, worst.Round(time.Millisecond))
	if refused == 0 {
		t.Error("no call was answered 503: nothing was seen of the move")
	}
	for id := range scheduled {
		b.call(t, "GET", from+id, "").is(t, 200, "")
	}
	if n := b.call(t, "GET", from+"/count", "").is(t, 200, "").body["count"].(float64); int(n) < timers+len(scheduled) {
		t.Errorf("%v timers, want %d and %d", n, timers, len(scheduled))
	}
}

// Without a key nothing is forwarded: who is asked names who is to be asked.
func TestWithoutAKey(t *testing.T) {
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	_, _, a, b := two(t, c, requests, "")
	elsewhere := 0
	for i := range 20 {
		path := fmt.Sprintf("%s/id-%d", timersOf(requests), i)
		got := a.call(t, "GET", path, "")
		if got.status == 404 {
			b.call(t, "GET", path, "").is(t, 421, "elsewhere")
			continue
		}
		elsewhere++
		if got.is(t, 421, "elsewhere"); got.body["owner"] != b.url {
			t.Errorf("%s, the other is %s", got.text, b.url)
		}
		b.call(t, "GET", path, "").is(t, 404, "not-found")
	}
	if elsewhere == 0 {
		t.Error("all timers belong to one instance")
	}
	// What is only written goes to Kafka from anywhere.
	for i := range 4 {
		a.call(t, "DELETE", fmt.Sprintf("%s/id-%d?wait=written", timersOf(requests), i), "").is(t, 202, "written")
	}
}

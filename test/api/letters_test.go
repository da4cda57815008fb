package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// Dead letters of a request topic and of a fixed-delay topic are counted by reason as their logs have
// them. A job sends none of them again that would only become a new one.
func TestManyDeadLetters(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	delayed := c.CreateTopic(t, 2, nil, kafkatest.Topic(t)+"-delayed")
	cfg := rig.Config(t, c.Seeds(), requests)
	cfg.Delay = []config.DelayTopic{{Topic: delayed, Delay: time.Second, Target: target}}
	in, a := serve(t, cfg, "")
	in.Ready(partitions+2, limit)
	const n = 30
	cl := c.Client(t)
	for i := range n {
		cron, reason := "61 * * * *", "bad-cron"
		if i%3 == 0 {
			cron, reason = "0 0 30 2 *", "cron-never-due"
		}
		id := fmt.Sprintf("bad-%02d", i)
		a.call(t, "PUT", timersOf(requests)+"/"+id, "v", "timer-cron", cron, "timer-target-topic", target).is(t, 400,
			reason)
		rig.Send(t, cl, &kgo.Record{Topic: requests, Key: []byte(id), Value: []byte("v"), Headers: []kgo.RecordHeader{
			{Key: "timer-cron", Value: []byte(cron)}, {Key: "timer-target-topic", Value: []byte(target)},
		}})
	}
	for i := range n {
		r := &kgo.Record{Topic: delayed, Value: fmt.Appendf(nil, "%d", i),
			Headers: []kgo.RecordHeader{{Key: "timer-at", Value: []byte("2026-11-22T09:00:00Z")}}}
		rig.Send(t, cl, r)
	}
	counted := func(topic string, want int, reasons map[string]float64) {
		t.Helper()
		await.Until(t, limit, fmt.Sprintf("%d are counted", want), func() bool {
			one := a.call(t, "GET", "/v1/dead-letters?topic="+topic, "").is(
				t, 200, "").body["topics"].([]any)[0].(map[string]any)
			for _, r := range one["reasons"].([]any) {
				r := r.(map[string]any)
				if r["lastDay"] != reasons[r["reason"].(string)] {
					return false
				}
			}
			return one["exact"] == true && one["lastHour"] == float64(want) &&
				len(one["reasons"].([]any)) == len(reasons)
		})
	}
	counted(requests, n, map[string]float64{"bad-cron": 20, "cron-never-due": 10})
	counted(delayed, n, map[string]float64{"no-effect": n})
	job := func(topic, query string) map[string]any {
		t.Helper()
		started := a.call(t, "POST", "/v1/topics/"+topic+"/dead-letters/resend?"+query, "").is(t, 202, "")
		var job map[string]any
		await.Until(t, limit, "the job ends", func() bool {
			job = a.call(t, "GET", started.header.Get("Location"), "").is(t, 200, "").body
			return job["state"] != "running"
		})
		return job
	}
	preview := a.call(t, "POST", "/v1/topics/"+requests+"/dead-letters/resend?dry-run=true&reason=bad-cron", "").is(
		t, 200, "")
	if m := preview.body["letters"].(map[string]any); m["count"] != 20.0 || m["exact"] != true {
		t.Error(preview.text)
	}
	if j := job(requests, "reason=bad-cron"); j["state"] != "done" || j["seen"] != 20.0 || j["failed"] != 20.0 {
		t.Error(j)
	}
	counted(requests, n, map[string]float64{"bad-cron": 20, "cron-never-due": 10})
	if j := job(delayed, "all=true"); j["state"] != "done" || j["failed"] != float64(n) {
		t.Error(j)
	}
	counted(delayed, n, map[string]float64{"no-effect": n})
}

// Of several letters of an ID the newest wins, on whichever partitions of the topic of dead letters they are: without
// replace, where the first that is sent counts, and with it, where the last one does.
func TestTheNewestLetterOfAnIDWins(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	in, a := serve(t, rig.Config(t, c.Seeds(), requests), "")
	in.Ready(partitions, limit)
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	const ids = 8
	written := time.Now().Add(-time.Minute)
	for round := range partitions { // each ID has a letter on each partition, the newest one on another for each
		for id := range ids {
			partition := int32((round + id) % partitions)
			written = written.Add(10 * time.Millisecond)
			r := &kgo.Record{
				Topic: requests + ".waterclock.dead-letters", Partition: partition, Timestamp: written,
				Key: fmt.Append(nil, "id-", id), Value: fmt.Append(nil, "round ", round),
				Headers: []kgo.RecordHeader{
					{Key: "timer-after", Value: []byte("1h")}, {Key: "timer-target-topic", Value: []byte(target)},
					{Key: "waterclock-reason", Value: []byte("target-not-allowed")},
					{Key: "waterclock-source", Value: fmt.Appendf(nil, "%s/%d/%d", requests, partition, round*ids+id)},
				},
			}
			if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	newest := fmt.Sprint("round ", partitions-1)
	for _, replace := range []string{"false", "true"} {
		path := "/v1/topics/" + requests + "/dead-letters/resend?all=true&replace=" + replace
		started := a.call(t, "POST", path, "").is(t, 202, "")
		var job map[string]any
		await.Until(t, limit, "the job ends", func() bool {
			job = a.call(t, "GET", started.header.Get("Location"), "").is(t, 200, "").body
			return job["state"] != "running"
		})
		if job["state"] != "done" || job["seen"] != float64(ids*partitions) || job["failed"] != 0.0 {
			t.Errorf("replace=%s: %v", replace, job)
		}
		for id := range ids {
			one := a.call(t, "GET", fmt.Sprintf("%s/id-%d", timersOf(requests), id), "").is(t, 200, "")
			if got := one.body["payload"].(map[string]any)["text"]; got != newest {
				t.Errorf("replace=%s: of ID %d the letter of %v has won, want %s", replace, id, got, newest)
			}
			a.call(t, "DELETE", fmt.Sprintf("%s/id-%d", timersOf(requests), id), "").is(t, 200, "cancelled")
		}
	}
}

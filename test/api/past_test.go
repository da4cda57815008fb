package api

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// What was due before a request was written was missed, whatever was running: an instance that has run for long, and
// one that is started when the requests are in the log, fire the same.
func TestDueBeforeTheRequestWasWritten(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	for _, running := range []bool{true, false} {
		name := fmt.Sprintf("running-%v", running)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := c.CreateTopic(t, partitions, nil)
			target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
			fired := kafkatest.Collect(t, c, target)
			var a *asked
			start := func() {
				in, asked := serve(t, rig.Config(t, c.Seeds(), requests), "")
				in.Ready(partitions, limit)
				a = asked
			}
			if running { // for longer ago than the last occurrence
				start()
				ready := time.Now()
				await.Until(t, limit, "it has run for a while", func() bool {
					return time.Since(ready) > 2*time.Second
				})
			}
			// Three occurrences, an hour apart: the last one was a second ago, or comes in an hour.
			now := time.Now()
			cl := c.Client(t)
			schedule := func(id string, first time.Duration, headers ...string) {
				t.Helper()
				r := &kgo.Record{Topic: requests, Key: []byte(id), Value: []byte("v"), Timestamp: now}
				at := strconv.FormatInt(now.Add(first).UnixMilli(), 10)
				headers = append(headers, "timer-every", "1h", "timer-at", at, "timer-count", "3")
				headers = append(headers, "timer-target-topic", target)
				for i := 0; i < len(headers); i += 2 {
					r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
				}
				if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			const over, left = -2*time.Hour - time.Second, -time.Hour - time.Second
			for _, policy := range []string{"all", "latest", "none"} {
				schedule(policy+"-over", over, "timer-catch-up", policy, "timer-remember", "1h")
				schedule(policy+"-left", left, "timer-catch-up", policy)
			}
			if !running {
				start()
			}
			put := func(id string, headers ...string) answer {
				t.Helper()
				headers = append(headers, "timer-target-topic", target)
				return a.call(t, "PUT", timersOf(requests)+"/"+id, "v", headers...)
			}
			put("last", "timer-after", "500ms").is(t, 201, "scheduled")
			var got []string
			for _, r := range fired.WaitFor(8, limit) {
				got = append(got, string(r.Key)+"/"+header(r.Record, "waterclock-occurrence"))
			}
			slices.Sort(got)
			want := []string{
				"all-left/1", "all-left/2", "all-over/1", "all-over/2", "all-over/3", "last/1",
				"latest-left/2", "latest-over/3",
			}
			if !slices.Equal(got, want) {
				kafkatest.Inexact(t, "%v have fired, want %v", got, want)
			}
			for _, policy := range []string{"all", "latest", "none"} {
				one := a.call(t, "GET", timersOf(requests)+"/"+policy+"-left", "").is(t, 200, "")
				due := float64(now.Add(left + 2*time.Hour).UnixMilli())
				if one.body["occurrence"] != 3.0 || one.body["dueMillis"] != due {
					t.Errorf("%s goes on as %s", policy, one.text)
				}
				a.call(t, "GET", timersOf(requests)+"/"+policy+"-over", "").is(t, 404, "not-found")
				again := put(policy+"-over", "timer-after", "1h", "If-None-Match", "*").is(t, 412, "condition-not-met")
				if state := again.body["pending"].(map[string]any)["state"]; state != "remembered" {
					t.Errorf("%s: it is %v", policy, state)
				}
			}
		})
	}
}

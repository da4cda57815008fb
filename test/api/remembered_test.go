package api

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// remembering is an instance, a topic of requests and a target.
type remembering struct {
	*asked
	c                *kafkatest.Cluster
	requests, target string
	fired            *kafkatest.Collector
}

func remembers(t *testing.T) *remembering {
	t.Parallel()
	c := kafkatest.Shared(t)
	r := &remembering{c: c, requests: c.CreateTopic(t, partitions, nil)}
	r.target = c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	r.fired = kafkatest.Collect(t, c, r.target)
	in, a := serve(t, rig.Config(t, c.Seeds(), r.requests), "")
	in.Ready(partitions, limit)
	r.asked = a
	return r
}

// put schedules a timer whose ID is remembered for an hour.
func (r *remembering) put(t *testing.T, id string, headers ...string) answer {
	t.Helper()
	headers = append(headers, "timer-target-topic", r.target, "timer-remember", "1h")
	return r.call(t, "PUT", timersOf(r.requests)+"/"+id, id, headers...)
}

func (r *remembering) steer(t *testing.T, id, how string, headers ...string) answer {
	t.Helper()
	return r.call(t, "POST", timersOf(r.requests)+"/"+id+"/"+how, "", headers...)
}

// ended waits until an ID is remembered.
func (r *remembering) ended(t *testing.T, id string) {
	t.Helper()
	await.Until(t, limit, id+" is remembered", func() bool {
		page := r.call(t, "GET", timersOf(r.requests)+"?state=remembered&prefix="+id, "")
		return page.status == 200 && strings.Contains(page.text, `"`+id+`"`)
	})
}

// A timer that has fired and is remembered is not pending: requests that steer find nothing.
func TestSteeringARememberedTimer(t *testing.T) {
	r := remembers(t)
	r.put(t, "a", "timer-after", "100ms").is(t, 201, "scheduled")
	r.ended(t, "a")
	for _, how := range []string{"trigger", "pause", "resume"} {
		got := r.steer(t, "a", how).is(t, 404, "not-found")
		if at, _ := got.body["request"].(string); !strings.HasPrefix(at, r.requests+"/") {
			t.Errorf("%s: the request is not named: %s", how, got.text)
		}
		r.steer(t, "a", how, "If-Match", "*").is(t, 412, "condition-not-met")
	}
	r.put(t, "a", "timer-after", "100ms", "If-None-Match", "*").is(t, 412, "condition-not-met")
}

// A recurrence that ends because a resume finds that all of it was missed is remembered like any other. So the same
// PUT, made again, makes no second timer.
func TestARecurrenceThatEndsByAResumeIsRemembered(t *testing.T) {
	r := remembers(t)
	again := func() answer {
		return r.put(t, "a", "timer-every", "3s", "timer-count", "1", "timer-catch-up", "none", "If-None-Match", "*")
	}
	made := again().is(t, 201, "scheduled").body["timer"].(map[string]any)
	due, err := time.Parse(time.RFC3339Nano, made["due"].(string))
	if err != nil {
		t.Fatal(err)
	}
	r.steer(t, "a", "pause").is(t, 200, "paused")
	await.Until(t, limit, "its time is over", func() bool { return time.Since(due) > 50*time.Millisecond })
	if got := r.steer(t, "a", "resume").is(t, 200, "completed"); got.body["timer"] != nil {
		t.Errorf("it is over, and pending: %s", got.text)
	}
	got := again().is(t, 412, "condition-not-met")
	if state := got.body["pending"].(map[string]any)["state"]; state != "remembered" {
		t.Errorf("it is %v", state)
	}
	r.put(t, "last", "timer-after", "0s").is(t, 201, "scheduled")
	if all := r.fired.WaitFor(1, limit); string(all[0].Key) != "last" {
		kafkatest.Inexact(t, "%q has fired", all[0].Key)
	}
}

// A timer that lies off its partition is found, and steered, also while another one of its ID is remembered where the
// ID belongs.
func TestARememberedIDHidesNoMisplacedTimer(t *testing.T) {
	r := remembers(t)
	r.put(t, "a", "timer-after", "100ms").is(t, 201, "scheduled")
	r.ended(t, "a")
	home := intake.Murmur2Partition([]byte("a"), partitions)
	rec := &kgo.Record{Topic: r.requests, Partition: (home + 1) % partitions, Key: []byte("a"), Value: []byte("stray")}
	rec.Headers = []kgo.RecordHeader{
		{Key: "timer-after", Value: []byte("1h")}, {Key: "timer-target-topic", Value: []byte(r.target)},
	}
	cl := r.c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, limit, "it is found", func() bool { // for 5 s the instance may believe that there is none
		return r.call(t, "GET", timersOf(r.requests)+"/a", "").status == 200
	})
	noted := func(got answer) {
		t.Helper()
		if note, _ := got.body["note"].(string); !strings.Contains(note, "another partitioner") {
			t.Errorf("the note lacks that it lies elsewhere: %s", got.text)
		}
	}
	noted(r.call(t, "GET", timersOf(r.requests)+"/a", "").is(t, 200, ""))
	noted(r.steer(t, "a", "pause").is(t, 200, "paused"))
	noted(r.steer(t, "a", "resume", "If-Match", "*").is(t, 200, "resumed"))
	noted(r.call(t, "DELETE", timersOf(r.requests)+"/a", "", "If-Match", "*").is(t, 200, "cancelled"))
	// The ID is still remembered.
	r.put(t, "a", "timer-after", "1h", "If-None-Match", "*").is(t, 412, "condition-not-met")
}

// A triggered firing leaves a recurring timer as it was, and so its ETag. The firing of an occurrence changes it.
func TestTheETagAfterATriggeredFiring(t *testing.T) {
	r := remembers(t)
	path := timersOf(r.requests) + "/"
	tag := r.put(t, "a", "timer-every", "1h").is(t, 201, "scheduled").header.Get("ETag")
	shown := r.call(t, "GET", path+"a", "").is(t, 200, "").text
	r.steer(t, "a", "trigger").is(t, 200, "triggered")
	r.fired.WaitFor(1, limit)
	await.Until(t, limit, "it is pending again, and shown as before", func() bool {
		got := r.call(t, "GET", path+"a", "")
		return got.header.Get("ETag") == tag && got.text == shown
	})
	if got := r.call(t, "GET", path+"a", "", "If-None-Match", tag); got.status != 304 {
		t.Errorf("%d %s", got.status, got.text)
	}
	soon := time.Now().Add(time.Second).Format(time.RFC3339Nano)
	first := r.put(t, "b", "timer-every", "1h", "timer-at", soon).is(t, 201, "scheduled").header.Get("ETag")
	r.fired.WaitFor(2, limit)
	await.Until(t, limit, "its ETag is another one", func() bool {
		got := r.call(t, "GET", path+"b", "", "If-None-Match", first)
		return got.status == 200 && strings.HasPrefix(got.header.Get("ETag"), strings.TrimSuffix(first, `"`)+";")
	})
}

package api

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// remember schedules a timer whose ID is remembered for an hour.
func (s *setup) remember(id string, headers ...string) caller.Answer {
	s.Helper()
	return s.put(id, append(headers, "timer-remember", "1h")...)
}

func (s *setup) steer(id, how string, headers ...string) caller.Answer {
	s.Helper()
	return s.Call("POST", s.timer(id)+"/"+how, "", headers...)
}

// ended waits until an ID is remembered.
func (s *setup) ended(id string) {
	s.Helper()
	await.Until(s, limit, id+" is remembered", func() bool {
		return len(s.Get(s.at("/timers?state=remembered&prefix="+id)).Items("timers")) > 0
	})
}

// taken checks that an ID is not free, because it is remembered.
func (s *setup) taken(got caller.Answer) {
	s.Helper()
	if is := got.Is(412, "condition-not-met").Object("pending")["state"]; is != "remembered" {
		s.Errorf("it is %v", is)
	}
}

// fires checks what has fired, the last of which is a timer that is scheduled now: whatever else was to fire would have
// done so before.
func (s *setup) fires(want ...string) {
	s.Helper()
	s.put("last", "timer-after", "500ms").Is(201, "scheduled")
	var got []string
	for _, r := range s.Out.WaitFor(len(want)+1, limit) {
		got = append(got, string(r.Key)+"/"+r.Header("waterclock-occurrence"))
	}
	slices.Sort(got)
	want = append(want, "last/1")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		kafkatest.Inexact(s, "%v have fired, want %v", got, want)
	}
}

// A POST that is made again with its Idempotency-Key fires nothing again once its timers have fired:
// asked of the instance that has taken it, of another one, and after all were stopped and started
// with empty directories, for what is remembered is in the log. With another body the key is an error.
func TestIdempotencyBeyondTheFiring(t *testing.T) {
	t.Parallel()
	dir := ""
	s := start(t, func(cfg *config.Config) { dir = cfg.DataDir })
	const n = 20
	post := func(value string) caller.Answer {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"value":"%s-%d","after":"100ms","target":{"topic":"%s"}}`, value, i,
				s.Target))
		}
		return s.post(all, "Idempotency-Key", "one")
	}
	if got := post("v").Is(200, ""); strings.Count(got.Text, `"status":201`) != n {
		t.Fatal(got.Text)
	}
	var ids []string
	for _, r := range s.Out.WaitFor(n, limit) {
		ids = append(ids, string(r.Key)+"/1")
	}
	same := func() {
		t.Helper()
		await.Until(t, limit, "the call is the same", func() bool {
			got := post("v")
			return strings.Count(got.Text, `"unchanged"`) == n && strings.Count(got.Text, `"remembered"`) == n
		})
		post("other").Is(422, "idempotency-key-reused")
	}
	same()
	if err := s.in.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	s.in = nil
	s = s.serve()
	same()
	if all := s.Get(s.at("/timers")).Is(200, "").Items("timers"); len(all) != 0 {
		t.Errorf("what has fired is listed: %v", all)
	}
	s.fires(ids...)
}

// A timer that has fired and is remembered is not pending: requests that steer find nothing.
func TestSteeringARememberedTimer(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.remember("a", "timer-after", "100ms").Is(201, "scheduled")
	s.ended("a")
	for _, how := range []string{"trigger", "pause", "resume"} {
		s.steer("a", how).Is(404, "not-found").Has(`"request":"` + s.Requests + "/")
		s.steer("a", how, "If-Match", "*").Is(412, "condition-not-met")
	}
	s.taken(s.remember("a", "timer-after", "100ms", "If-None-Match", "*"))
}

// A recurrence that ends because a resume finds that all of it was missed is remembered like any other. So the same
// PUT, made again, makes no second timer.
func TestARecurrenceThatEndsByAResumeIsRemembered(t *testing.T) {
	t.Parallel()
	s := start(t)
	again := func() caller.Answer {
		return s.remember("a", "timer-every", "3s", "timer-count", "1", "timer-catch-up", "none", "If-None-Match", "*")
	}
	made := again().Is(201, "scheduled").Object("timer")
	due := time.UnixMilli(int64(made["dueMillis"].(float64)))
	s.steer("a", "pause").Is(200, "paused")
	await.Until(t, limit, "its time is over", func() bool { return time.Since(due) > 50*time.Millisecond })
	if got := s.steer("a", "resume").Is(200, "completed"); got.Body["timer"] != nil {
		t.Errorf("it is over, and pending: %s", got.Text)
	}
	s.taken(again())
	s.fires()
}

// A timer that lies off its partition is found, and steered, also while another one of its ID is remembered where the
// ID belongs.
func TestARememberedIDHidesNoMisplacedTimer(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.remember("a", "timer-after", "100ms").Is(201, "scheduled")
	s.ended("a")
	stray := s.Request("a", "stray", "timer-after", "1h", "timer-target-topic", s.Target)
	stray.Partition = (intake.Murmur2Partition([]byte("a"), partitions) + 1) % partitions
	rig.Send(t, s.Cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner())), stray)
	await.Until(t, limit, "it is found", func() bool { // for 5 s the instance may believe that there is none
		return s.Get(s.timer("a")).Status == 200
	})
	const note = "another partitioner"
	s.Get(s.timer("a")).Is(200, "").Has(note)
	s.steer("a", "pause").Is(200, "paused").Has(note)
	s.steer("a", "resume", "If-Match", "*").Is(200, "resumed").Has(note)
	s.Call("DELETE", s.timer("a"), "", "If-Match", "*").Is(200, "cancelled").Has(note)
	s.taken(s.remember("a", "timer-after", "1h", "If-None-Match", "*"))
}

// A triggered firing leaves a recurring timer as it was, and so its ETag. The firing of an occurrence changes it.
func TestTheETagAfterATriggeredFiring(t *testing.T) {
	t.Parallel()
	s := start(t)
	tag := s.put("a", "timer-every", "1h").Is(201, "scheduled").Header.Get("ETag")
	shown := s.Get(s.timer("a")).Is(200, "").Text
	s.steer("a", "trigger").Is(200, "triggered")
	s.Out.WaitFor(1, limit)
	await.Until(t, limit, "it is pending again, and shown as before", func() bool {
		got := s.Get(s.timer("a"))
		return got.Header.Get("ETag") == tag && got.Text == shown
	})
	s.Get(s.timer("a"), "If-None-Match", tag).Is(304, "")
	soon := time.Now().Add(time.Second).Format(time.RFC3339Nano)
	first := s.put("b", "timer-every", "1h", "timer-at", soon).Is(201, "scheduled").Header.Get("ETag")
	s.Out.WaitFor(2, limit)
	await.Until(t, limit, "its ETag is another one", func() bool {
		got := s.Get(s.timer("b"), "If-None-Match", first)
		return got.Status == 200 && strings.HasPrefix(got.Header.Get("ETag"), strings.TrimSuffix(first, `"`)+";")
	})
}

// What was due before a request was written was missed, whatever was running: an instance that has run for long, and
// one that is started when the requests are in the log, fire the same.
func TestDueBeforeTheRequestWasWritten(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running %t", running), func(t *testing.T) {
			t.Parallel()
			s := &setup{Setup: rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)}
			if running { // for longer ago than the last occurrence
				s = s.serve()
				await.For(t, 2*time.Second)
			}
			// Three occurrences, an hour apart: the last one was a second ago, or comes in an hour.
			now := time.Now()
			schedule := func(id string, first time.Duration, headers ...string) {
				t.Helper()
				r := s.Request(id, "v", append(headers, "timer-every", "1h", "timer-count", "3",
					"timer-at", strconv.FormatInt(now.Add(first).UnixMilli(), 10), "timer-target-topic", s.Target)...)
				r.Timestamp = now
				s.Send(r)
			}
			const over, left = -2*time.Hour - time.Second, -time.Hour - time.Second
			policies := []string{"all", "latest", "none"}
			for _, policy := range policies {
				schedule(policy+"-over", over, "timer-catch-up", policy, "timer-remember", "1h")
				schedule(policy+"-left", left, "timer-catch-up", policy)
			}
			if !running {
				s = s.serve()
			}
			s.fires("all-left/1", "all-left/2", "all-over/1", "all-over/2", "all-over/3", "latest-left/2",
				"latest-over/3")
			for _, policy := range policies {
				one := s.Get(s.timer(policy+"-left")).Is(200, "")
				due := float64(now.Add(left + 2*time.Hour).UnixMilli())
				if one.Body["occurrence"] != 3.0 || one.Body["dueMillis"] != due {
					t.Errorf("%s goes on as %s", policy, one.Text)
				}
				s.Get(s.timer(policy+"-over")).Is(404, "not-found")
				s.taken(s.put(policy+"-over", "timer-after", "1h", "If-None-Match", "*"))
			}
		})
	}
}

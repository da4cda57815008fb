package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
)

// Nobody is told that a partition moves, and to ask again, where it has failed: what is wrong, since when and what to
// do is said.
func TestFailedPartitionIsNotMoving(t *testing.T) {
	t.Parallel()
	s := fake(t, 2)
	get := s.withAPI()
	s.serve()
	kafkatest.GrowTopics(t, s.Admin, 3, s.Requests)
	s.counts(2, "waterclock_partitions", "state", "failed")
	for _, path := range []string{"/timers/a", "/timers", "/timers/count"} {
		var p api.Problem
		status := get("/v1/topics/"+s.Requests+path, &p)
		for _, w := range []string{"has failed at instance", "since 20", "waterclock topics follow",
			"restart the instance"} {
			if status != http.StatusServiceUnavailable || p.Reason != api.ReasonFailed ||
				!strings.Contains(p.Detail, w) {
				t.Errorf("%s: %d %+v lacks %q", path, status, p.Problem, w)
			}
		}
	}
	var is api.Cluster
	if status := get("/v1/cluster", &is); status != http.StatusOK || is.Partitions[0].State != "failed" ||
		time.Since(is.Partitions[0].Since) > limit || is.Partitions[0].Reason == "" || is.Unknown != 2 {
		t.Errorf("status: %d %+v", status, is.Partitions)
	}
}

// An instance that has left the group because it cannot read a changelog says so over the API, too. It does not say
// that no broker answers, however long ago it left.
func TestAResignedInstanceSaysWhy(t *testing.T) {
	t.Parallel()
	s := fake(t, 2)
	s.cfg.SessionTimeout = time.Second
	s.serve()
	s.Stop()
	s.Send(&kgo.Record{Topic: topics.Changelog(s.Requests), Key: []byte{4}, Value: []byte("of a newer version")})
	get := s.withAPI()
	s.begin()
	s.notReady("left the group")
	await.For(t, 2*s.cfg.SessionTimeout)
	var is struct {
		Asked     string           `json:"asked"`
		Instances []route.Instance `json:"instances"`
	}
	if status := get("/v1/cluster", &is); status != http.StatusOK {
		t.Fatal(status)
	}
	i := slices.IndexFunc(is.Instances, func(i route.Instance) bool { return i.Name == is.Asked })
	if i < 0 || !strings.HasPrefix(is.Instances[i].Problem, "left the group: ") ||
		!strings.HasSuffix(is.Instances[i].Problem, "run a version that can read it") {
		t.Errorf("%+v", is)
	}
}

// send schedules one timer and waits for its outcome.
func (s *scene) send(id, to string, wait time.Duration) (commands.Sent, error) {
	return commands.Send(s.Context(), s.cfg, commands.Request{
		Topic: s.Requests, ID: id, To: to, Wait: wait, Options: []waterclock.Option{waterclock.After(time.Hour),
			waterclock.To(to), waterclock.Value([]byte("v"))},
	})
}

// A caller that waits for the outcome of a request learns it: pending, refused, or gone already, also on a log with a
// history of others. With events it is told what they say, and without them what the changelog and the dead letters
// allow.
func TestOutcomeOfARequest(t *testing.T) {
	t.Parallel()
	for _, events := range []bool{false, true} {
		t.Run(fmt.Sprintf("events %v", events), func(t *testing.T) {
			s := fake(t, 2)
			policy := s.cfg.PolicyOf(s.Requests)
			policy.Events, policy.LimitHorizon = events, 48*time.Hour
			s.cfg.Tenants = map[string]config.Policy{s.Requests: policy}
			s.serve()
			s.schedule("id", 50, time.Hour)
			for range 2 {
				for _, id := range []string{"a", "b", "c", "d"} { // on both partitions
					s.outcomes(id, events)
				}
			}
		})
	}
}

// outcomes are those of all kinds of requests for an ID under which nothing is pending.
func (s *scene) outcomes(id string, events bool) {
	s.Helper()
	hour := waterclock.After(time.Hour)
	either := func(told, without waterclock.EventType) waterclock.EventType {
		if events {
			return told
		}
		return without
	}
	send := func(opts ...waterclock.Option) func() (commands.Sent, error) {
		opts = append(opts, waterclock.To(s.Target), waterclock.Value([]byte("v")))
		return func() (commands.Sent, error) {
			r := commands.Request{Topic: s.Requests, ID: id, Options: opts, To: s.Target, Wait: limit}
			return commands.Send(s.Context(), s.cfg, r)
		}
	}
	steer := func(action commands.Action, condition string) func() (commands.Sent, error) {
		return func() (commands.Sent, error) {
			r := commands.Request{Topic: s.Requests, ID: id, Action: action, Wait: limit}
			if condition != "" {
				r.Options = []waterclock.Option{waterclock.If(condition)}
			}
			return commands.Send(s.Context(), s.cfg, r)
		}
	}
	for _, c := range []struct {
		name string
		send func() (commands.Sent, error)
		want waterclock.EventType
	}{
		{"nothing to cancel", steer(commands.Cancel, ""), commands.NothingDone},
		{"nothing to pause", steer(commands.Pause, ""), commands.NothingDone},
		{"not present", send(hour, waterclock.If("present")), either(waterclock.EventConditionNotMet, "")},
		{"scheduled", send(hour, waterclock.If("absent")), waterclock.EventScheduled},
		{"not absent", send(hour, waterclock.If("absent")), either(waterclock.EventConditionNotMet, "")},
		{"not to be cancelled", steer(commands.Cancel, "timers/0/999999"),
			either(waterclock.EventConditionNotMet, commands.NothingDone)},
		{"replaced", send(hour), either(waterclock.EventReplaced, waterclock.EventScheduled)},
		{"refused", send(waterclock.After(72 * time.Hour)), waterclock.EventRejected},
		{"paused", steer(commands.Pause, ""), waterclock.EventPaused},
		{"paused already", steer(commands.Pause, ""), commands.NothingDone},
		{"resumed", steer(commands.Resume, ""), waterclock.EventResumed},
		{"triggered", steer(commands.Trigger, ""), waterclock.EventTriggered},
		{"due at once", send(waterclock.After(0)), either(waterclock.EventFired, "")},
		{"expired", send(waterclock.At(time.Now().Add(-time.Hour)), waterclock.MaxLate(0)),
			either(waterclock.EventExpired, "")},
		{"scheduled again", send(hour), waterclock.EventScheduled},
		{"cancelled", steer(commands.Cancel, ""), waterclock.EventCancelled},
	} {
		sent, err := c.send()
		if err != nil || sent.Outcome == nil || sent.Outcome.Type != c.want || sent.Outcome.EventsRead != events {
			s.Fatalf("%s, %s: %+v, %+v, %v; want %q", id, c.name, sent, sent.Outcome, err, c.want)
		}
		if refused := c.want == waterclock.EventRejected; refused != (sent.Outcome.Refused != nil) ||
			refused && (sent.Outcome.Refused.Reason != waterclock.ReasonBeyondHorizon ||
				sent.Outcome.Refused.ID != id) {
			s.Fatalf("%s, %s: %+v", id, c.name, sent.Outcome.Refused)
		}
	}
}

// If nobody serves, that is said within the limit; the request stays written.
func TestOutcomeWhileNobodyServes(t *testing.T) {
	s := fake(t, 2)
	if sent, err := s.send("a", s.Target, time.Second); err == nil || sent.Topic != "" {
		t.Errorf("nobody has ever served: %+v, %v", sent, err)
	}
	s.serve()
	s.Stop()
	sent, err := s.send("a", s.Target, time.Second)
	if !errors.Is(err, commands.ErrUndecided) || sent.Topic != s.Requests || sent.Outcome != nil {
		t.Errorf("nobody serves: %+v, %v", sent, err)
	}
}

// Whoever schedules to a topic that does not exist is told so at once, and not by a dead letter when the timer is due;
// by the API too.
func TestTargetThatDoesNotExist(t *testing.T) {
	t.Parallel()
	s := fake(t, 2)
	call := s.withAPI()
	s.serve()
	for to, want := range map[string]string{s.Target: "", "nowhere": "topic nowhere does not exist now: create it " +
		"before the timer is due"} {
		sent, err := s.send("a", to, limit)
		if err != nil || !strings.HasPrefix(sent.Note, want) || (want == "") != (sent.Note == "") {
			t.Errorf("to %s: %+v, %v", to, sent, err)
		}
		var r api.Result
		if status := call("PUT /v1/topics/"+s.Requests+
			"/timers/b?wait=decided timer-after:1h timer-target-topic:"+to, &r); status >= 300 ||
			!strings.HasPrefix(r.Note, want) || (want == "") != (r.Note == "") {
			t.Errorf("to %s by the API: %d %+v", to, status, r)
		}
	}
}

// answered is a question about a timer that an instance has answered with success.
type answered struct {
	method       string
	began, ended time.Time
	offset       int64 // of the request that the timer comes from
}

// callUntil makes a call again and again until ctx ends, and tells of the answers that have come whole.
func callUntil(ctx context.Context, method, url string, tell func(answered)) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
		if err != nil {
			return
		}
		if method == http.MethodPut {
			req.Header.Set(waterclock.HeaderAfter, "1h")
			req.Header.Set(waterclock.HeaderTargetTopic, "target")
		}
		a, body := answered{method: method, began: time.Now()}, struct{ Source string }{}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		err = json.NewDecoder(resp.Body).Decode(&body)
		resp.Body.Close()
		if err == nil && resp.StatusCode < http.StatusMultipleChoices {
			if source, err := waterclock.ParseSource(body.Source); err == nil {
				a.offset = source.Offset
			}
			a.ended = time.Now()
			tell(a)
		}
	}
}

// A process with the instance ID of one that lives takes its place. Both are asked about a timer that changes: at
// most one of them answers at any time, and no answer is older than one that had come before it was
// asked for. Nothing is written while the place changes, for a step that is refused would tell the old one.
func TestASuccessorOfTheSameNameAnswersAlone(t *testing.T) {
	t.Parallel()
	first := fake(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex // guards what both have answered
	var old, successor []answered
	var callers sync.WaitGroup
	defer callers.Wait()
	defer cancel()
	serve := func(all *[]answered) {
		s := newScene(first.Setup, 1)
		s.cfg.InstanceID, s.cfg.API = "wc-0", "127.0.0.1:0"
		at := make(chan string, 1)
		s.o.StartedAPI = func(addr string) { at <- addr }
		s.begin()
		url := <-at + "/v1/topics/" + s.Requests + "/timers/x"
		call := func(ctx context.Context, method string) {
			callers.Go(func() {
				callUntil(ctx, method, url, func(a answered) {
					mu.Lock()
					defer mu.Unlock()
					*all = append(*all, a)
				})
			})
		}
		answers := func(method string, n int) {
			s.until("it answers", func() bool {
				mu.Lock()
				defer mu.Unlock()
				some := 0
				for _, a := range *all {
					if a.method == method {
						some++
					}
				}
				return some >= n
			})
		}
		call(ctx, http.MethodGet)
		call(ctx, http.MethodGet)
		s.Ready(1, limit)
		if all == &successor {
			answers(http.MethodGet, 100)
		}
		writing, stop := context.WithCancel(ctx)
		defer stop()
		call(writing, http.MethodPut)
		answers(http.MethodPut, 5)
		stop()
		answers(http.MethodGet, 200)
	}
	serve(&old)
	serve(&successor)
	cancel()
	callers.Wait()

	var last answered // of the old one, by when it was asked for
	for _, a := range old {
		if a.began.After(last.began) && a.method == http.MethodGet {
			last = a
		}
	}
	newest, over := int64(0), last.ended
	for _, a := range old {
		newest = max(newest, a.offset)
		if a.ended.After(over) {
			over = a.ended
		}
	}
	for _, a := range successor {
		if a.method == http.MethodGet && a.ended.Before(last.began) {
			t.Fatalf("the old one answers a question %s after its successor has answered one", last.began.Sub(a.ended))
		}
		if a.method == http.MethodGet && a.began.After(over) && a.offset < newest {
			t.Fatalf("the successor shows the timer of request %d, and the old one had shown that of %d",
				a.offset, newest)
		}
	}
	t.Logf("%d answers of the old one, %d of its successor", len(old), len(successor))
}

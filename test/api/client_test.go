package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/waterclocktest"
)

// service is what a case of TestClientsCannotTellTheFake works on: an instance, or the fake of waterclocktest.
type service struct {
	*client.Client
	t             *testing.T
	topic, target string
	kafka         client.Producer
	told          strings.Builder
}

// tell notes something that both services must say.
func (s *service) tell(format string, args ...any) { fmt.Fprintf(&s.told, format+"\n", args...) }

// schedule schedules a timer to the target, and tells the decision.
func (s *service) schedule(id string, opts ...waterclock.Option) client.Decision {
	d, err := s.Schedule(s.t.Context(), s.topic, id, append(opts, waterclock.To(s.target))...)
	s.decided("schedule "+id, d, err)
	return d
}

func (s *service) decided(what string, d client.Decision, err error) {
	if e, ok := errors.AsType[*client.Error](err); ok {
		s.tell("%s: %d %s: %s; in the log: %t", what, e.Status, e.Reason, e.Detail, e.Request != "")
		if e.Pending != nil {
			s.show(e.Pending)
		}
		return
	}
	s.tell("%s: %s, %s, %v", what, d.Outcome, d.Note, err)
	if d.Timer != nil {
		s.show(d.Timer)
	}
}

// show tells all of a timer but when it was scheduled.
func (s *service) show(t *client.Timer) {
	due := "soon"
	if t.Due.Year() >= 2090 {
		due = fmt.Sprint(t.Due, t.Scheduled)
	}
	recurrence, _ := json.Marshal(t.Recurrence)
	s.tell("  %q from %s, %s, %s, %d, to %q %v %q, %q = %q, %s %s %s %s; %s", t.ID, t.Source, t.State, due,
		t.Occurrence, t.Target.Topic, t.Target.Partition == nil, t.Target.Key, t.Headers, t.Value, recurrence, t.Jitter,
		t.MaxLate, t.Remember, t.Note)
}

// get tells what is pending.
func (s *service) get(id string) {
	t, err := s.Get(s.t.Context(), s.topic, id)
	if s.decided("get "+id, client.Decision{}, err); err == nil {
		s.show(t)
	}
}

// until waits for an event of a timer, and tells all that it has.
func (s *service) until(id string, want waterclock.EventType, n int) {
	s.t.Helper()
	var lines []string
	await.Until(s.t, limit, fmt.Sprintf("%s is %s %d times", id, want, n), func() bool {
		lines = nil
		seen := 0
		for e, err := range s.History(s.t.Context(), s.topic, id) {
			if err != nil {
				s.t.Fatal(err)
			}
			if lines = append(lines, fmt.Sprintf("  %s %d %s %s, pending: %t", e.Type, e.Occurrence, e.Reason, e.Source,
				e.Pending != nil)); e.Type == want {
				seen++
			}
		}
		return seen >= n
	})
	s.tell("events of %s, the newest first:\n%s", id, strings.Join(lines, "\n"))
}

// put sends a timer as JSON, which the client would not send.
func (s *service) put(id, fields string) {
	err := s.Call(s.t.Context(), http.MethodPut, client.Path(s.topic, "timers", id), nil,
		json.RawMessage(`{`+fields+`}`), nil)
	s.decided("put "+fields, client.Decision{}, err)
}

// far is an instant that stays in the future.
var far = time.Date(2090, 1, 31, 9, 0, 0, 0, time.UTC)

// clientCases are what users do with a client. Each tells what the service does.
func clientCases() map[string]func(s *service) {
	return map[string]func(s *service){
		"all of a timer": func(s *service) {
			s.schedule("a/1", waterclock.At(far), waterclock.Key([]byte("k\xff")), waterclock.Value([]byte("v\x00")),
				waterclock.Header("a", []byte("1")), waterclock.Header("b", nil), waterclock.Header("ü", []byte(" ")),
				waterclock.Partition(0), waterclock.MaxLate(time.Hour), waterclock.Jitter(time.Minute))
			s.get("a/1")
			s.schedule("a/1", waterclock.At(far), waterclock.NullKey(), waterclock.NullValue())
			s.get("a/1")
			s.schedule("a/1", waterclock.At(far), waterclock.Header("c", []byte("d=e")))
			s.get("a/1")
			for _, id := range []string{"\xff", ".", "..", "a b/ü?#%"} {
				s.schedule(id, waterclock.At(far))
				s.get(id)
			}
		},
		"steering": func(s *service) {
			ctx := s.t.Context()
			s.schedule("once", waterclock.At(far))
			s.schedule("every", waterclock.Every(time.Hour), waterclock.At(far), waterclock.Count(3))
			type steer = func(context.Context, string, string, ...waterclock.Option) (client.Decision, error)
			for _, id := range []string{"nobody", "once", "every"} {
				for _, f := range []steer{s.Resume, s.Pause, s.Pause, s.Resume, s.Trigger} {
					d, err := f(ctx, s.topic, id)
					s.decided(id, d, err)
				}
			}
			s.until("once", waterclock.EventFired, 1)
			s.until("every", waterclock.EventFired, 1)
			s.get("once")
			s.get("every")
			d, err := s.Cancel(ctx, s.topic, "every")
			s.decided("cancel", d, err)
		},
		"conditions": func(s *service) {
			ctx := s.t.Context()
			for _, c := range []string{waterclock.IfPresent, waterclock.IfAbsent, waterclock.IfAbsent,
				waterclock.IfPresent, waterclock.IfChanged} {
				s.schedule("c", waterclock.Every(time.Hour), waterclock.At(far), waterclock.If(c))
			}
			first := s.schedule("c", waterclock.At(far)).Source.String()
			s.schedule("c", waterclock.At(far))
			d, err := s.Cancel(ctx, s.topic, "c", waterclock.If(first))
			s.decided("cancel", d, err)
			d, err = s.Pause(ctx, s.topic, "c", waterclock.If(waterclock.IfPresent))
			s.decided("pause", d, err)
		},
		"remembered": func(s *service) {
			opts := []waterclock.Option{waterclock.After(0), waterclock.Remember(time.Hour),
				waterclock.If(waterclock.IfAbsent)}
			s.schedule("r", opts...)
			s.until("r", waterclock.EventFired, 1)
			s.schedule("r", opts...)
			s.get("r")
			n, err := s.Count(s.t.Context(), s.topic, client.Filter{Prefix: "r", State: client.StateRemembered})
			s.tell("remembered: %+v, %v", n, err)
		},
		"refusals": func(s *service) {
			s.schedule("far", waterclock.After(200*365*24*time.Hour))
			s.schedule("zone", waterclock.Cron("0 9 * * *"), waterclock.Zone("Mars/Olympus"))
			s.schedule("short", waterclock.Every(time.Millisecond))
			s.schedule("never", waterclock.Cron("0 0 30 2 *"))
			s.schedule("until", waterclock.Every(time.Hour), waterclock.At(far), waterclock.Until(far.Add(-time.Hour)))
			d, err := s.Schedule(s.t.Context(), s.topic, "self", waterclock.At(far), waterclock.To(s.topic))
			s.decided("self", d, err)
			d, err = s.Schedule(s.t.Context(), "elsewhere", "x", waterclock.At(far), waterclock.To(s.target))
			s.decided("elsewhere", d, err)
			for _, fields := range []string{`"after":"soon"`, `"cron":"x"`, `"at":"123"`, `"after":"1s","at":"2090-01-01T00:00:00Z"`,
				`"value":"x"`, `"after":"1s","jitter":"-1s"`, `"unknown":1`, `"after":"1s","catchUp":"all"`} {
				s.put("p", fields+`,"target":{"topic":"`+s.target+`"}`)
			}
		},
		"recurrences": func(s *service) {
			s.schedule("cron", waterclock.Cron("0 9 * * mon#2"), waterclock.Zone("Africa/Lagos"), waterclock.At(far))
			s.schedule("month", waterclock.EveryPeriod("P1M"), waterclock.Zone("Europe/Berlin"), waterclock.At(far))
			long := time.Now().Add(-210 * time.Minute)
			for _, policy := range []waterclock.CatchUpPolicy{waterclock.CatchUpLatest, waterclock.CatchUpAll} {
				id := "missed, " + string(policy)
				s.schedule(id, waterclock.Every(time.Hour), waterclock.At(long), waterclock.CatchUp(policy),
					waterclock.Count(4))
				s.until(id, waterclock.EventFired, map[waterclock.CatchUpPolicy]int{waterclock.CatchUpLatest: 1,
					waterclock.CatchUpAll: 4}[policy])
			}
		},
		"too late": func(s *service) {
			s.schedule("late", waterclock.At(time.Now().Add(-time.Hour)), waterclock.MaxLate(time.Minute))
			s.until("late", waterclock.EventExpired, 1)
		},
		"lists": func(s *service) {
			ctx := s.t.Context()
			for i := range 7 {
				s.schedule(fmt.Sprintf("l/%d", i), waterclock.At(far.Add(time.Duration(7-i)*time.Hour)),
					waterclock.Labels(map[string]string{"n": fmt.Sprint(i), "even": fmt.Sprint(i%2 == 0)}))
			}
			_, err := s.Pause(ctx, s.topic, "l/3")
			s.tell("%v", err)
			for _, f := range []client.Filter{{}, {State: client.StatePaused}, {DueBefore: far.Add(4 * time.Hour)},
				{Target: "nowhere"}, {Labels: "even=true,n!=4"}, {Labels: "odd"}} {
				f.Prefix = "l/"
				for _, order := range []client.Order{client.ByDue, client.ByID} {
					ids := ""
					for t, err := range s.List(ctx, s.topic, f, client.In(order), client.PageSize(2)) {
						if err != nil {
							s.t.Fatal(err)
						}
						ids += " " + t.ID
					}
					n, err := s.Count(ctx, s.topic, f, far, far.Add(3*time.Hour), far.Add(100*time.Hour))
					s.tell("%+v by %s:%s; %+v, %v", f, order, ids, n, err)
				}
			}
		},
		"batches": func(s *service) {
			var requests []*kgo.Record
			for i := range 3 {
				r, err := waterclock.Schedule(s.topic, "b", waterclock.At(far.Add(time.Duration(i))),
					waterclock.To(s.target), waterclock.Header("n", []byte{byte(i)}),
					waterclock.Labels(map[string]string{"n": fmt.Sprint(i)}), waterclock.LabelsHeader("l"))
				if err != nil {
					s.t.Fatal(err)
				}
				requests = append(requests, client.Unnamed(r))
			}
			bad, err := waterclock.Schedule(s.topic, "bad", waterclock.Every(time.Millisecond), waterclock.To(s.target))
			if err != nil {
				s.t.Fatal(err)
			}
			requests = append(requests, bad)
			for _, b := range []client.Batch{{Requests: requests, Key: "k"}, {Requests: requests, Key: "k"},
				{Requests: requests[1:], Key: "k"}} {
				results, err := s.ScheduleAll(s.t.Context(), s.topic, b)
				s.decided("batch", client.Decision{}, err)
				for _, r := range results {
					s.decided(fmt.Sprint("one with an ID: ", r.ID != ""), r.Decision, r.Err)
				}
			}
		},
		"jobs": func(s *service) {
			ctx := s.t.Context()
			for i := range 5 {
				s.schedule(fmt.Sprintf("j/%d", i), waterclock.At(far))
			}
			n, err := s.CountJob(ctx, s.topic, client.CancelAll, client.Filter{Prefix: "j/"})
			s.tell("%+v, %v", n, err)
			j, err := s.StartJob(ctx, s.topic, client.CancelAll, client.Filter{Prefix: "j/"}, client.JobOptions{})
			if err == nil {
				j, err = s.WaitJob(ctx, j, nil)
			}
			if err != nil {
				s.t.Fatal(err)
			}
			s.tell("%s %d %d %d %d", j.State, j.Seen, j.Changed, j.Spared, j.Failed)
			_, err = s.StartJob(ctx, s.topic, client.PauseAll, client.Filter{}, client.JobOptions{})
			s.decided("without a filter", client.Decision{}, err)
			_, err = s.Job(ctx, "none-such")
			s.tell("%t", errors.Is(err, client.ReasonNotFound))
		},
		"dead letters": func(s *service) {
			ctx := s.t.Context()
			bad := &kgo.Record{Topic: s.topic, Key: []byte("d"), Value: []byte("v"), Headers: []kgo.RecordHeader{
				{Key: waterclock.HeaderAfter, Value: []byte("soon")},
				{Key: waterclock.HeaderTargetTopic, Value: []byte(s.target)}, {Key: "own", Value: []byte("1")}}}
			if err := s.kafka.ProduceSync(ctx, bad).FirstErr(); err != nil {
				s.t.Fatal(err)
			}
			var found []*client.DeadLetter
			await.Until(s.t, limit, "a dead letter", func() bool {
				found = nil
				for d, err := range s.DeadLetters(ctx, s.topic, client.Letters{Prefix: "d"}) {
					if err != nil {
						s.t.Fatal(err)
					}
					found = append(found, d)
				}
				return len(found) > 0
			})
			d := found[0]
			s.tell("%d: %q %s %s %s %q %q %v", len(found), d.ID, d.Reason, d.Detail, d.Source, d.Headers, d.Value,
				d.Missing)
			done, err := s.Resend(ctx, s.topic, d.LetterID, nil)
			s.decided("resend", done, err)
			done, err = s.Resend(ctx, s.topic, d.LetterID, &client.Correction{Headers: []kgo.RecordHeader{
				{Key: waterclock.HeaderAfter, Value: []byte("1h")},
				{Key: waterclock.HeaderTargetTopic, Value: []byte(s.target)}}})
			s.decided("corrected", done, err)
			m, err := s.CountResend(ctx, s.topic, client.Letters{}, client.ResendOptions{})
			s.tell("%+v, %v", m, err)
		},
		"events": func(s *service) {
			ctx := s.t.Context()
			s.schedule("e", waterclock.At(far))
			s.schedule("e", waterclock.At(far))
			s.schedule("e", waterclock.At(far), waterclock.If(waterclock.IfAbsent))
			_, err := s.Cancel(ctx, s.topic, "e")
			s.tell("%v", err)
			s.until("e", waterclock.EventCancelled, 1)
			position := ""
			past := client.Events{ID: "e", Since: time.Now().Add(-time.Hour), Stop: true}
			for e, err := range s.Watch(ctx, s.topic, past) {
				if err != nil {
					s.t.Fatal(err)
				}
				s.tell("%s %q", e.Type, e.ID)
				position = e.Position
			}
			s.schedule("e", waterclock.At(far))
			for e, err := range s.Watch(ctx, s.topic, client.Events{ID: "e", Position: position}) {
				if err != nil {
					s.t.Fatal(err)
				}
				s.tell("from the position on: %s", e.Type)
				break
			}
			for e, err := range s.Activity(ctx, s.topic, client.Events{Prefix: "e", Types: []waterclock.EventType{
				waterclock.EventCancelled}}) {
				s.tell("%s %v", e.Type, err)
			}
			_, err = s.Jobs(ctx)
			s.tell("%v", err)
		},
	}
}

// places are what differs between two services: where something lies in a log, IDs and digests that are made, and the
// time of day.
var places = regexp.MustCompile(`TOPIC/\d+/\d+|[0-9a-f]{32}|2226-[^ ]*Z|partition \d+`)

// A client cannot tell the fake of waterclocktest from the product: both do the same in each case.
func TestClientsCannotTellTheFake(t *testing.T) {
	s := start(t, withEvents)
	whole, err := client.New(client.Options{URLs: []string{s.Caller.URL}})
	if err != nil {
		t.Fatal(err)
	}
	cases := clientCases()
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			fake := waterclocktest.New(t, waterclocktest.Options{Topics: []string{"fake-in"}})
			told := make(map[bool]string)
			for _, on := range []*service{
				{Client: fake.Client(), topic: "fake-in", target: "fake-out", kafka: fake},
				{Client: whole, topic: s.Requests, target: s.Target, kafka: s.Setup.Client},
			} {
				on.t = t
				cases[name](on)
				text := strings.NewReplacer(on.topic+".", "TOPIC.", on.target, "TARGET", on.topic, "TOPIC").
					Replace(on.told.String())
				told[on.Client == whole] = places.ReplaceAllString(text, "PLACE")
			}
			product, fakes := strings.Split(told[true], "\n"), strings.Split(told[false], "\n")
			for i := range max(len(product), len(fakes)) {
				if i >= len(product) || i >= len(fakes) || product[i] != fakes[i] {
					t.Fatalf("line %d differs, the product:\n%s\nthe fake:\n%s", i+1, told[true], told[false])
				}
			}
		})
	}
}

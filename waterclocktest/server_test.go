package waterclocktest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/waterclocktest"
)

// remind is the code under test of the example: it schedules a reminder.
func remind(ctx context.Context, c *client.Client, order string) error {
	_, err := c.Schedule(ctx, "timers", order+"-reminder",
		waterclock.After(24*time.Hour), waterclock.To("reminders"), waterclock.Value([]byte("still interested?")))
	return err
}

func Example() {
	s := waterclocktest.Start(waterclocktest.Options{}) // in a test: waterclocktest.New(t, ...)
	defer s.Close()
	if err := remind(context.Background(), s.Client(), "order-17"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(len(s.Advance(23*time.Hour)), "too early")
	for _, f := range s.Advance(time.Hour) {
		fmt.Printf("%s to %s: %s\n", f.ID, f.Record.Topic, f.Record.Value)
	}
	// Output:
	// 0 too early
	// order-17-reminder to reminders: still interested?
}

// schedule schedules a timer.
func schedule(t *testing.T, s *waterclocktest.Server, id string, opts ...waterclock.Option) client.Decision {
	t.Helper()
	d, err := s.Client().Schedule(t.Context(), "timers", id, append(opts, waterclock.To("out"))...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// told returns what has fired, and how long after the start.
func told(start time.Time, fired []waterclocktest.Firing) string {
	var texts []string
	for _, f := range fired {
		texts = append(texts, fmt.Sprintf("%s#%d@%s", f.ID, f.Occurrence, f.Record.Timestamp.Sub(start)))
	}
	return strings.Join(texts, " ")
}

// Timers fire in the order in which they are due, each at its time, however far the clock is moved.
func TestAdvance(t *testing.T) {
	start := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	s := waterclocktest.New(t, waterclocktest.Options{Start: start})
	schedule(t, s, "b", waterclock.After(2*time.Hour))
	schedule(t, s, "a", waterclock.Every(time.Hour), waterclock.Count(3))
	schedule(t, s, "daily", waterclock.Cron("30 2 * * *"), waterclock.Zone("Europe/Berlin")) // 02:30 is skipped once
	if got := told(start, s.Advance(90*time.Minute)); got != "a#1@1h0m0s" {
		t.Error(got)
	}
	if got := told(start, s.AdvanceToNext()); got != "b#1@2h0m0s a#2@2h0m0s" || s.Now().Sub(start) != 2*time.Hour {
		t.Errorf("%s, at %s", got, s.Now())
	}
	if got := told(start, s.AdvanceTo(start.Add(40*time.Hour))); got != "a#3@3h0m0s daily#1@13h0m0s daily#2@36h30m0s" {
		t.Error(got)
	}
	if s.AdvanceTo(start); !s.Now().Equal(start.Add(40 * time.Hour)) {
		t.Errorf("the clock went back to %s", s.Now())
	}
	if got := len(s.Fired()); got != 6 {
		t.Errorf("%d have fired", got)
	}
}

// What is steered fires at once, or not before it is resumed; what was missed then follows its policy.
func TestSteering(t *testing.T) {
	start := time.Now().Truncate(time.Millisecond)
	s, ctx := waterclocktest.New(t, waterclocktest.Options{Start: start}), t.Context()
	c := s.Client()
	schedule(t, s, "now", waterclock.After(0))
	schedule(t, s, "all", waterclock.Every(time.Hour), waterclock.CatchUp(waterclock.CatchUpAll))
	schedule(t, s, "latest", waterclock.Every(time.Hour))
	schedule(t, s, "late", waterclock.After(time.Hour), waterclock.MaxLate(time.Hour))
	if got := told(start, s.Fired()); got != "now#1@0s" {
		t.Error(got)
	}
	for _, id := range []string{"all", "latest", "late"} {
		if _, err := c.Pause(ctx, "timers", id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Trigger(ctx, "timers", "latest"); err != nil {
		t.Fatal(err)
	}
	if got := s.Advance(210 * time.Minute); len(got) > 0 {
		t.Errorf("paused, and fired: %v", got)
	}
	for _, id := range []string{"all", "latest", "late"} {
		if _, err := c.Resume(ctx, "timers", id); err != nil {
			t.Fatal(err)
		}
	}
	const at = "@3h30m0s"
	if got := told(start, s.Fired()[2:]); got != "all#1"+at+" all#2"+at+" all#3"+at+" latest#3"+at {
		t.Error(got)
	}
	if _, err := c.Get(ctx, "timers", "late"); !errors.Is(err, client.ReasonNotFound) {
		t.Errorf("too late, and still pending: %v", err)
	}
}

// A timer is moved, and many are by a job: by so much each, or all to one time. A request that names a former source
// moves nothing.
func TestMoves(t *testing.T) {
	start := time.Now().Truncate(time.Millisecond)
	s, ctx := waterclocktest.New(t, waterclocktest.Options{Start: start}), t.Context()
	c := s.Client()
	first := schedule(t, s, "a", waterclock.After(time.Hour))
	schedule(t, s, "b", waterclock.After(2*time.Hour))
	schedule(t, s, "every", waterclock.Every(time.Hour), waterclock.CatchUp(waterclock.CatchUpAll), waterclock.Count(3))
	d, err := c.Move(ctx, "timers", "a", waterclock.After(3*time.Hour), waterclock.If(first.Source.String()))
	if err != nil || d.Outcome != client.Moved ||
		d.Timer.Source != d.Source || !d.Timer.Due.Equal(start.Add(3*time.Hour)) {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err = c.Move(ctx, "timers", "a", waterclock.After(0), waterclock.If(first.Source.String())); !errors.Is(err,
		client.ReasonConditionNotMet) {
		t.Errorf("by its former source: %v", err)
	}
	if _, err = c.Move(ctx, "timers", "none", waterclock.At(start)); !errors.Is(err, client.ReasonNotFound) {
		t.Errorf("nothing pending: %v", err)
	}
	run := func(f client.Filter, o client.JobOptions) *client.Job {
		t.Helper()
		job, err := c.StartJob(ctx, "timers", client.MoveAll, f, o)
		if err == nil {
			job, err = c.WaitJob(ctx, job, nil)
		}
		if err != nil || job.State != client.JobDone || job.Failed > 0 {
			t.Fatalf("%+v, %v", job, err)
		}
		return job
	}
	move := func(f client.Filter, o client.JobOptions) {
		t.Helper()
		if job := run(f, o); job.Changed == 0 {
			t.Errorf("%+v", job)
		}
	}
	some := run(client.Filter{Prefix: "a"}, client.JobOptions{By: 90 * time.Minute})
	rest := client.JobOptions{All: true, By: 90 * time.Minute, UnchangedSince: some.Position}
	if job := run(client.Filter{}, rest); job.Changed != 2 || job.Spared != 1 {
		t.Errorf("the rest of a job: %+v", job)
	}
	if job := run(client.Filter{}, rest); job.Changed != 0 || job.Spared != 3 {
		t.Errorf("nothing is left of a job: %+v", job)
	}
	move(client.Filter{Prefix: "b"}, client.JobOptions{By: -time.Hour})
	move(client.Filter{Prefix: "a"}, client.JobOptions{To: start.Add(2 * time.Hour)})
	if n, err := c.CountJob(ctx, "timers", client.MoveAll, client.Filter{Prefix: "b"}); err != nil || n.N != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	const want = "a#1@2h0m0s every#1@2h30m0s every#2@2h30m0s b#1@2h30m0s every#3@3h0m0s"
	if got := told(start, s.Advance(5*time.Hour)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Requests through Kafka are the same, and a rejected one is a dead letter.
func TestProducer(t *testing.T) {
	s := waterclocktest.New(t, waterclocktest.Options{Allow: func(topic string) bool { return topic == "out" }})
	c, err := client.New(client.Options{URLs: []string{s.URL}, Producer: s})
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"out", "forbidden"} {
		d, err := c.Schedule(t.Context(), "timers", target, waterclock.After(time.Hour), waterclock.To(target))
		if err != nil || d.Outcome != client.Written {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if fired := s.Advance(time.Hour); len(fired) != 1 || fired[0].ID != "out" || fired[0].Source.Offset != 0 {
		t.Errorf("%+v", fired)
	}
	for d, err := range c.DeadLetters(t.Context(), "timers", client.Letters{}) {
		if err != nil || d.ID != "forbidden" || d.Reason != waterclock.ReasonTargetNotAllowed || d.Source.Offset != 1 {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if _, err := c.Schedule(t.Context(), "none", "x", waterclock.After(0), waterclock.To("out")); err == nil {
		t.Error("there is no such topic")
	}
}

// A test can have calls fail.
func TestAround(t *testing.T) {
	failed := false
	s := waterclocktest.New(t, waterclocktest.Options{Around: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !failed {
				failed = true
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	}})
	if d := schedule(t, s, "a", waterclock.After(time.Hour)); !d.Repeated {
		t.Errorf("%+v", d)
	}
}

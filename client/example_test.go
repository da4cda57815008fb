package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/waterclocktest"
)

// connect returns a client of the instance that WATERCLOCK_URL names.
func connect() *client.Client {
	c, err := client.New(client.Options{URLs: []string{os.Getenv("WATERCLOCK_URL")}})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// A timer is scheduled, found and cancelled. Each call waits for the decision.
func Example() {
	ctx := context.Background()
	c, err := client.New(client.Options{URLs: []string{os.Getenv("WATERCLOCK_URL")}})
	if err != nil {
		log.Fatal(err)
	}
	d, err := c.Schedule(ctx, "timers", "order-17-reminder",
		waterclock.After(24*time.Hour), waterclock.To("reminders"), waterclock.Value([]byte("still interested?")))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Outcome, d.Timer.ID)

	t, err := c.Get(ctx, "timers", "order-17-reminder")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s to %s: %s\n", t.State, t.Target.Topic, t.Value)

	if d, err = c.Cancel(ctx, "timers", "order-17-reminder"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Outcome)
	// Output:
	// scheduled order-17-reminder
	// pending to reminders: still interested?
	// cancelled
}

// Each reason of an error is a constant.
func ExampleError() {
	ctx, c := context.Background(), connect()
	_, err := c.Cancel(ctx, "timers", "nobody")
	fmt.Println(errors.Is(err, client.ReasonNotFound))

	_, err = c.Schedule(ctx, "timers", "far", waterclock.After(200*365*24*time.Hour), waterclock.To("reminders"))
	fmt.Println(errors.Is(err, waterclock.ReasonBeyondHorizon))

	var e *client.Error
	fmt.Println(errors.As(err, &e), e.Status)
	// Output:
	// true
	// true
	// true 400
}

// A condition leaves alone what somebody else has scheduled since.
func ExampleClient_Cancel_condition() {
	ctx, c := context.Background(), connect()
	in := func(d time.Duration) client.Decision {
		d1, err := c.Schedule(ctx, "timers", "invoice-3", waterclock.After(d), waterclock.To("reminders"))
		if err != nil {
			log.Fatal(err)
		}
		return d1
	}
	mine, theirs := in(24*time.Hour), in(48*time.Hour)
	_, err := c.Cancel(ctx, "timers", "invoice-3", waterclock.If(mine.Source.String()))

	var e *client.Error
	if errors.Is(err, client.ReasonConditionNotMet) && errors.As(err, &e) {
		fmt.Println("pending is theirs:", e.Pending.Source == theirs.Source)
	}
	// Output: pending is theirs: true
}

// Pause keeps a timer from firing, and Resume lets it fire again. Trigger fires it now.
func ExampleClient_Pause() {
	ctx, c := context.Background(), connect()
	if _, err := c.Schedule(ctx, "timers", "report", waterclock.Cron("0 9 * * mon-fri"),
		waterclock.Zone("Africa/Lagos"), waterclock.To("reports")); err != nil {
		log.Fatal(err)
	}
	for _, steer := range []func(context.Context, string, string, ...waterclock.Option) (client.Decision, error){
		c.Pause, c.Pause, c.Resume, c.Cancel,
	} {
		d, err := steer(ctx, "timers", "report")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Outcome)
	}
	// Output:
	// paused
	// unchanged
	// resumed
	// cancelled
}

// Move makes a pending timer due at another time, and keeps the rest. MoveAll does so with many. If its job has not
// come to an end, a second one with its position moves the others, and none twice.
func ExampleClient_Move() {
	ctx, c := context.Background(), connect()
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, id := range []string{"mail/1", "mail/2"} {
		if _, err := c.Schedule(ctx, "timers", id, waterclock.At(at), waterclock.To("mails")); err != nil {
			log.Fatal(err)
		}
	}
	d, err := c.Move(ctx, "timers", "mail/1", waterclock.At(at.Add(time.Minute)))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Outcome, d.Timer.Due.Sub(at))

	o := client.JobOptions{By: time.Hour}
	for range 2 {
		job, err := c.StartJob(ctx, "timers", client.MoveAll, client.Filter{Prefix: "mail/"}, o)
		if err == nil {
			job, err = c.WaitJob(ctx, job, nil)
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.Changed, "moved,", job.Spared, "spared")
		o.UnchangedSince = job.Position
	}
	// Output:
	// moved 1m0s
	// 2 moved, 0 spared
	// 0 moved, 2 spared
}

// Many timers go in one call. With a key, a repeated call schedules nothing twice.
func ExampleClient_ScheduleAll() {
	ctx, c := context.Background(), connect()
	var requests []*kgo.Record
	for _, day := range []int{1, 3, 7} {
		r, err := waterclock.Schedule("timers", fmt.Sprintf("trial-17/day-%d", day),
			waterclock.After(time.Duration(day)*24*time.Hour), waterclock.To("mails"))
		if err != nil {
			log.Fatal(err)
		}
		requests = append(requests, client.Unnamed(r))
	}
	for range 2 {
		results, err := c.ScheduleAll(ctx, "timers", client.Batch{Requests: requests, Key: "trial-17"})
		if err != nil {
			log.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				log.Fatal(r.Err)
			}
			fmt.Println(r.Decision.Outcome)
		}
	}
	// Output:
	// scheduled
	// scheduled
	// scheduled
	// unchanged
	// unchanged
	// unchanged
}

// A list is an iterator over all pages.
func ExampleClient_List() {
	ctx, c := context.Background(), connect()
	for _, id := range []string{"customer-17/a", "customer-17/b", "customer-18/a"} {
		if _, err := c.Schedule(ctx, "timers", id, waterclock.After(time.Hour), waterclock.To("mails")); err != nil {
			log.Fatal(err)
		}
	}
	for t, err := range c.List(ctx, "timers", client.Filter{Prefix: "customer-17/"}, client.In(client.ByID)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.ID)
	}
	n, err := c.Count(ctx, "timers", client.Filter{Prefix: "customer-"})
	fmt.Println(n.N, n.Exact, err)
	// Output:
	// customer-17/a
	// customer-17/b
	// 3 true <nil>
}

// A job changes all timers that a filter selects.
func ExampleClient_StartJob() {
	ctx, c := context.Background(), connect()
	for _, id := range []string{"gone/1", "gone/2"} {
		if _, err := c.Schedule(ctx, "timers", id, waterclock.After(time.Hour), waterclock.To("mails")); err != nil {
			log.Fatal(err)
		}
	}
	job, err := c.StartJob(ctx, "timers", client.CancelAll, client.Filter{Prefix: "gone/"}, client.JobOptions{})
	if err != nil {
		log.Fatal(err)
	}
	job, err = c.WaitJob(ctx, job, nil)
	fmt.Println(job.State, job.Changed, err)
	// Output: done 2 <nil>
}

// A stream of events goes on until the caller, or the context, ends it.
func ExampleClient_Watch() {
	ctx, c := context.Background(), connect()
	began := func() {
		if _, err := c.Schedule(ctx, "timers", "watched", waterclock.After(0), waterclock.To("mails")); err != nil {
			log.Fatal(err)
		}
	}
	for e, err := range c.Watch(ctx, "timers", client.Events{ID: "watched", Began: began}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Type, e.ID)
		if e.Type == waterclock.EventFired {
			break
		}
	}
	// Output:
	// scheduled watched
	// fired watched
}

// Requests go through an existing kgo client, here through waterclocktest in its place. A rejected one is a dead
// letter, which is sent again with other headers.
func ExampleClient_Resend() {
	ctx, s := context.Background(), waterclocktest.Start(waterclocktest.Options{})
	defer s.Close()
	c, err := client.New(client.Options{URLs: []string{s.URL}, Producer: s}) // a *kgo.Client
	if err != nil {
		log.Fatal(err)
	}
	d, err := c.Schedule(ctx, "timers", "far", waterclock.After(200*365*24*time.Hour), waterclock.To("mails"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Outcome, d.Source)

	for letter, err := range c.DeadLetters(ctx, "timers", client.Letters{Reason: waterclock.ReasonBeyondHorizon}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(letter.ID, letter.Reason)
		sooner, err := waterclock.Schedule("timers", letter.ID, waterclock.After(time.Hour), waterclock.To("mails"))
		if err != nil {
			log.Fatal(err)
		}
		d, err := c.Resend(ctx, "timers", letter.LetterID, &client.Correction{Headers: sooner.Headers})
		fmt.Println(d.Outcome, err)
	}
	// Output:
	// written timers/0/0
	// far beyond-horizon
	// scheduled <nil>
}

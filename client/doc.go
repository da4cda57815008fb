// Package client calls waterclock's HTTP API: it schedules timers and waits for the decision, finds them, steers them
// one by one or in bulk, and watches what happens to them.
//
//	c, err := client.New(client.Options{URLs: []string{"http://10.0.0.1:8681", "http://10.0.0.2:8681"}})
//	if err != nil {
//		return err
//	}
//	d, err := c.Schedule(ctx, "timers", "order-17-reminder",
//		waterclock.After(24*time.Hour), waterclock.To("reminders"), waterclock.Value(payload))
//
// The request topic, the ID and the options are those of [waterclock.Schedule]. When Schedule returns, the owner of the
// timer has committed its decision d, and any instance shows the timer. [Client.Cancel], [Client.Trigger],
// [Client.Pause] and [Client.Resume] do the same for a pending timer.
//
// # Errors
//
// A rejected call is an [*Error]. Its reasons are constants, of this package and of package waterclock, that errors.Is
// takes:
//
//	switch _, err := c.Cancel(ctx, "timers", "order-17-reminder"); {
//	case errors.Is(err, client.ReasonNotFound): // it has fired, or never was
//	case errors.Is(err, waterclock.ReasonOverQuota): // later
//	case err != nil:
//		return err
//	}
//
// # Retries
//
// A call is repeated at the next instance, with a growing pause, until Options.RetryFor or its context ends. If nothing
// can have been written, every call is repeated. If the answer is lost, only calls that do no harm twice are: those
// that read; Cancel, Pause and Resume; and Schedule, if the first timer cannot have fired yet, or if
// [waterclock.Remember] and [waterclock.IfAbsent] make it count once. Any other call fails with [ReasonUnknownOutcome].
// After a lost answer Decision.Repeated and Error.Repeated say that an earlier attempt may have made the change that
// the last one found: so Cancel may fail with [ReasonNotFound] although this very call has cancelled the timer.
//
// # Many timers
//
// [Client.List], [Client.Watch], [Client.History] and [Client.DeadLetters] are iterators. They read page after page,
// and end after the first error:
//
//	for t, err := range c.List(ctx, "timers", client.Filter{Prefix: "customer-17/"}) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(t.ID, t.Due)
//	}
//
// [Client.StartJob] changes all timers that a filter selects, and [Client.WaitJob] follows the job to its end.
//
// # Through Kafka
//
// With Options.Producer requests go through an existing kgo client, in its transaction if it has one. Then there is no
// decision to wait for: Decision.Outcome is [Written].
//
// # Tests
//
// Package waterclocktest has a server that speaks the same API, decides with the product's own code, and fires by a
// clock that the test moves.
package client

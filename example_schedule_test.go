package waterclock_test

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

func show(rec *kgo.Record) {
	fmt.Printf("key %s, value %s\n", rec.Key, rec.Value)
	for _, h := range rec.Headers {
		fmt.Printf("%s: %s\n", h.Key, h.Value)
	}
}

// A timer that is due some time after its request.
func ExampleSchedule() {
	rec, err := waterclock.Schedule("timers", "order-17-reminder",
		waterclock.After(24*time.Hour),
		waterclock.To("reminders"),
		waterclock.Value([]byte(`{"order":17}`)))
	if err != nil {
		fmt.Println(err)
		return
	}
	show(rec)
	// Output:
	// key order-17-reminder, value {"order":17}
	// timer-after: 86400000ms
	// timer-target-topic: reminders
}

// A timer that is due at an instant. It has a header that is passed through, and its emission has a key of its own.
func ExampleSchedule_at() {
	rec, err := waterclock.Schedule("timers", "invoice-5-due",
		waterclock.At(time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)),
		waterclock.To("invoices"),
		waterclock.Key([]byte("customer-3")),
		waterclock.Header("type", []byte("InvoiceDue")),
		waterclock.Value([]byte("5")))
	if err != nil {
		fmt.Println(err)
		return
	}
	show(rec)
	// Output:
	// key invoice-5-due, value 5
	// timer-at: 1893488400000
	// timer-target-topic: invoices
	// timer-target-key: customer-3
	// type: InvoiceDue
}

// A timer that recurs at an interval, four times.
func ExampleEvery() {
	rec, err := waterclock.Schedule("timers", "survey-3",
		waterclock.Every(15*time.Minute), waterclock.Count(4), waterclock.To("mail.out"),
		waterclock.Value([]byte("still there?")))
	if err != nil {
		fmt.Println(err)
		return
	}
	show(rec)
	// Output:
	// key survey-3, value still there?
	// timer-every: 900000ms
	// timer-count: 4
	// timer-target-topic: mail.out
}

// A timer that recurs every weekday at nine in Lagos until the end of the year. Days that
// were missed are skipped.
func ExampleCron() {
	rec, err := waterclock.Schedule("timers", "report-lagos",
		waterclock.Cron("0 9 * * mon-fri"), waterclock.Zone("Africa/Lagos"),
		waterclock.Until(time.Date(2030, 12, 31, 23, 59, 59, 0, time.UTC)),
		waterclock.CatchUp(waterclock.CatchUpNone),
		waterclock.To("reports"), waterclock.Value([]byte("{}")))
	if err != nil {
		fmt.Println(err)
		return
	}
	show(rec)
	// Output:
	// key report-lagos, value {}
	// timer-cron: 0 9 * * mon-fri
	// timer-zone: Africa/Lagos
	// timer-until: 1924991999000
	// timer-catch-up: none
	// timer-target-topic: reports
}

// A timer that expires if it would be more than five minutes late.
func ExampleMaxLate() {
	rec, err := waterclock.Schedule("timers", "taxi-8",
		waterclock.After(time.Hour), waterclock.MaxLate(5*time.Minute), waterclock.To("calls"),
		waterclock.Value([]byte("now")))
	if err != nil {
		fmt.Println(err)
		return
	}
	show(rec)
	// Output:
	// key taxi-8, value now
	// timer-after: 3600000ms
	// timer-max-late: 300000ms
	// timer-target-topic: calls
}

// A tombstone later: the emission deletes its key from a compacted topic.
func ExampleNullValue() {
	rec, err := waterclock.Schedule("timers", "session-9",
		waterclock.After(30*time.Minute), waterclock.To("sessions"), waterclock.NullValue())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rec.Value == nil)
	// Output: true
}

// Schedule names all faults of a request at once.
func ExampleSchedule_faults() {
	_, err := waterclock.Schedule("timers", "", waterclock.To("no such/topic"))
	fmt.Println(err)
	// Output:
	// build request for timer "": an ID has 1 to 512 bytes, not 0
	// To: "no such/topic" cannot be the name of a topic
	// give exactly one of At and After, not 0, or Every or Cron
}

// A cancel is a record with the timer's ID, a null value and nothing else.
func ExampleCancel() {
	rec, err := waterclock.Cancel("timers", "order-17-reminder")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(rec.Key), rec.Value == nil, len(rec.Headers))
	// Output: order-17-reminder true 0
}

// Reasons is the list that dead letters choose from.
func ExampleReasons() {
	for _, r := range waterclock.Reasons()[:2] {
		fmt.Printf("%s: %s\n", r, r.Meaning())
	}
	// Output:
	// bad-key: The record's key, which is the timer's ID, is missing, empty or longer than 512 bytes.
	// too-many-headers: The request has more headers than the limit (128, those of waterclock itself not counted).
}

// says prints the headers of a request. A request that steers a timer has nothing else.
func says(rec *kgo.Record) {
	for _, h := range rec.Headers {
		fmt.Printf("%s %s: %s\n", rec.Key, h.Key, h.Value)
	}
}

// Requests that pause, resume and trigger a pending timer.
func ExampleTrigger() {
	for _, steer := range []func(string, string, ...waterclock.Option) (*kgo.Record, error){
		waterclock.Pause, waterclock.Resume, waterclock.Trigger,
	} {
		rec, err := steer("timers", "order-17-reminder")
		if err != nil {
			fmt.Println(err)
			return
		}
		says(rec)
	}
	// Output:
	// order-17-reminder timer-pause: true
	// order-17-reminder timer-resume: true
	// order-17-reminder timer-trigger: true
}

// A timer that is scheduled only if none is pending, and a cancel that does nothing if another request has
// replaced the timer in the meantime.
func ExampleIf() {
	rec, err := waterclock.Schedule("timers", "order-17-reminder",
		waterclock.If(waterclock.IfAbsent),
		waterclock.After(time.Hour),
		waterclock.To("reminders"))
	if err != nil {
		fmt.Println(err)
		return
	}
	says(rec)
	scheduled := waterclock.Source{Topic: "timers", Partition: 2, Offset: 1234} // where that request was written
	if rec, err = waterclock.Cancel("timers", "order-17-reminder", waterclock.If(scheduled.String())); err != nil {
		fmt.Println(err)
		return
	}
	says(rec)
	// Output:
	// order-17-reminder timer-if: absent
	// order-17-reminder timer-after: 3600000ms
	// order-17-reminder timer-target-topic: reminders
	// order-17-reminder timer-cancel: true
	// order-17-reminder timer-if: timers/2/1234
}

// A request that may be sent more than once schedules one timer, even if the second copy arrives after the
// firing.
func ExampleRemember() {
	r, err := waterclock.Schedule("timers", "order-17",
		waterclock.After(10*time.Minute), waterclock.If(waterclock.IfAbsent), waterclock.Remember(time.Hour),
		waterclock.To("calls"),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, h := range r.Headers {
		fmt.Printf("%s: %s\n", h.Key, h.Value)
	}
	// Output:
	// timer-after: 600000ms
	// timer-if: absent
	// timer-remember: 3600000ms
	// timer-target-topic: calls
}

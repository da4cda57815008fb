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

// A timer that is due at an instant, with a header that travels with it, and an
// emission that has a key of its own.
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

// All that is wrong with a request is said at once.
func ExampleSchedule_faults() {
	_, err := waterclock.Schedule("timers", "", waterclock.To("no such/topic"))
	fmt.Println(err)
	// Output:
	// build request for timer "": an ID has 1 to 512 bytes, not 0
	// To: "no such/topic" cannot be the name of a topic
	// give exactly one of At and After, not 0
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

package contract

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// putCalendar writes the rules of a calendar, as a plain client does that has read docs/internals/FORMAT.md. No rules
// delete it.
func (r *recurrence) putCalendar(name, rules string) {
	r.Helper()
	rec := &kgo.Record{Topic: r.Group() + ".waterclock.calendars", Key: []byte(name), Value: []byte(rules)}
	if rules == "" {
		rec.Value = nil
	}
	if err := r.Client.ProduceSync(r.Context(), rec).FirstErr(); err != nil {
		r.Fatal(err)
	}
}

// hours are rules that exclude the time between two instants of one day.
func hours(from, to time.Time) string {
	return fmt.Sprintf(`{"hours": ["%s-%s"]}`, from.UTC().Format(time.TimeOnly), to.UTC().Format(time.TimeOnly))
}

// Timers with calendars: skipped, moved on and moved back, recurring and plain. A calendar holds for each request that
// is written after it.
func TestNotOnCalendars(t *testing.T) {
	t.Parallel()
	r := newRecurrence(t)
	r.serve(r.config(), 1)
	first := r.soon(6 * time.Second)
	from, to := first.Add(2*every), first.Add(5*every) // the occurrences 3, 4 and 5
	r.putCalendar("always", `{"weekly": ["0-6"]}`)
	r.putCalendar("busy", hours(from, to))
	on := func(shift string) []string {
		return []string{"timer-count", "4", "timer-not-on", "busy", "timer-shift", shift}
	}
	inside := millis(from.Add(time.Second / 2))
	r.Send(
		r.recurring("skip", "1", first, on("skip")...), r.recurring("next", "1", first, on("next")...),
		r.recurring("previous", "1", first, on("previous")...),
		r.request("skipped", "1", "timer-at", inside, "timer-not-on", "busy"),
		r.request("on", "1", "timer-at", inside, "timer-not-on", "busy", "timer-shift", "next"),
		r.request("back", "1", "timer-at", inside, "timer-not-on", "busy", "timer-shift", "previous"),
		r.request("unknown", "1", "timer-at", inside, "timer-not-on", "holidays"),
		r.recurring("never", "1", first, "timer-not-on", "always"))
	r.fires(4, "skip", "next", "previous")
	r.Out.Quiet(2 * every)
	by := r.over()
	for id, want := range map[string][]time.Time{
		"skip":     {first, first.Add(every), to, to.Add(every)},
		"next":     {first, first.Add(every), to, to.Add(every)},
		"previous": {first, first.Add(every), from.Add(-time.Millisecond), to},
		"on":       {to}, "back": {from.Add(-time.Millisecond)}, "skipped": nil, "unknown": nil, "never": nil,
	} {
		var got []string
		for i, f := range by[id] {
			if got = append(got, time.UnixMilli(f.due).UTC().Format("04:05.000")); f.number != int64(i+1) {
				t.Errorf("%s: the %d. firing has number %d", id, i+1, f.number)
			}
		}
		var wants []string
		for _, at := range want {
			wants = append(wants, at.UTC().Format("04:05.000"))
		}
		if fmt.Sprint(got) != fmt.Sprint(wants) {
			t.Errorf("%s has fired for %v, want %v", id, got, wants)
		}
	}
	refused := make(map[string]string)
	for _, letter := range r.Committed(r.Requests + deadSuffix) {
		refused[string(letter.Key)] = letter.Header("waterclock-reason")
	}
	if len(refused) != 2 || refused["unknown"] != "unknown-calendar" || refused["never"] != "never-due" {
		t.Errorf("refused %v", refused)
	}
}

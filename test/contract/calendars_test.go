package contract

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
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

// observed is a setup with events and an API.
func observed(t *testing.T, partitions int32) (r *recurrence, events *kafkatest.Collector) {
	t.Helper()
	r = &recurrence{setup: newSetup(t, kafkatest.Shared(t), partitions, 1)}
	cfg := r.withEvents()
	r.serve(cfg, int(partitions))
	return r, kafkatest.Collect(t, r.Cluster, topics.Events(r.Requests))
}

func (r *recurrence) withEvents() *config.Config {
	cfg := r.policy(func(p *config.Policy) { p.Events = true })
	cfg.SessionTimeout, cfg.API = session, "127.0.0.1:0"
	return cfg
}

// become waits until there are n events, and compares the last len(wants) of them: type, due time and detail, by ID.
func (r *recurrence) become(events *kafkatest.Collector, n int, wants map[string]string) {
	r.Helper()
	records := events.WaitFor(n, patience)
	if len(records) != n {
		r.Fatalf("%d events, want %d", len(records), n)
	}
	for _, rec := range records[n-len(wants):] {
		e, err := waterclock.ParseEvent(rec.Record)
		if err != nil {
			r.Fatal(err)
		}
		got := string(e.Type)
		if e.Pending != nil {
			got += " for " + e.Pending.Due.UTC().Format(time.TimeOnly+".000")
		}
		if e.Detail != "" {
			got += ", " + e.Detail
		}
		if got != wants[e.ID] {
			r.Errorf("%s: %s, want %q", e.ID, got, wants[e.ID])
		}
	}
}

// Pending timers follow a calendar when it is put, changed and deleted: to later times and to earlier ones, as events
// say. A timer that fires once and is skipped expires, which is its only event. A deleted calendar excludes nothing.
func TestPendingTimersFollowACalendar(t *testing.T) {
	t.Parallel()
	r, events := observed(t, 1)
	x := r.now().Add(3 * time.Hour).Truncate(time.Hour)
	in := func(d time.Duration) string { return " for " + x.Add(d).UTC().Format(time.TimeOnly+".000") }
	r.putCalendar("busy", hours(x.Add(-time.Hour), x.Add(-time.Minute)))
	names := []string{"skip", "next", "previous", "once skip", "once next", "once previous", "always free"}
	const moving = 5 // of them: calendars leave no time for "once skip", which waits for its old one
	var recs []*kgo.Record
	scheduled := make(map[string]string)
	for i, name := range names {
		at, shift := x, []string{"skip", "next", "previous"}[i%3]
		if name == "always free" {
			at = x.Add(12 * time.Hour)
		}
		headers := []string{"timer-at", millis(at), "timer-not-on", "busy", "timer-shift", shift}
		if i < 3 {
			headers = append(headers, "timer-every", "30m")
		}
		recs = append(recs, r.request(name, "1", headers...))
		scheduled[name] = "scheduled" + in(0)
	}
	scheduled["always free"] = "scheduled" + in(12*time.Hour)
	r.Send(recs...)
	r.become(events, len(names), scheduled)

	r.putCalendar("busy", hours(x.Add(-time.Minute), x.Add(20*time.Minute)))
	later := map[string]string{"skip": in(30 * time.Minute), "next": in(20 * time.Minute),
		"previous": in(-time.Minute - time.Millisecond), "once next": in(20 * time.Minute),
		"once previous": in(-time.Minute - time.Millisecond)}
	for id := range later {
		later[id] = "rescheduled" + later[id]
	}
	r.become(events, len(names)+moving, later)

	r.putCalendar("busy", hours(x.Add(-2*time.Minute), x.Add(10*time.Minute))) // both ends are earlier
	earlier := map[string]string{"next": in(10 * time.Minute), "previous": in(-2*time.Minute - time.Millisecond),
		"once next": in(10 * time.Minute), "once previous": in(-2*time.Minute - time.Millisecond)}
	for id := range earlier {
		earlier[id] = "rescheduled" + earlier[id]
	}
	r.become(events, len(names)+moving+4, earlier)

	r.putCalendar("busy", "")
	free := make(map[string]string)
	for _, id := range []string{"skip", "next", "previous", "once next", "once previous"} {
		free[id] = "rescheduled" + in(0)
	}
	r.become(events, len(names)+moving+4+5, free)
	// A deleted calendar is unknown to new requests, and one that expires at once was never pending.
	r.putCalendar("busy", hours(x.Add(-time.Minute), x.Add(20*time.Minute)))
	r.Send(r.request("skipped", "1", "timer-at", millis(x), "timer-not-on", "busy"))
	all := events.WaitFor(len(names)+moving+4+5+5+1, patience)
	for _, rec := range all {
		if e, err := waterclock.ParseEvent(rec.Record); err != nil || e.ID == "skipped" &&
			(e.Type != waterclock.EventExpired || e.Detail != "calendar busy excludes its time") {
			t.Errorf("%s: %v, %+v", rec.Key, err, e)
		}
	}
	events.Quiet(quiet)
	r.in.Balanced(float64(len(names)))
}

// A calendar that was mistyped, and excludes everything, ends timers only when they are due by the rules before. If it
// is corrected by then, nothing is lost.
func TestAMistypedCalendarMayBeCorrected(t *testing.T) {
	t.Parallel()
	r, events := observed(t, 1)
	first := r.soon(10 * time.Second)
	names := []string{"fixed", "wrong"}
	for _, name := range names {
		r.putCalendar(name, `{}`)
		r.Send(r.recurring(name, "1", first, "timer-count", "3", "timer-not-on", name),
			r.request(name+" once", "1", "timer-at", millis(first), "timer-not-on", name))
	}
	const n = 4
	events.WaitFor(n, patience)
	for _, name := range names {
		r.putCalendar(name, `{"weekly": ["0-6"]}`)
	}
	r.at(first.Add(-3 * time.Second)) // the pass is over
	if got := len(events.Records()); got != n {
		t.Errorf("%d events before timers are due, want %d", got, n)
	}
	r.putCalendar("fixed", `{}`)
	r.fires(3, "fixed")
	by := r.over()
	if len(by["fixed"]) != 3 || len(by["fixed once"]) != 1 || len(by["wrong"]) != 0 || len(by["wrong once"]) != 0 {
		t.Errorf("fired: %v", by)
	}
	r.numbered("fixed", by["fixed"], first.UnixMilli())
	last, at := make(map[string]waterclock.Event), make(map[string]time.Time)
	for _, rec := range events.Records() {
		e, err := waterclock.ParseEvent(rec.Record)
		if err != nil {
			t.Fatal(err)
		}
		last[e.ID], at[e.ID] = e, rec.Timestamp
	}
	for id, want := range map[string]waterclock.EventType{"fixed": waterclock.EventFired,
		"fixed once": waterclock.EventFired, "wrong": waterclock.EventCompleted,
		"wrong once": waterclock.EventExpired} {
		e := last[id]
		if e.Type != want || at[id].Before(first) {
			t.Errorf("%s: %s at %s, want %s from %s on", id, e.Type, at[id], want, first)
		}
	}
	if e := last["wrong once"]; e.Detail != "calendar wrong excludes its time" {
		t.Errorf("the detail of what is excluded is %q", e.Detail)
	}
}

// A calendar whose PUT was answered holds for the request that is written next, whichever instance owns its partition.
func TestAnAnsweredPutHoldsForTheNextRequest(t *testing.T) {
	t.Parallel()
	const partitions, n = 2, 20
	r, events := observed(t, partitions)
	one := r.in
	two := rig.Serve(r.T, r.withEvents(), node.Options{})
	r.Shared(one, two)
	apis := []*caller.Caller{one.API(), two.API()}
	x := r.now().Add(3 * time.Hour).Truncate(time.Hour)
	for i := range n {
		to := x.Add(time.Duration(1+i) * time.Minute)
		name := fmt.Sprint("of-", i%3)
		status := 200
		if i < 3 {
			status = 201
		}
		if a := apis[i%2].Call("PUT", "/v1/calendars/"+name, hours(x, to)); a.Status != status {
			t.Fatalf("PUT of a calendar: %d %s, want %d", a.Status, a.Text, status)
		}
		id := fmt.Sprint("after-", i)
		a, b := r.request(id, "1", "timer-at", millis(x), "timer-not-on", name, "timer-shift", "next"),
			r.request(id+"'", "1", "timer-at", millis(x), "timer-not-on", name, "timer-shift", "next")
		r.Send(a, b)
	}
	first := make(map[string]waterclock.Event)
	r.until("each request has an event", func() bool {
		for _, rec := range events.Records() {
			e, err := waterclock.ParseEvent(rec.Record)
			if _, known := first[e.ID]; err == nil && !known {
				first[e.ID] = e
			}
		}
		return len(first) == 2*n
	})
	for id, e := range first {
		var i int
		if _, err := fmt.Sscanf(id, "after-%d", &i); err != nil {
			t.Fatal(err)
		}
		want := x.Add(time.Duration(1+i) * time.Minute)
		if e.Type != waterclock.EventScheduled || e.Pending == nil || !e.Pending.Due.Equal(want) {
			t.Errorf("%s: %+v, want it scheduled for %s", id, e, want)
		}
	}
}

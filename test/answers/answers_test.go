package answers

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/test/rig"
)

// Timers of four partitions are listed page by page while others come, fire and are
// cancelled, an instance stops and another one joins: what was there all along is in the
// list once, in order, wherever the cursor came from.
func TestPagesAcrossRebalances(t *testing.T) {
	const stay, perPage, half = 20_000, 500, 15 * time.Second
	w := newSetup(t)
	first, second := w.serve(), w.serve()
	cl := w.c.Client(t)
	due := time.Now().Add(time.Hour)
	recs, early := make([]*kgo.Record, stay), int64(0)
	for i := range recs { // many are due at once
		in := time.Duration(i*7919%3000) * 10 * time.Millisecond
		recs[i] = rig.Timer(w.requests, w.target, id(i), due.Add(in))
		if in < half {
			early++
		}
	}
	rig.Send(t, cl, recs...)
	stream := rig.StartStream(t, w.c.Client(t), 500, func(n int) *kgo.Record {
		if n%5 == 0 {
			r := request(fmt.Sprint("stream-", max(0, n-20)), waterclock.HeaderCancel, "true")
			r.Topic = w.requests
			return r
		}
		return rig.Timer(w.requests, w.target, fmt.Sprint("stream-", n),
			time.Now().Add(time.Duration(n*7919%4000)*time.Millisecond))
	})
	await.Until(t, patience, "all are pending", func() bool { return w.count(query.Filter{Prefix: "stay-"}) == stay })

	var third *rig.Instance
	for _, walk := range []struct {
		name  string
		page  query.Page
		event func()
	}{
		{"in peace, by due time", query.Page{Order: query.ByDue}, func() {}},
		{"one stops, by due time", query.Page{Order: query.ByDue}, func() {
			if err := first.Stop(); err != nil {
				t.Fatal(err)
			}
		}},
		{"one joins, by ID", query.Page{Order: query.ByID, Filter: query.Filter{Prefix: "st"}}, func() {
			third = w.serve()
			await.Until(t, patience, "it has a partition", func() bool { return live(third) > 0 })
		}},
		{"the other stops, by ID", query.Page{Order: query.ByID, Filter: query.Filter{Target: w.target}}, func() {
			if err := second.Stop(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		walk.page.Limit = perPage
		seen, pages, longest, start := map[string]int{}, 0, time.Duration(0), time.Now()
		var last query.Cursor
		for {
			if pages++; pages == 15 {
				walk.event()
			}
			at := time.Now()
			l := w.page(walk.page)
			longest = max(longest, time.Since(at))
			for _, q := range l.Timers {
				place := query.CursorOf(walk.page.Order, q)
				if place.Compare(last) <= 0 {
					t.Fatalf("%s: %s at %v behind %v", walk.name, q.ID, place, last)
				}
				last = place
				seen[string(q.ID)]++
			}
			if l.Next.IsZero() {
				break
			}
			var err error
			if walk.page.After, err = query.ParseCursor(l.Next.String()); err != nil {
				t.Fatal(err)
			}
		}
		wrong := 0
		for i := range stay {
			if seen[id(i)] != 1 {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("%s: %d of %d timers are listed not once", walk.name, wrong, stay)
		}
		t.Logf("%s: %d pages with %d timers in %s, the longest took %s", walk.name, pages, len(seen),
			time.Since(start).Round(time.Millisecond), longest.Round(time.Millisecond))
	}
	stream.Stop()
	await.Until(t, patience, "what streamed has fired", func() bool { return w.count(query.Filter{}) == stay })
	if n := w.count(query.Filter{DueAfter: due.UnixMilli(), DueBefore: due.Add(half).UnixMilli()}); n != early {
		t.Errorf("%d are due in the first half, want %d", n, early)
	}
}

// What becomes of a request is told once it is committed, with the words of its event and
// its dead letter, and seen at once.
func TestDecisionsAreSeen(t *testing.T) {
	w := newSetup(t)
	w.serve()
	cl := w.c.Client(t)
	out := kafkatest.Collect(t, w.c, w.target)
	dead := kafkatest.Collect(t, w.c, topics.DeadLetters(w.requests))
	const to, after, hour = waterclock.HeaderTargetTopic, waterclock.HeaderAfter, "1h"
	fired := 0
	for round := range 3 {
		var source string
		id := fmt.Sprint("id-", round)
		for _, x := range []struct {
			name    string
			headers func() []string
			outcome string
			reason  waterclock.Reason
			pending query.State // empty: nothing
			changes bool        // it is another one
		}{
			{"nothing to cancel", func() []string { return []string{waterclock.HeaderCancel, "true"} }, "not-found",
				"", "", false},
			{"schedule", func() []string { return []string{after, hour, to, w.target} }, "scheduled", "",
				query.Pending, true},
			{"replace", func() []string { return []string{after, hour, to, w.target} }, "replaced", "",
				query.Pending, true},
			{"no condition",
				func() []string {
					return []string{after, hour, to, w.target, waterclock.HeaderIf,
						waterclock.IfAbsent}
				}, "condition-not-met", "", query.Pending, false},
			{"pause", func() []string { return []string{waterclock.HeaderPause, "true"} }, "paused", "",
				query.Paused, false},
			{"paused already", func() []string { return []string{waterclock.HeaderPause, "true"} }, "not-found", "",
				query.Paused, false},
			{"resume", func() []string {
				return []string{waterclock.HeaderResume, "true", waterclock.HeaderIf, source}
			}, "resumed", "", query.Pending, false},
			{"cancel", func() []string {
				return []string{waterclock.HeaderCancel, "true", waterclock.HeaderIf,
					source}
			}, "cancelled", "", "", false},
			{"rejected", func() []string { return []string{to, w.target} }, "rejected", waterclock.ReasonNoDueTime, "",
				false},
			{"schedule", func() []string { return []string{after, hour, to, w.target} }, "scheduled", "",
				query.Pending, true},
			{"trigger", func() []string { return []string{waterclock.HeaderTrigger, "true"} }, "triggered", "",
				query.Triggered, false},
		} {
			r := request(id, x.headers()...)
			d, is := w.watched(cl, r)
			if d.Outcome != x.outcome || d.Reason != string(x.reason) || (d.Pending == nil) != (x.pending == "") ||
				d.Pending != nil && d.Pending.State != x.pending {
				t.Fatalf("%s: decided %+v, pending %+v", x.name, d, d.Pending)
			}
			if x.outcome == "triggered" { // it may have fired by now
				out.WaitFor(fired+1, patience)
				fired++
				break
			}
			if (is == nil) != (d.Pending == nil) || is != nil &&
				(is.Source != d.Pending.Source || is.State != d.Pending.State) {
				t.Fatalf("%s: left is %+v, seen is %+v", x.name, d.Pending, is)
			}
			if at := fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset); x.changes {
				if source = at; is.Source != at {
					t.Fatalf("%s: the source is %s, the request %s", x.name, is.Source, at)
				}
			}
			if x.reason != "" {
				dead.WaitFor(round+1, patience)
				l := dead.Records()[round]
				if reason, detail := l.Header(waterclock.HeaderReason),
					l.Header(waterclock.HeaderDetail); reason != d.Reason || detail != d.Detail {
					t.Errorf("told %q %q, the dead letter has %q %q", d.Reason, d.Detail, reason, detail)
				}
			}
		}
		var is *query.Timer
		await.Until(t, patience, "what was triggered is gone", func() bool {
			for n := range int32(partitions) {
				w.ask(n, func(p *partition.Partition) (err error) {
					is, err = p.Questions.Get(t.Context(), []byte(id))
					return err
				})
				if is != nil {
					return false
				}
			}
			return true
		})
	}
}

package planner

import (
	"fmt"
	"slices"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// recurring returns a timer that recurs every given number of ms, starting at first.
func recurring(id string, first, every int64, catchUp timer.CatchUp) *timer.Timer {
	return &timer.Timer{
		ID: []byte(id), Offset: 7, Due: first, Occurrence: 1,
		Recurrence: &timer.Recurrence{Every: every, Until: timer.NoUntil, CatchUp: catchUp},
	}
}

func ready(timers ...*timer.Timer) *Planner {
	p := New(0, 0, 1<<40)
	p.Load(Lowest, timer.Ref{Due: 1 << 40}, timers)
	return p
}

// fired returns the firings of a planner at an instant, up to limit, as id/occurrence, and commits them.
func fired(p *Planner, now int64, limit int) (all []string) {
	p.Fire(now, timer.Size{Entries: limit, Bytes: 1 << 40}, timer.Unlimited, free)
	s := p.Take(1<<30, 1<<40)
	if s == nil {
		return nil
	}
	for e := range s.Entries() {
		if e.Emit != nil {
			all = append(all, fmt.Sprintf("%s/%d", e.ID, e.Emit.Occurrence))
		}
	}
	p.Commit()
	return all
}

// wants compares, in any order, the firings of one instant.
func wants(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// A timer that catches up gets only the rest of a step, and only a part of that: timers that are due for the first time
// go before it.
func TestCatchingUpDoesNotDelayOthers(t *testing.T) {
	const plain = 50
	timers := []*timer.Timer{recurring("a", 1, 1, timer.CatchUpAll)}
	for i := range plain {
		timers = append(timers,
			&timer.Timer{ID: fmt.Append(nil, "p", i), Offset: int64(i), Due: 1_000_000, Occurrence: 1})
	}
	p := ready(timers...)
	p.Open(0)
	for range 3 {
		if n := len(fired(p, 999_999, 10_000)); n != maxOverdue+1 {
			t.Fatalf("%d occurrences are caught up with at a time, want %d", n, maxOverdue+1)
		}
	}
	if got := fired(p, 1_000_000, plain+1); len(got) != plain+1 || slices.Index(got, "p49") > plain {
		t.Errorf("of %d timers that are due %d fire beside one that catches up", plain, len(got)-1)
	}
}

// If more is due than fires at a time, a timer that catches up does not get its turn again before others that are due
// for the first time.
func TestCatchingUpWaitsItsTurn(t *testing.T) {
	timers := []*timer.Timer{recurring("a", 1, 1, timer.CatchUpAll)}
	for i := range 3 {
		timers = append(timers, &timer.Timer{ID: fmt.Append(nil, "p", i), Offset: int64(i), Due: 900, Occurrence: 1})
	}
	p := ready(timers...)
	p.Open(0)
	wants(t, "first", fired(p, 1000, 2), "a/1", "p0/1")
	wants(t, "then", fired(p, 1000, 2), "p1/1", "p2/1")
	wants(t, "then the others", fired(p, 1000, 2), "a/2", "a/3")
}

// Nor is it encoded in between, unlike a timer that has its turn when it is due.
func TestCatchingUpWaitsItsTurnAsAnItem(t *testing.T) {
	p := ready(recurring("a", 1, 500, timer.CatchUpAll),
		&timer.Timer{ID: []byte("b"), Offset: 8, Due: 1, Occurrence: 1},
		&timer.Timer{ID: []byte("c"), Offset: 9, Due: 1, Occurrence: 1},
		&timer.Timer{ID: []byte("d"), Offset: 10, Due: 900, Occurrence: 1})
	p.Open(0)
	wants(t, "first", fired(p, 1000, 2), "a/1", "b/1")
	wants(t, "then", fired(p, 1000, 2), "c/1", "d/1")
}

// An occurrence that was rolled back together with the firing before it is pending again, and did not expire.
func TestRolledBackOccurrencesDoNotExpire(t *testing.T) {
	p := ready(recurring("a", 100, 100, timer.CatchUpAll))
	p.Open(0)
	p.Fire(250, timer.Size{Entries: 10, Bytes: 1 << 40}, timer.Unlimited, free)
	all := slices.Collect(p.Take(100, 1<<40).Entries())
	p.RollBack(all[0])
	all[1].Expire()
	if all[1].Outcome != timer.None {
		t.Errorf("outcome %d of an occurrence that is pending", all[1].Outcome)
	}
}

// Fire reports entries that are planned because the rules of a time zone have changed like firings, because the caller
// that counts planned entries subtracts them with the segment.
func TestFireReportsTimersMovedByZoneRules(t *testing.T) {
	const nine = 9 * 3_600_000 // in UTC; by other rules than the present ones it is nine in Lagos too
	moved := func(id string, offset int64) *timer.Timer {
		return &timer.Timer{
			ID: []byte(id), Offset: offset, Due: nine, Occurrence: 1,
			Recurrence: &timer.Recurrence{Cron: "0 9 * * *", Zone: "Africa/Lagos", Until: timer.NoUntil},
		}
	}
	p := ready(moved("loaded", 1))
	p.request(timer.Request{ID: []byte("found"), Offset: 9, Steer: timer.Trigger}, moved("found", 2), false, 0)
	// The catch-up barrier is not open.
	fired, _ := p.Fire(0, timer.Size{Entries: 10, Bytes: 1 << 40}, timer.Unlimited, free)
	s := p.Take(10, 1<<40)
	if s.Firings.Entries != 2 || s.Requests.Entries != 1 {
		t.Fatalf("%d firings and %d requests are planned", s.Firings.Entries, s.Requests.Entries)
	}
	if fired != s.Firings {
		t.Errorf("fired %+v, and the segment has %+v", fired, s.Firings)
	}
	if again, _ := p.Fire(0, timer.Size{Entries: 10, Bytes: 1 << 40}, timer.Unlimited, free); again.Entries != 0 {
		t.Errorf("told again: %+v", again)
	}
}

// A trigger fires the timer that it was for, even if the rules of the timer's zone have changed since and its
// occurrence is now after the end. The timer is then over.
func TestATriggerOutlivesTheRulesOfItsZone(t *testing.T) {
	const nine = 9 * 3_600_000
	triggered := func() *timer.Timer {
		return &timer.Timer{ // nine in UTC by the old rules, eight by the present ones
			ID: []byte("x"), Offset: 7, Due: nine, Occurrence: 1,
			Steering:   &timer.Steering{Triggered: true, By: 8, At: 100},
			Recurrence: &timer.Recurrence{Cron: "0 9 * * *", Zone: "Africa/Lagos"},
		}
	}
	for _, until := range []int64{timer.NoUntil, nine - 2*3_600_000} {
		tm := triggered()
		tm.Recurrence.Until = until
		p := ready(tm)
		p.Begin(1)
		p.Open(200)
		wants(t, "loaded", fired(p, 200, 10), "x/1")
		if over := p.Pending() == 0; over != (until != timer.NoUntil) {
			t.Errorf("until %d: over is %v", until, over)
		}
		p = ready()
		p.Open(50)
		tm.Steering = &timer.Steering{Triggered: true, Paused: true, By: 8, At: 60}
		p.request(timer.Request{ID: []byte("x"), Offset: 9, Steer: timer.Resume, At: 61}, tm, true, 61)
		wants(t, "resumed", fired(p, 100, 10), "x/1")
	}
}

// A timer follows the present rules of its zone, also if the first thing that is known of it is not a load but a
// request that changes nothing, far ahead of its time, or that it is no longer parked.
func TestFoundTimersFollowThePresentZoneRules(t *testing.T) {
	const hour = 3_600_000
	by := func(ahead int64) *timer.Timer { // nine in Lagos, by rules that have the clock this far ahead of UTC
		return &timer.Timer{
			ID: []byte("x"), Offset: 7, Due: 9*hour - ahead*hour, Occurrence: 1,
			Recurrence: &timer.Recurrence{Cron: "0 9 * * *", Zone: "Africa/Lagos", Until: timer.NoUntil,
				Ahead: ahead * 3600},
		}
	}
	for _, ahead := range []int64{0, 2} {
		p := ready()
		p.known.horizon = Lowest // nothing is loaded
		p.Open(0)
		p.request(timer.Request{ID: []byte("x"), Offset: 9, Steer: timer.Resume, At: 0}, by(ahead), false, 0)
		p.Load(Lowest, timer.Ref{Due: 1 << 40}, []*timer.Timer{by(ahead)})
		wants(t, "met, before eight in UTC", fired(p, 8*hour-1, 10))
		wants(t, "met, at eight", fired(p, 8*hour, 10), "x/1")
		wants(t, "met, at nine", fired(p, 9*hour, 10))

		p = ready()
		p.Open(0)
		p.Admit([]*timer.Timer{by(2)}, nil, 7*hour)
		wants(t, "back, before eight in UTC", fired(p, 8*hour-1, 10))
		wants(t, "back, at eight", fired(p, 8*hour, 10), "x/1")
		wants(t, "back, at nine", fired(p, 9*hour, 10))
	}
}

// By the old rules the first occurrence comes when the second one comes by the present ones, so both have the same
// place. If firing the first one seemed to change nothing, it would fire again after a restart. The timer may be moved
// and fire in one step, or in two.
func TestRulesThatMoveATimerToThePlaceOfAnotherOccurrence(t *testing.T) {
	const hour = 3_600_000
	loaded := func() *Planner { // nine in Lagos is eight in UTC
		p := ready(&timer.Timer{
			ID: []byte("x"), Offset: 7, Due: 9 * hour, Occurrence: 1,
			Recurrence: &timer.Recurrence{Cron: "0 9-17 * * *", Zone: "Africa/Lagos", Until: timer.NoUntil,
				CatchUp: timer.CatchUpAll},
		})
		p.Open(0)
		return p
	}
	p := loaded()
	p.Fire(8*hour, timer.Size{Entries: 10, Bytes: 1 << 40}, timer.Unlimited, free)
	changes := p.Take(10, 1<<40).Changes()
	if len(changes) != 1 || changes[0].Timer == nil || changes[0].Timer.Occurrence != 2 {
		t.Errorf("the first occurrence is fired, and the changes are %+v", changes)
	}
	p = loaded()
	wants(t, "moved", fired(p, 7*hour, 10))
	wants(t, "at eight", fired(p, 8*hour, 10), "x/1")
	if changes := p.BeginFlush(); len(changes) != 1 || changes[0].Before != changes[0].After {
		t.Errorf("the first occurrence is fired in a step of its own, and a flush has %+v", changes)
	}
}

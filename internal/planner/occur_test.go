package planner

import (
	"fmt"
	"slices"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// recurring is a timer that recurs every ms from first on.
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

// fired is what a planner fires at an instant, up to limit, as id/occurrence; it is
// committed.
func fired(p *Planner, now int64, limit int) (all []string) {
	p.Fire(now, limit, 1<<40, free)
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
	for done := false; !done; {
		_, done = p.Apply(s, 1)
	}
	return all
}

// wants compares in any order what is due at one instant.
func wants(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Who catches up has the rest of a step, and a part of that: what is due for the first
// time goes before it.
func TestCatchingUpHoldsNobodyUp(t *testing.T) {
	const plain = 50
	timers := []*timer.Timer{recurring("a", 1, 1, timer.CatchUpAll)}
	for i := range plain {
		timers = append(timers, &timer.Timer{ID: fmt.Append(nil, "p", i), Offset: int64(i), Due: 1_000_000, Occurrence: 1})
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

// If more is due than fires at a time, a timer that catches up does not have its turn again before others that are due
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

// Nor is it encoded meanwhile, as a timer that has its turn when it is due.
func TestCatchingUpWaitsItsTurnAsAnItem(t *testing.T) {
	p := ready(recurring("a", 1, 500, timer.CatchUpAll),
		&timer.Timer{ID: []byte("b"), Offset: 8, Due: 1, Occurrence: 1},
		&timer.Timer{ID: []byte("c"), Offset: 9, Due: 1, Occurrence: 1},
		&timer.Timer{ID: []byte("d"), Offset: 10, Due: 900, Occurrence: 1})
	p.Open(0)
	wants(t, "first", fired(p, 1000, 2), "a/1", "b/1")
	wants(t, "then", fired(p, 1000, 2), "c/1", "d/1")
}

// What was rolled back with the firing before it is pending again, and did not expire.
func TestWhatIsRolledBackDoesNotExpire(t *testing.T) {
	p := ready(recurring("a", 100, 100, timer.CatchUpAll))
	p.Open(0)
	p.Fire(250, 10, 1<<40, free)
	all := slices.Collect(p.Take(100, 1<<40).Entries())
	p.RollBack(all[0])
	p.Expire(all[1])
	if all[1].Outcome != timer.None {
		t.Errorf("outcome %d of an occurrence that is pending", all[1].Outcome)
	}
}

// What is planned anew since the rules of its zone have changed is on its way as firings
// are, and Fire says so: who counts what is on its way takes it off with the segment.
func TestWhatTheRulesMoveIsSaidToBeOnItsWay(t *testing.T) {
	const nine = 9 * 3_600_000 // in UTC; by other rules than those of now it is in Lagos, too
	moved := func(id string, offset int64) *timer.Timer {
		return &timer.Timer{
			ID: []byte(id), Offset: offset, Due: nine, Occurrence: 1,
			Recurrence: &timer.Recurrence{Cron: "0 9 * * *", Zone: "Africa/Lagos", Until: timer.NoUntil},
		}
	}
	p := ready(moved("loaded", 1))
	b := NewBatch(1)
	b.Add(nil, timer.Request{ID: []byte("found"), Offset: 9, Steer: timer.Trigger}, nil)
	unknown := p.Meet(b)
	unknown.Found(nil, []*timer.Timer{moved("found", 2)}, []bool{false}, 0)
	p.Plan(b)
	fired, _ := p.Fire(0, 10, 1<<40, free) // the catch-up barrier is not open
	s := p.Take(10, 1<<40)
	if s.Firings.Entries != 2 || s.Requests.Entries != 1 {
		t.Fatalf("%d firings and %d requests are planned", s.Firings.Entries, s.Requests.Entries)
	}
	if fired != s.Firings {
		t.Errorf("fired %+v, and the segment has %+v", fired, s.Firings)
	}
	if again, _ := p.Fire(0, 10, 1<<40, free); again.Entries != 0 {
		t.Errorf("told again: %+v", again)
	}
}

// A trigger fires what it was for, also if the rules of the timer's zone have changed since and
// its occurrence lies behind the end now: the timer is over behind that.
func TestATriggerOutlivesTheRulesOfItsZone(t *testing.T) {
	const nine = 9 * 3_600_000
	triggered := func() *timer.Timer {
		return &timer.Timer{ // nine in UTC by the rules of then, eight by those of now
			ID: []byte("x"), Offset: 7, Due: nine, Occurrence: 1, Steering: &timer.Steering{Triggered: true, By: 8, At: 100},
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
		b := NewBatch(1)
		b.Add(nil, timer.Request{ID: []byte("x"), Offset: 9, Steer: timer.Resume, At: 61}, nil)
		unknown := p.Meet(b)
		tm.Steering = &timer.Steering{Triggered: true, Paused: true, By: 8, At: 60}
		unknown.Found(nil, []*timer.Timer{tm}, []bool{true}, 61)
		p.Plan(b)
		wants(t, "resumed", fired(p, 100, 10), "x/1")
	}
}

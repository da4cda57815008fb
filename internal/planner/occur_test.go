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
		_, done = p.Fold(s, 1)
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

// A firing leaves the next occurrence pending. What was missed before timers could
// fire is caught up with as its policy says.
func TestOccurrencesAndWhatWasMissed(t *testing.T) {
	p := ready(recurring("a", 100, 100, timer.CatchUpAll), recurring("l", 100, 100, timer.CatchUpLatest), recurring("n", 100, 100, timer.CatchUpNone))
	wants(t, "before the gate opens", fired(p, 350, 100))
	p.Open(350)
	wants(t, "at 350", fired(p, 350, 100), "a/1", "l/3", "a/2", "a/3")
	wants(t, "at 399", fired(p, 399, 100))
	wants(t, "at 400", fired(p, 400, 100), "a/4", "l/4", "n/4")
	wants(t, "overtaken at 620", fired(p, 620, 100), "a/5", "l/6", "n/6", "a/6")
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

// An occurrence that is too late is not emitted, and the next one is pending.
func TestTooLateExpires(t *testing.T) {
	every := recurring("e", 100, 1000, timer.CatchUpLatest)
	once := &timer.Timer{ID: []byte("o"), Due: 100, Occurrence: 1}
	for _, tm := range []*timer.Timer{every, once} {
		tm.TooLate = 50
	}
	p := ready(every, once)
	p.Open(0)
	p.Fire(150, 10, 1<<40, free)
	s := p.Take(10, 1<<40)
	n := 0
	for e := range s.Entries() {
		if n++; e.Emit != nil || e.Outcome != timer.Expired {
			t.Errorf("%s: outcome %d", e.ID, e.Outcome)
		}
	}
	for _, c := range s.Changes() {
		if want := map[string]int64{"e": 1100, "o": timer.Absent.Due}[string(c.ID)]; c.After.Ref().Due != want {
			t.Errorf("%s: %+v is left, want what is due at %d", c.ID, c.After, want)
		}
	}
	if n != 2 || len(s.Changes()) != 2 {
		t.Errorf("%d entries, changes %+v", n, s.Changes())
	}
}

// A firing that is rolled back takes those of the same timer back that were planned on
// it; a request behind them finds what is pending then.
func TestRollingBackAFiringTakesBackWhatFollows(t *testing.T) {
	p := ready(recurring("a", 100, 100, timer.CatchUpAll))
	p.Open(0)
	p.Fire(350, 10, 1<<40, free)
	b := NewBatch(1)
	b.Add(nil, timer.Request{ID: []byte("a"), Offset: 9}, nil)
	if unknown := p.Meet(b); len(unknown.IDs) > 0 {
		t.Fatal("an ID with entries is to be looked up")
	}
	p.Plan(b)
	s := p.Take(100, 1<<40)
	all := slices.Collect(s.Entries())
	if len(all) != 4 || all[3].Outcome != timer.Cancelled || all[3].Before.Due != 400 {
		t.Fatalf("%d entries, the last one %+v", len(all), all[len(all)-1])
	}
	p.RollBack(all[1])
	for i, want := range []timer.Outcome{timer.Fired, timer.None, timer.None, timer.Cancelled} {
		if all[i].Outcome != want || (all[i].Emit != nil) != (want == timer.Fired) {
			t.Errorf("entry %d has outcome %d, want %d", i, all[i].Outcome, want)
		}
	}
	if at := all[3].Before.Due; at != 200 {
		t.Errorf("the cancel finds what is due at %d, want 200", at)
	}
	if changes := s.Changes(); len(changes) != 1 || changes[0].Before.Due != 100 || changes[0].After != nil {
		t.Errorf("changes %+v", changes)
	}
}

// Without a request behind it what was rolled back is pending again, and fires when
// its target may have it.
func TestWhatIsRolledBackFiresLater(t *testing.T) {
	p := ready(recurring("a", 100, 100, timer.CatchUpAll))
	p.Open(0)
	p.Fire(250, 10, 1<<40, free)
	s := p.Take(100, 1<<40)
	p.RollBack(slices.Collect(s.Entries())[0])
	p.Return()
	wants(t, "while its entries are not folded", fired(p, 250, 10))
	wants(t, "then", fired(p, 250, 10), "a/1", "a/2")
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
	fired, _ := p.Fire(0, 10, 1<<40, free) // the gate is not open
	s := p.Take(10, 1<<40)
	if s.Firings != 2 || s.Requests != 1 {
		t.Fatalf("%d firings and %d requests are planned", s.Firings, s.Requests)
	}
	if fired.Entries != s.Firings || fired.Bytes != s.FiringBytes {
		t.Errorf("fired %+v, and the segment has %d of %d bytes", fired, s.Firings, s.FiringBytes)
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

// A timer whose zone this instance does not know waits: another instance may know it, or this one
// when its data is there. It is neither fired nor ended. A trigger needs no zone.
func TestATimerWhoseZoneIsNotKnownWaits(t *testing.T) {
	p := ready(
		&timer.Timer{ID: []byte("cron"), Offset: 1, Due: 100, Occurrence: 1, TooLate: 10,
			Recurrence: &timer.Recurrence{Cron: "0 9 * * *", Zone: "Mars/Olympus", Until: timer.NoUntil, CatchUp: timer.CatchUpAll}},
		&timer.Timer{ID: []byte("triggered"), Offset: 2, Due: 100, Occurrence: 1, Steering: &timer.Steering{Triggered: true, By: 8, At: 90},
			Recurrence: &timer.Recurrence{Cron: "0 9 * * *", Zone: "Mars/Olympus", Until: timer.NoUntil}},
		&timer.Timer{ID: []byte("plain"), Offset: 3, Due: 100, Occurrence: 1},
	)
	p.Open(50)
	fired, parkings := p.Fire(200, 10, 1<<40, free)
	if fired.Entries != 2 {
		t.Errorf("%d fire, want what is plain and what is triggered", fired.Entries)
	}
	l := parkings[Unreckoned]
	if l == nil || len(l.Timers) != 1 || string(l.Timers[0].ID) != "cron" {
		t.Fatalf("to be parked: %+v", parkings)
	}
	s := p.Take(10, 1<<40)
	for e := range s.Entries() {
		if e.Refusal != nil || e.Emit == nil {
			t.Errorf("%s: %+v", e.ID, e.Result())
		}
	}
}

// An hour that the clock was set back by is not one in which everything was missed.
func TestWhatComesAfterTheClockWasSetBackWasNotMissed(t *testing.T) {
	p := ready()
	p.Open(10_000)
	wants(t, "before", fired(p, 10_000, 10))
	wants(t, "set back", fired(p, 5000, 10))
	b := NewBatch(1)
	b.Add(nil, timer.Request{ID: []byte("n"), Offset: 7, Schedule: recurring("n", 5100, 100, timer.CatchUpNone)}, nil)
	unknown := p.Meet(b)
	unknown.Found([]timer.Ref{timer.Absent}, nil, nil, 5000)
	p.Plan(b)
	wants(t, "the first", fired(p, 5100, 10), "n/1")
	wants(t, "the last one of those that are overtaken", fired(p, 5310, 10), "n/3")
}

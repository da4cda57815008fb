package planner

import (
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// TestASkippedTimerIsRememberedFromNowOn: one that a calendar excludes ends when its request is planned, however long
// ago its time was.
func TestASkippedTimerIsRememberedFromNowOn(t *testing.T) {
	const written, now, keep = 50_000, 50_500, 1000
	all := &one{}
	all.put(t, `{"yearly": ["01-01"]}`, 0)
	schedules := &calendar.Cache{Calendars: all}
	for _, at := range []int64{0, written, 80_000} {
		tm := &timer.Timer{ID: []byte("x"), Offset: 7, Occurrence: 1, Remember: &timer.Remember{For: keep}}
		r, err := schedules.Recurrence(&timer.Recurrence{NotOn: "a"})
		if err != nil || r.Start(tm, at, written) || !r.Skip(tm, at, written) {
			t.Fatal(err)
		}
		e := Decide(schedules, &timer.Request{ID: tm.ID, Offset: 7, Schedule: tm, At: now}, nil)
		if e.Outcome != timer.Expired || !e.After.IsRemembered() || e.After.Due != now+keep {
			t.Errorf("at %d: outcome %d, and %+v is left", at, e.Outcome, e.After)
		}
	}
}

// TestEveryEndIsRemembered goes through the ways in which a timer ends. Each of them leaves the ID remembered, except
// for the two that take the ID back: a cancel, and a schedule that takes the timer's place.
func TestEveryEndIsRemembered(t *testing.T) {
	const (
		hour = 3_600_000
		end  = 10 * hour // when the memory begins
		keep = 1000
	)
	plain := func() *timer.Timer {
		return &timer.Timer{
			ID: []byte("x"), Offset: 7, Due: end, Occurrence: 1, Value: []byte("v"),
			Remember: &timer.Remember{For: keep},
		}
	}
	recurring := func(r timer.Recurrence) *timer.Timer {
		tm := plain()
		if r.Until == 0 {
			r.Until = timer.NoUntil
		}
		tm.Recurrence = &r
		return tm
	}
	steered := func(tm *timer.Timer, s timer.Steering) *timer.Timer {
		s.By = 8
		tm.Steering = &s
		return tm
	}
	late := func(tm *timer.Timer) *timer.Timer {
		tm.Due, tm.TooLate = end-hour, 1
		return tm
	}
	// missed is a recurrence of two occurrences, both before the end.
	missed := func(policy timer.CatchUp) *timer.Timer {
		tm := recurring(timer.Recurrence{Every: hour, Count: 2, CatchUp: policy})
		tm.Due = end - 2*hour
		return tm
	}
	// moved is due at nine in Lagos: at 7:00 UTC by old rules, and at 8:00 by the present ones, which is after its end.
	moved := func(s *timer.Steering) *timer.Timer {
		tm := recurring(timer.Recurrence{Cron: "0 9 * * *", Zone: "Africa/Lagos", Ahead: 2 * 3600, Until: 7*hour + 1})
		tm.Due, tm.Steering = 7*hour, s
		return tm
	}
	// over is a recurrence whose two occurrences were due before its request was written.
	over := func(s *timer.Steering) *timer.Timer {
		tm := missed(timer.CatchUpNone)
		r, err := new(calendar.Cache).Recurrence(tm.Recurrence)
		if err != nil {
			t.Fatal(err)
		}
		tm = r.SkipMissed(tm, end)
		tm.Steering = s
		return tm
	}
	refuse := func(e *Entry) { e.Refusal = &timer.Refusal{Reason: "target-refused"} }
	for _, c := range []struct {
		name    string
		timer   *timer.Timer
		request *timer.Request
		sealed  func(*Entry) // called with the firing while its step is out
		want    timer.Outcome
		free    bool // the ID is not remembered
		opened  int64
	}{
		{name: "fires", timer: plain(), want: timer.Fired},
		{name: "fires for the last time by count",
			timer: recurring(timer.Recurrence{Every: hour, Count: 1}), want: timer.Fired},
		{name: "fires for the last time by until",
			timer: recurring(timer.Recurrence{Every: hour, Until: end + 1}), want: timer.Fired},
		{name: "fires for the last time and others were missed", timer: missed(timer.CatchUpLatest), want: timer.Fired},
		{name: "all were missed, and none is caught up with",
			timer: missed(timer.CatchUpNone), opened: end, want: timer.Completed},
		{name: "its request was written after its last occurrence", timer: over(nil), want: timer.Completed},
		{name: "so, and it is resumed",
			timer:   over(&timer.Steering{Paused: true, By: 8}),
			request: &timer.Request{Steer: timer.Resume, At: end}, want: timer.Completed},
		{name: "triggered", timer: steered(plain(), timer.Steering{Triggered: true, At: end}), want: timer.Fired},
		{name: "triggered while paused",
			timer: steered(plain(), timer.Steering{Triggered: true, Paused: true, At: end}), want: timer.Fired},
		{name: "trigger", timer: plain(), request: &timer.Request{Steer: timer.Trigger, At: end}, want: timer.Fired},
		{name: "expires", timer: late(plain()), want: timer.Expired},
		{name: "expires for the last time",
			timer: late(recurring(timer.Recurrence{Every: hour, Count: 1})), want: timer.Expired},
		{name: "expires in its step", timer: plain(), sealed: (*Entry).Expire, want: timer.Expired},
		{name: "its target refuses it", timer: plain(), sealed: refuse, want: timer.Undeliverable},
		{name: "its target refuses the last one",
			timer: recurring(timer.Recurrence{Every: hour, Count: 1}), sealed: refuse, want: timer.Undeliverable},
		{name: "resume, and all that is left was missed",
			timer:   steered(missed(timer.CatchUpNone), timer.Steering{Paused: true}),
			request: &timer.Request{Steer: timer.Resume, At: end}, want: timer.Completed},
		{name: "resume, and rules of its zone have ended it", timer: moved(&timer.Steering{Paused: true, By: 8}),
			request: &timer.Request{Steer: timer.Resume, At: end}, want: timer.Completed},
		{name: "rules of its zone have ended it", timer: moved(nil), want: timer.Completed},
		{name: "triggered, and rules of its zone have ended the rest",
			timer: moved(&timer.Steering{Triggered: true, By: 8, At: end}), want: timer.Fired},
		{name: "cancel", timer: plain(), request: &timer.Request{}, want: timer.Cancelled, free: true},
		{name: "replaced by one that is not remembered", timer: plain(),
			request: &timer.Request{Schedule: &timer.Timer{ID: []byte("x"), Offset: 9, Due: end, Occurrence: 1}},
			want:    timer.Fired, free: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := New(9, end, 1<<40)
			p.Load(Lowest, timer.Ref{Due: 1 << 40}, []*timer.Timer{c.timer})
			if r := c.request; r != nil {
				r.ID, r.Offset = []byte("x"), 9
				p.request(*r, c.timer, false, end)
			}
			p.Open(c.opened)
			p.Fire(end, timer.Size{Entries: 10, Bytes: 1 << 40}, timer.Unlimited, free)
			s := p.Take(10, 1<<40)
			var last *Entry
			for e := range s.Entries() {
				if c.sealed != nil {
					c.sealed(e)
				}
				last = e
			}
			if got := last.Result(); got != c.want {
				t.Errorf("the outcome is %d, want %d", got, c.want)
			}
			changes := s.Changes()
			if len(changes) != 1 {
				t.Fatalf("%d changes", len(changes))
			}
			after := changes[0].Timer
			if c.free {
				if after != nil {
					t.Errorf("%+v is left", after)
				}
				return
			}
			same := after.Ref().Generation() == c.timer.Offset
			if !after.IsRemembered() || after.Due != end+keep || after.Value != nil || !same {
				t.Errorf("%+v is left, want it remembered until %d", after, end+keep)
			}
			if got, err := timer.Decode(changes[0].Bytes); err != nil || got.Ref() != after.Ref() {
				t.Errorf("the changelog gets %+v, %v", got, err)
			}
		})
	}
}

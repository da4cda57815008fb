package planner

import (
	"math"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// one is the only calendar, under each name.
type one struct {
	*calendar.Exclusion
	changed int64
}

func (o *one) Calendar(string) (*calendar.Exclusion, int64) { return o.Exclusion, o.changed }

func (o *one) put(t testing.TB, rules string, now int64) {
	e, err := calendar.ParseRules([]byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	o.Exclusion, o.changed = e, now
}

// TestACalendarThatLeavesNoTime: timers whose calendar excludes everything from an instant on stay at their old times,
// however the planner meets them. If the calendar is corrected before they are due, nothing is lost. Otherwise they end
// when they are due, even if their targets are unhealthy.
func TestACalendarThatLeavesNoTime(t *testing.T) {
	const begun, wrong, fixed, due, every = 1000, 2000, 3000, 5000, 4000
	const everything = `{"weekly": ["0-6"]}`
	room := timer.Size{Entries: 10, Bytes: 1 << 40}
	held := func(*timer.Timer, any, bool) (timer.TopicPartition, bool) {
		return timer.TopicPartition{Topic: "t"}, true
	}
	steer := func(tm *timer.Timer, s timer.Steering) *timer.Timer {
		steered := *tm
		steered.Steering = &s
		return &steered
	}
	for _, way := range []struct {
		name string
		meet func(p *Planner, tm *timer.Timer)
		// triggered: there is one firing more. late: it is met when it is due, and a correction comes later.
		triggered, late bool
	}{
		{name: "load", meet: func(p *Planner, tm *timer.Timer) {
			p.Load(Lowest, timer.Ref{Due: 1 << 40}, []*timer.Timer{tm})
		}},
		{name: "follow", meet: func(p *Planner, tm *timer.Timer) {
			p.Follow([]*timer.Timer{tm})
			p.Load(Lowest, timer.Ref{Due: 1 << 40}, []*timer.Timer{tm})
			p.Follow([]*timer.Timer{tm})
		}},
		{name: "request", meet: func(p *Planner, tm *timer.Timer) {
			p.request(timer.Request{ID: tm.ID, Offset: 9, Steer: timer.Resume}, tm, false, wrong)
			p.Load(Lowest, timer.Ref{Due: 1 << 40}, []*timer.Timer{tm})
		}},
		{name: "resume", meet: func(p *Planner, tm *timer.Timer) {
			p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
			p.request(timer.Request{ID: tm.ID, Offset: 9, Steer: timer.Resume, At: wrong},
				steer(tm, timer.Steering{Paused: true, By: 8}), false, wrong)
		}},
		{name: "trigger", triggered: true, meet: func(p *Planner, tm *timer.Timer) {
			p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
			p.request(timer.Request{ID: tm.ID, Offset: 9, Steer: timer.Trigger, At: wrong}, tm, false, wrong)
		}},
		{name: "resume late", late: true, meet: func(p *Planner, tm *timer.Timer) {
			p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
			p.request(timer.Request{ID: tm.ID, Offset: 9, Steer: timer.Resume, At: due},
				steer(tm, timer.Steering{Paused: true, By: 8}), false, due)
		}},
		{name: "admit", late: true, meet: func(p *Planner, tm *timer.Timer) {
			p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
			p.Admit([]*timer.Timer{tm}, nil, due)
		}},
	} {
		for _, once := range []bool{false, true} {
			if once && way.triggered { // it is over then
				continue
			}
			for _, corrected := range []bool{false, true} {
				all := &one{changed: math.MinInt64}
				all.put(t, `{}`, math.MinInt64)
				tm := &timer.Timer{ID: []byte("x"), Offset: 7, Occurrence: 1}
				of := &timer.Recurrence{Every: every, Until: timer.NoUntil, NotOn: "a"}
				if once {
					of.Every = 0
				}
				schedules := &calendar.Cache{Calendars: all}
				r, err := schedules.Recurrence(of)
				if err != nil || !r.Start(tm, due, begun) {
					t.Fatal(err)
				}
				p := New(0, begun, 1<<40)
				p.Share(new(Count), schedules)
				p.Open(begun)
				all.put(t, everything, wrong)
				way.meet(p, tm)
				p.Fire(wrong, room, timer.Unlimited, free)
				for s := p.Take(10, 1<<40); s != nil; s = p.Take(10, 1<<40) {
					for e := range s.Entries() {
						if e.Outcome == timer.Completed || e.Outcome == timer.Expired {
							t.Errorf("%s, once %v: ended before it is due", way.name, once)
						}
					}
					p.Commit()
				}
				if corrected && !way.late {
					all.put(t, `{}`, fixed)
					p.Follow([]*timer.Timer{tm})
				}
				p.Fire(due-1, room, timer.Unlimited, free)
				if s := p.Take(10, 1<<40); s != nil {
					t.Errorf("%s, once %v: something happens before it is due", way.name, once)
					p.Commit()
				}
				hold, want := Hold(free), timer.Fired
				if !corrected || way.late {
					if hold, want = held, timer.Completed; once {
						want = timer.Expired
					}
				}
				p.Fire(due, room, timer.Unlimited, hold)
				s, got := p.Take(10, 1<<40), timer.None
				if s != nil {
					for e := range s.Entries() {
						got = e.Outcome
						if e.Late != nil && e.NotOn != "a" || e.Emit != nil && e.Emit.Occurrence != 1 {
							t.Errorf("%s, once %v: %+v", way.name, once, e.Entry)
						}
					}
				}
				if got != want {
					t.Errorf("%s, once %v, corrected %v: outcome %d, want %d", way.name, once, corrected, got, want)
				}
			}
		}
	}
}

package planner

import (
	"fmt"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// An occurrence that was missed while it was held stays missed when it comes back, does not fit into memory, is
// forgotten and is loaded again: with catch-up none nothing fires. The memory for that is limited too.
func TestWhatWasMissedIsKeptThroughEviction(t *testing.T) {
	const n, first, every, now, some = 400, 1000, 1_000_000, 5000, 100
	store := make(map[string]*timer.Timer)
	var parked []*timer.Timer
	for i := range n {
		tm := recurring(fmt.Sprint("id", i), first+int64(i), every, timer.CatchUpNone)
		tm.Offset, tm.Value = int64(i), make([]byte, 100)
		parked = append(parked, tm)
	}
	limit := n * Held(parked[0]) / 10
	p := New(0, 0, limit)
	p.Open(0)
	end := timer.Ref{Due: every}
	p.Load(Lowest, end, nil)
	reached, evicted, most := end, false, int64(0)
	for round := 0; len(parked) > 0 || pendingBelow(end, store) > 0; round++ {
		if round > 1000 {
			t.Fatalf("after %d rounds %d are parked still, and %d wait", round, len(parked), pendingBelow(end, store))
		}
		if len(parked) > 0 && !p.Crowded() {
			for _, tm := range parked[:some] {
				store[string(tm.ID)] = tm
			}
			p.Admit(parked[:some], nil, now)
			parked = parked[some:]
		}
		if got := fired(p, now, 20); len(got) > 0 {
			t.Fatalf("%v were missed, and fire", got)
		}
		for _, c := range p.BeginFlush() {
			delete(store, string(c.ID))
			if b := changed(&c); len(b) > 0 {
				store[string(c.ID)] = decoded(b)
			}
		}
		p.EndFlush()
		p.Relieved()
		from, ok := p.LoadFrom()
		evicted = evicted || from.Compare(reached) < 0
		if reached = from; ok && from.Compare(end) < 0 {
			var found []*timer.Timer
			for _, tm := range store {
				if tm.Ref().Compare(from) >= 0 && tm.Ref().Compare(end) < 0 {
					found = append(found, tm)
				}
			}
			inOrder(found)
			p.Load(from, end, found)
			reached = end
		}
		most = max(most, p.known.missed)
	}
	if !evicted {
		t.Error("nothing was evicted")
	}
	if most > limit/2+some*Held(store["id0"]) || p.known.missed != 0 {
		t.Errorf("%d bytes were kept at most of what was missed, and %d in the end", most, p.known.missed)
	}
}

// pendingBelow returns how many timers the store has below a place.
func pendingBelow(end timer.Ref, store map[string]*timer.Timer) (n int) {
	for _, tm := range store {
		if tm.Ref().Compare(end) < 0 {
			n++
		}
	}
	return n
}

// hold is a Hold for a target that is not healthy.
func hold(*timer.Timer, any, bool) (by timer.TopicPartition, held bool) { return by, true }

// An occurrence that was parked and counted as missed by a clock that was ahead, and that comes back before it is
// due, was not missed: it is like any timer that is due later, and fires once.
func TestATimerThatComesBackBeforeItIsDueWasNotMissed(t *testing.T) {
	tm := recurring("n", 995, 100, timer.CatchUpNone)
	p := ready(tm)
	p.Open(900)
	park := func(now int64) {
		_, held := p.Fire(now, timer.Size{Entries: 10, Bytes: 1 << 40}, timer.Unlimited, hold)
		l := held[timer.TopicPartition{}]
		if l == nil || len(l.Timers) != 1 {
			t.Fatalf("to be parked at %d: %+v", now, held)
		}
		p.Parked(l)
	}
	park(1000)
	p.Admit([]*timer.Timer{tm}, nil, 1004)
	park(1004)
	p.Fire(974, timer.Size{Entries: 10, Bytes: 1 << 40}, timer.Unlimited, hold) // the clock was set back
	p.Lower(tm.Ref())
	p.Load(tm.Ref(), timer.Ref{Due: 1 << 40}, []*timer.Timer{tm})
	wants(t, "before it is due", fired(p, 994, 10))
	wants(t, "when it is due", fired(p, 995, 10), "n/1")
	wants(t, "later", fired(p, 1094, 10))
}

// A request that leaves a parked timer as it is brings it into memory, as missed as it was: its target may be
// healthy again before it is unparked.
func TestAParkedTimerFoundByARequestWasMissed(t *testing.T) {
	for _, steer := range []timer.Steer{0, timer.Trigger} {
		parked := recurring("n", 1000, 1000, timer.CatchUpNone)
		p := ready()
		p.Begin(1)
		p.Open(900)
		r := timer.Request{ID: []byte("n"), Offset: 9, Steer: steer, At: 1500,
			If: timer.Condition{Kind: timer.IfAbsent}}
		want := []string{}
		if steer == timer.Trigger {
			r.If, want = timer.Condition{}, []string{"n/1"} // it fires as the pending one
		}
		p.request(r, parked, true, 1500)
		got := fired(p, 1500, 10)
		p.Admit([]*timer.Timer{parked}, nil, 1500)
		wants(t, "what was missed", append(got, fired(p, 1500, 10)...), want...)
		wants(t, "what comes", fired(p, 2000, 10), "n/2")
	}
}

// The same holds above a horizon that was lowered because memory was full. The timer is triggered, so it is no
// longer parked. Its scheduled occurrence fires when the horizon has reached it again, if it was not missed. An
// occurrence of a timer that is merely not loaded was not missed.
func TestAParkedTimerFoundAboveTheHorizonWasMissed(t *testing.T) {
	for _, x := range []struct {
		parked bool
		want   []string
	}{{true, nil}, {false, []string{"n/1"}}} {
		tm := recurring("n", 1000, 1000, timer.CatchUpNone)
		p := ready()
		p.Begin(1)
		p.Open(900)
		p.Lower(timer.Ref{Due: 500})
		p.request(timer.Request{ID: tm.ID, Offset: 9, At: 1500, Steer: timer.Trigger}, tm, x.parked, 1500)
		wants(t, "what was triggered", fired(p, 1500, 10), "n/1")
		from, ok := p.LoadFrom()
		if !ok {
			t.Fatal("nothing is to be loaded")
		}
		p.Load(from, timer.Ref{Due: 10_000}, []*timer.Timer{tm}) // it is no longer parked
		wants(t, "what its schedule has pending", fired(p, 1500, 10), x.want...)
		wants(t, "what comes", fired(p, 2000, 10), "n/2")
	}
}

// Nothing counts as missed that was not missed, not even an occurrence that was due when Unix time began.
func TestTimersNotMissedAreNotCountedAsMissed(t *testing.T) {
	p := ready(recurring("n", 0, 1000, timer.CatchUpNone))
	p.Begin(1)
	p.Open(1)
	p.request(timer.Request{ID: []byte("n"), Offset: 9, Steer: timer.Trigger, At: 10}, nil, false, 10)
	wants(t, "triggered", fired(p, 10, 10), "n/1")
	if p.known.missed != 0 {
		t.Errorf("%d bytes are counted of what was missed", p.known.missed)
	}
}

// A clock was ahead by less than a second and is right again: no occurrence that is due since then is skipped.
func TestTimersDueAfterAClockWasAheadWereNotMissed(t *testing.T) {
	p := ready()
	p.Begin(1)
	p.Open(0)
	p.Admit([]*timer.Timer{recurring("n", 900, 100, timer.CatchUpNone)}, nil, 1500)
	wants(t, "what was missed", fired(p, 1000, 10))
	wants(t, "what comes", fired(p, 1100, 10), "n/3")
}

// If a clock was an hour ahead, timers that it marked as missed are not kept in memory after the clock is set back.
// They do not keep others from coming back, and they fire when they are due.
func TestCrowdedEndsWhenTheClockIsSetRight(t *testing.T) {
	const hour, n = 3_600_000, 100
	var timers []*timer.Timer
	var want []string
	for i := range n {
		tm := recurring(fmt.Sprint("id", i), 1000+int64(i), 10*hour, timer.CatchUpNone)
		tm.Offset = int64(i)
		timers, want = append(timers, tm), append(want, fmt.Sprintf("id%d/1", i))
	}
	p := New(0, 0, n*Held(timers[0])) // all fit
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: hour}, nil)
	if p.Admit(timers, nil, hour); !p.Crowded() {
		t.Fatal("so much that was missed is not too much")
	}
	if wants(t, "set back", fired(p, 500, n)); p.Crowded() || p.known.missed != 0 {
		t.Errorf("%d bytes are kept of what was not missed", p.known.missed)
	}
	var got []string
	for now := int64(1000); now < 1000+n; now++ {
		got = append(got, fired(p, now, n)...)
	}
	wants(t, "when it is due", got, want...)
}

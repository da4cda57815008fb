package planner

import (
	"math"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
)

// held is a planner with one timer that is due each second from 1000 on, parked and
// then admitted with a permit at 2500; hold takes nothing but that.
func held(policy timer.CatchUp, late int64) (*Planner, Hold) {
	p := New(0, 0, 1<<40)
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
	t := &timer.Timer{ID: []byte("id"), Due: 1000, Occurrence: 1, TooLate: late,
		Recurrence: &timer.Recurrence{Every: 1000, Until: math.MaxInt64, CatchUp: policy}}
	permit := new(int)
	p.Admit([]*timer.Timer{t}, permit, 2500)
	return p, func(_ *timer.Timer, given any) (by timer.TopicPartition, held bool) { return by, given != permit }
}

// A permit with which nothing was emitted is for the next occurrence: else that would
// be missed too, and so on.
func TestPermitIsForWhatIsEmitted(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy timer.CatchUp
		late   int64
	}{{"missed", timer.CatchUpNone, 0}, {"too late", timer.CatchUpLatest, 1}} {
		p, hold := held(c.policy, c.late)
		p.Fire(2500, 10, 1<<30, hold)
		if _, parkings := p.Fire(3000, 10, 1<<30, hold); len(parkings) > 0 {
			t.Errorf("%s: the occurrence behind it is held", c.name)
		}
		s := p.Take(10, 1<<30)
		emitted := 0
		for e := range s.Entries() {
			if e.Emit != nil {
				emitted++
			}
		}
		if emitted != 1 {
			t.Errorf("%s: %d emissions, want that of the occurrence behind it", c.name, emitted)
		}
		if fired, parkings := p.Fire(4000, 10, 1<<30, hold); fired.Entries > 0 || len(parkings) != 0 && len(parkings) != 1 {
			t.Errorf("%s: it fires again with the same permit", c.name)
		}
	}
}

// What is too late is not held: it needs no target.
func TestWhatIsTooLateIsNotHeld(t *testing.T) {
	never := func(*timer.Timer, any) (by timer.TopicPartition, held bool) { return by, true }
	for _, c := range []struct {
		name   string
		policy timer.CatchUp
		want   int
	}{{"all", timer.CatchUpAll, 1}, {"latest", timer.CatchUpLatest, 0}, {"none", timer.CatchUpNone, 0}} {
		p, _ := held(c.policy, 1000)
		fired, _ := p.Fire(2500, 10, 1<<30, never)
		if fired.Entries != c.want {
			t.Errorf("%s: %d expire, want %d", c.name, fired.Entries, c.want)
		}
	}
}

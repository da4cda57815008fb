package contract

import (
	"testing"
	"time"
)

// A timer that was moved fires once, at its new time, with its contents; a pause stays, and a cancel ends it. Of one
// that recurs the next occurrence moves, and the schedule goes on: what that passes fires by its policy.
func TestMoves(t *testing.T) {
	t.Parallel()
	r := newRecurrence(t)
	r.serve(r.config(), 1)
	first := r.soon(5 * time.Second)
	const passed = 3 // occurrences, by the move of the first one
	to := millis(first.Add(passed*every + every/2))
	move := func(id, at string, headers ...string) {
		r.Send(r.Request(id, "", append([]string{"timer-move", "true", "timer-at", at}, headers...)...))
	}
	r.Send(r.request("plain", "v", "timer-at", millis(first.Add(time.Hour)), "name", "kept"),
		r.request("later", "v", "timer-at", millis(first)), r.request("gone", "v", "timer-at", millis(first)),
		r.request("late", "v", "timer-at", millis(first.Add(time.Hour)), "timer-max-late", "1s"),
		r.request("paused", "v", "timer-at", millis(first.Add(time.Hour))),
		r.Request("paused", "", "timer-pause", "true"))
	r.Send(r.catching(first, first.Add((passed+2)*every), policies...)...)
	r.in.Balanced(5 + 3)
	move("plain", millis(first))
	move("later", to)
	move("later", millis(first), "timer-if", "absent")
	move("gone", to)
	move("nothing", millis(first))
	move("late", millis(first.Add(-time.Minute)))
	move("paused", millis(first))
	r.Send(r.Request("gone", "", "timer-cancel", "true"))
	for _, policy := range policies {
		move(policy, to)
	}
	r.fires(1, "plain", "later")
	r.fires(6, "all")
	if n := len(r.firings()["paused"]); n > 0 {
		t.Errorf("a paused timer that was moved has fired %d times", n)
	}
	r.Send(r.Request("paused", "", "timer-resume", "true"))
	by := r.over()
	for id, due := range map[string]string{"plain": millis(first), "later": to, "paused": millis(first)} {
		if fs := by[id]; len(fs) != 1 || fs[0].value != "v" || due != millis(time.UnixMilli(fs[0].due)) {
			t.Errorf("%s has fired %+v, want once at %s", id, fs, due)
		}
	}
	for _, id := range []string{"gone", "nothing", "late"} {
		if fs := by[id]; len(fs) != 0 {
			t.Errorf("%s has fired: %+v", id, fs)
		}
	}
	want := map[string][]int64{"all": {1, 2, 3, 4, 5, 6}, "latest": {1, 4, 5, 6}, "none": {1, 5, 6}}
	for policy, numbers := range want {
		fs := by[policy]
		if len(fs) != len(numbers) || millis(time.UnixMilli(fs[0].due)) != to {
			t.Errorf("%s has fired %+v, want %v, the first at %s", policy, fs, numbers, to)
			continue
		}
		for i, n := range numbers {
			if due := first.UnixMilli() + (n-1)*every.Milliseconds(); fs[i].number != n || i > 0 && fs[i].due != due {
				t.Errorf("%s: firing %d is %+v, want occurrence %d", policy, i, fs[i], n)
			}
		}
	}
}

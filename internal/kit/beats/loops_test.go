package beats

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Every calls its function once in each interval until the context ends, also if the function ends it.
func TestEveryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls, begin := 0, time.Now()
		Every(ctx, time.Second, func() {
			if calls++; calls == 3 {
				cancel()
			}
		})
		if took := time.Since(begin); calls != 3 || took != 2*time.Second+phase {
			t.Errorf("%d calls in %s", calls, took)
		}
	})
}

// A signal calls the function at once, and the ticks go on.
func TestEveryOrIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		wake, calls, begin := NewSignal(), 0, time.Now()
		wake.Send()
		EveryOr(ctx, time.Second, wake, func() {
			if calls++; calls == 1 && time.Since(begin) != 0 {
				t.Errorf("woken after %s", time.Since(begin))
			} else if calls == 3 {
				cancel()
			}
		})
		if took := time.Since(begin); calls != 3 || took != time.Second+phase {
			t.Errorf("%d calls in %s", calls, took)
		}
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if !Sleep(t.Context(), time.Second) || time.Since(begin) != time.Second {
			t.Errorf("slept %s of a second", time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if begin = time.Now(); Sleep(ctx, time.Minute) || time.Since(begin) != time.Second {
			t.Errorf("slept %s although the context ended after a second", time.Since(begin))
		}
	})
}

// What lasts is said at once, and again after each interval, and at once if it was over in between.
func TestReminder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Reminder
		said := 0
		for range 150 { // seconds
			if r.Due(time.Minute) {
				said++
			}
			time.Sleep(time.Second)
		}
		if said != 3 {
			t.Errorf("said %d times in 150 seconds", said)
		}
		if r.Due(time.Minute) {
			t.Error("said again within the interval")
		}
		if r = (Reminder{}); !r.Due(time.Minute) {
			t.Error("not said although it is new")
		}
	})
}

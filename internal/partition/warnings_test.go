package partition

import (
	"testing"
	"time"
)

func TestWarnings(t *testing.T) {
	w := warnings{kinds: make(map[warning]*warned)}
	start := time.Now()
	for i := range 3 * warnBurst {
		if ok, suppressed := w.allow(
			warning{"t", "r"}, start.Add(time.Duration(i)*time.Millisecond)); ok != (i < warnBurst) || suppressed != 0 {
			t.Errorf("number %d: %v, %d", i, ok, suppressed)
		}
	}
	for _, other := range []warning{{"t", "s"}, {"u", "r"}} {
		if ok, _ := w.allow(other, start); !ok {
			t.Errorf("%v waits for another kind", other)
		}
	}
	if ok, suppressed := w.allow(warning{"t", "r"}, start.Add(warnEvery)); !ok || suppressed != 2*warnBurst {
		t.Errorf("a minute later: %v, %d", ok, suppressed)
	}
	if ok, suppressed := w.allow(warning{"t", "r"}, start.Add(warnEvery)); !ok || suppressed != 0 {
		t.Errorf("the next: %v, %d", ok, suppressed)
	}
}

package recurring

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// The owner's clock is set ahead by some occurrences, which are overtaken then, and
// set back again: nothing fires twice, and what is pending waits for its time.
func TestClockSetAheadAndBack(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const jump = 5 * every
	w := newSetup(t)
	var ahead atomic.Int64
	ahead.Store(-int64(jump)) // so that nothing is ever early by the clocks of others
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	in := rig.Serve(t, w.config(), node.Options{Now: now})
	in.Ready(1, patience)
	first := w.soon(2*time.Second - jump)
	until := first.Add(15 * every)
	var recs []*kgo.Record
	for _, policy := range policies {
		recs = append(recs, w.recurring(policy, "v", first, "timer-catch-up", policy, "timer-until", millis(until)))
	}
	w.Send(recs...)
	for _, policy := range policies {
		w.fired(policy, 2)
	}
	before := now()
	ahead.Store(0)
	after := time.Now()
	for _, policy := range policies {
		w.fired(policy, 4)
	}
	ahead.Store(-int64(jump))
	back := len(w.Out.Records())
	w.Out.Quiet(jump - 3*every) // but for what was on its way
	w.at(until.Add(jump))
	in.Balanced(0)
	w.Out.Quiet(quiet)
	t.Logf("%d occurrences before the clock was set back", back)
	by := w.firings()
	w.contiguous("all", by["all"], first.UnixMilli(), 16)
	for _, policy := range []string{"latest", "none"} {
		fs := by[policy]
		w.numbered(policy, fs, first.UnixMilli())
		t.Logf("%s: occurrences %v", policy, numbers(fs))
		if last := fs[len(fs)-1]; last.number != 16 {
			t.Errorf("%s: the last occurrence is %d, want 16", policy, last.number)
		}
		for i, f := range fs[1:] {
			if f.number == fs[i].number+1 {
				continue
			}
			// Of what the clock passed over the last one fires alone.
			if fs[i].due > before.UnixMilli() || f.due+every.Milliseconds() < after.UnixMilli() ||
				f.due > after.Add(every).UnixMilli() {
				t.Errorf("%s: occurrence %d, due %d, came behind %d; the clock went from %d to %d", policy, f.number,
					f.due, fs[i].number, before.UnixMilli(), after.UnixMilli())
			}
		}
	}
	if got := in.Metric("waterclock_clock_jumps_total", "direction", "back"); got != 1 {
		t.Errorf("%v jumps back are counted", got)
	}
}

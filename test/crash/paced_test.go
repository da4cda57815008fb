package crash

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// TestKilledInAPacedBurst kills an instance while a burst goes to a target at its rate, and starts another: each timer
// fires once, no time has more firings than the rate allows, and while all partitions are served the rate is reached.
func TestKilledInAPacedBurst(t *testing.T) {
	t.Parallel()
	n, rate := 10_000, 250
	if runs.Slow() {
		n, rate = 100_000, 1500
	}
	const partitions = 8
	s := rig.NewSetup(t, kafkatest.Start(t, 1, kafkatest.ApacheDefaults()), partitions, 3)
	start := func() *rig.Process {
		return s.Twin().Start("--target-rates", fmt.Sprintf("%s=%d/s", s.Target, rate))
	}
	killed, left := start(), start()
	s.Shared(killed, left)
	s.Send(s.Timers("paced-", n, time.Now().Add(10*time.Second), 0)...)
	s.Out.WaitFor(n/4, rig.Patience)
	killed.Kill()
	at := time.Now()
	joined := start()
	await.Until(t, rig.Patience, "the others have all partitions", func() bool {
		return joined.Live() > 0 && rig.Serving(partitions, left, joined)
	})
	taken := time.Now()
	s.Out.WaitFor(n, 3*rig.Patience)
	rig.Exactly(t, s.Out.Records(), n)
	s.NothingDead()

	var all []time.Time
	for _, r := range s.Out.Records() {
		all = append(all, r.Timestamp)
	}
	slices.SortFunc(all, time.Time.Compare)
	// Two instances of this test have the same clock, so their timestamps are comparable.
	const window = 10 * time.Second
	most := float64(rate)*window.Seconds() + float64(rate)
	for i, j := 0, 0; j < n; j++ {
		for all[j].Sub(all[i]) >= window {
			i++
		}
		if float64(j-i+1) > most {
			t.Fatalf("%d in 10 s from %s on, at most %g", j-i+1, all[i], most)
		}
	}
	within := func(from, to time.Time) float64 {
		a, _ := slices.BinarySearchFunc(all, from, time.Time.Compare)
		b, _ := slices.BinarySearchFunc(all, to, time.Time.Compare)
		return float64(b-a) / to.Sub(from).Seconds()
	}
	before, after := all[0].Add(time.Second), taken.Add(3*time.Second)
	t.Logf("killed %s after the first, served again %s later; a second: %.1f before, %.1f in between, %.1f after",
		at.Sub(all[0]), taken.Sub(at), within(before, at), within(at, taken), within(after, after.Add(window)))
	if got := within(before, at); got > 1.02*float64(rate) {
		t.Errorf("%g a second before the kill, want %d", got, rate)
	}
	if all[n-1].Before(after.Add(window)) {
		t.Fatalf("the burst was over %s after the takeover: nothing is shown", all[n-1].Sub(taken))
	}
	if got := within(after, after.Add(window)); got > 1.02*float64(rate) || got < 0.8*float64(rate) {
		t.Errorf("%g a second after the takeover, want %d", got, rate)
	}
}

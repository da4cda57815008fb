package clocks

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/kit/clocks/clockstest"
)

// world is the machine's clocks and a broker's, which is right.
type world struct {
	true  time.Time     // the broker's clock
	slept time.Duration // while the machine was suspended
	upset int           // how often anything has happened to a clock, or to the machine
	off   time.Duration // the owner's clock is ahead of the broker's by that
}

func (w *world) mark() Mark {
	return Mark{w.true.Add(w.off).UnixMilli(), w.true.Add(-w.slept)}
}

// pass lets time go by in which anything may happen: the machine is suspended, stands still, its clock is set.
func (w *world) pass(t *rapid.T, calm bool) {
	w.true = w.true.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "runs")))
	if calm {
		return
	}
	switch rapid.IntRange(0, 6).Draw(t, "what") {
	case 0: // suspended, broker and all, or alone: the wall clock is right when it wakes
		d := time.Duration(rapid.Int64Range(int64(time.Second), int64(5*time.Hour)).Draw(t, "suspended"))
		w.true, w.slept, w.upset = w.true.Add(d), w.slept+d, w.upset+1
	case 1:
		w.upset++
		w.off = time.Duration(rapid.Int64Range(-int64(5*time.Hour), int64(5*time.Hour)).Draw(t, "set"))
	case 2: // set right
		w.off, w.upset = 0, w.upset+1
	case 3: // what was written is read late
		w.true = w.true.Add(time.Duration(rapid.Int64Range(0, int64(5*time.Hour)).Draw(t, "late")))
	case 4: // a virtual machine is paused: both its clocks stand still
		d := time.Duration(rapid.Int64Range(int64(time.Second), int64(5*time.Hour)).Draw(t, "paused"))
		w.true, w.slept, w.off, w.upset = w.true.Add(d), w.slept+d, w.off-d, w.upset+1
	}
}

// Whatever is set, suspended and read late: what is said to be known is right by half the width of a
// measurement, and what goes into timestamps is ahead of the brokers by no more than that. What is known
// may be wrong only if the machine stood still since it was measured and neither clock shows it. While nothing
// happens to a clock, a measurement that is not too long counts, and what it says stays known, and right.
func TestWhatIsKnownOfClocksIsRight(t *testing.T) {
	runs.Checks(t, 5000)
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		const width = MaxWidth/2 + 2*maxStep // a step that is no step may come beside each of two
		var c Clocks
		w := world{true: time.Now(),
			off: time.Duration(rapid.Int64Range(-int64(3*time.Hour), int64(3*time.Hour)).Draw(t, "off"))}
		// What is known of the world, and what had happened when the last measurement that counts began.
		measured, slept, upset := false, time.Duration(0), 0
		for range rapid.IntRange(1, 20).Draw(t, "rounds") {
			if rapid.Bool().Draw(t, "measure") {
				calm := rapid.Bool().Draw(t, "calm")
				before, was, had, begun := w.mark(), w.slept, w.upset, w.true
				w.pass(t, calm)
				stamped := w.true.Truncate(time.Millisecond)
				w.pass(t, calm)
				counts := c.Measured(before, w.mark(), stamped)
				if took := w.true.Sub(begun); w.upset == had && counts != (took <= MaxWidth) {
					t.Fatalf("a measurement of %s counts: %v", took, counts)
				}
				if counts {
					measured, slept, upset = true, was, had
					seen["measured"]++
				} else {
					seen["not counted"]++
				}
			} else {
				w.pass(t, false)
			}
			now := w.mark()
			ahead, known := c.Ahead(now)
			if calm := measured && w.upset == upset; calm && !known {
				t.Fatal("nothing has happened to a clock, and nothing is known")
			} else if calm && w.true.Sub(c.Brokers(now)) > width {
				t.Fatalf("nothing has happened to a clock, and what is written is %s too early",
					w.true.Sub(c.Brokers(now)))
			}
			if known {
				seen["known"]++
				off := (ahead - w.off).Abs()
				if off > width && w.slept-slept <= maxStep {
					t.Fatalf("the clock is %s ahead, %s is said", w.off, ahead)
				}
			} else if measured {
				seen["not known any more"]++
			}
			if at := c.Brokers(now); measured && at.Sub(w.true) > width {
				t.Fatalf("%s ahead of the brokers", at.Sub(w.true))
			} else if !measured && at.UnixMilli() != now.Wall {
				t.Fatalf("before anything is measured it is %s, the clock shows %d", at, now.Wall)
			}
		}
	})
	for _, kind := range []string{"measured", "not counted", "known", "not known any more"} {
		if seen[kind] == 0 {
			t.Errorf("nothing was %s: %v", kind, seen)
		}
	}
}

// What has been shown to go wrong with one estimate, and what is said now.
func TestClocksThatAreSetAndMachinesThatSleep(t *testing.T) {
	const hours = 3 * time.Hour
	for name, tc := range map[string]struct {
		off    time.Duration // when it was measured
		set    time.Duration // by which the wall clock then moves beside the monotonic one
		paused time.Duration // for which both its clocks then stand still
		late   time.Duration // after which what was measured is read
		ahead  time.Duration
		known  bool
		behind time.Duration // of the brokers' clock, that Brokers shows at most
	}{
		"as usual":           {ahead: 0, known: true},
		"ahead":              {off: hours, ahead: hours, known: true},
		"set right":          {off: hours, set: -hours, behind: hours},
		"suspended together": {set: hours, behind: hours},
		"read late":          {late: hours},
		"stood still":        {paused: hours, ahead: 0, known: true, behind: hours},
	} {
		w := world{true: time.Now(), off: tc.off}
		var c Clocks
		before := w.mark()
		stamped := w.true
		w.true = w.true.Add(tc.late)
		c.Measured(before, w.mark(), stamped)
		if tc.off != 0 {
			w.off += tc.set
		} else {
			w.true, w.slept = w.true.Add(tc.set), w.slept+tc.set
		}
		w.true, w.slept, w.off = w.true.Add(tc.paused), w.slept+tc.paused, w.off-tc.paused
		ahead, known := c.Ahead(w.mark())
		if known != tc.known || known && (ahead-tc.ahead).Abs() > time.Second {
			t.Errorf("%s: ahead by %s, %v", name, ahead, known)
		}
		if behind := w.true.Sub(c.Brokers(w.mark())); behind < -time.Second || behind > tc.behind+time.Second {
			t.Errorf("%s: the brokers' time is %s too early", name, behind)
		}
	}
}

// The longer time counts, whether the machine was suspended or its clock was set back.
func TestPassed(t *testing.T) {
	for _, x := range []struct {
		name             string
		wall, mono, want time.Duration
	}{
		{"both clocks agree", time.Minute, time.Minute, time.Minute},
		{"suspended, or set ahead", time.Hour, time.Minute, time.Hour},
		{"set back", -time.Hour, time.Minute, time.Minute},
	} {
		t.Run(x.name, func(t *testing.T) {
			since := clockstest.Suspended(x.wall, x.mono)
			if d := Passed(since, time.Now()); d < x.want || d > x.want+time.Minute {
				t.Errorf("%s have passed, want %s", d, x.want)
			}
		})
	}
}

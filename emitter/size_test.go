package emitter

import (
	"testing"
	"time"
)

// backlogged runs steps of a lane that always has more ready than fits. Each step takes its round trips, a fixed
// time, and some time for each entry. It returns the longest time of the later steps, and how many entries went
// through in a second.
func backlogged(s *size, trips, fixed, entry, d time.Duration) (longest time.Duration, rate float64) {
	var now time.Duration
	entries := 0
	for now < d {
		n := s.limit
		own := fixed + time.Duration(n)*entry
		s.committed(own)
		if now += trips + own; now > d/4 {
			longest = max(longest, trips+own)
			entries += n
		}
	}
	return longest, float64(entries) / (now - d/4).Seconds()
}

// A step is about as long as allowed, and carries nearly as much as a larger one would. If its time does not
// depend on its size, at least half goes through.
func TestStepsAreAsLargeAsTheirTimeAllows(t *testing.T) {
	const ms, us = time.Millisecond, time.Microsecond
	for _, c := range []struct {
		name                string
		trips, fixed, entry time.Duration
		longest             time.Duration
		share               float64 // of the throughput with the largest steps, at least
	}{
		{"quiet processors", 10 * ms, 0, 8 * us, 90 * ms, 1},
		{"other work", 15 * ms, 0, 15 * us, 115 * ms, 0.9},
		{"much other work", 15 * ms, 0, 30 * us, 165 * ms, 0.9},
		{"brokers far away", 400 * ms, 0, 8 * us, 480 * ms, 1},
		{"a slow disk", 10 * ms, 200 * ms, 1 * us, 220 * ms, 0.5},
	} {
		largest := MaxStepEntries / (c.trips + c.fixed + MaxStepEntries*c.entry).Seconds()
		s := size{limit: MaxStepEntries}
		longest, rate := backlogged(&s, c.trips, c.fixed, c.entry, 20*time.Second)
		if longest > c.longest {
			t.Errorf("%s: steps take up to %s, want %s", c.name, longest, c.longest)
		}
		if rate < c.share*largest*0.999 {
			t.Errorf("%s: %.0f entries a second, want %.2f of %.0f", c.name, rate, c.share, largest)
		}
	}
}

// The reasons for small steps are forgotten when they are over: slow targets, or a process that stood still.
func TestStepsGrowAgain(t *testing.T) {
	const ms = time.Millisecond
	s := size{limit: MaxStepEntries}
	for range 10 {
		s.unacknowledged()
	}
	if s.limit != minStepEntries {
		t.Errorf("%d entries when targets are slow, want %d", s.limit, minStepEntries)
	}
	backlogged(&s, 5*ms, time.Second, 0, 20*time.Second)
	if s.limit != MaxStepEntries/2 {
		t.Errorf("%d entries while steps are long, want %d", s.limit, MaxStepEntries/2)
	}
	backlogged(&s, 5*ms, 0, time.Microsecond, time.Second)
	if s.limit != MaxStepEntries {
		t.Errorf("%d entries after quick steps, want %d", s.limit, MaxStepEntries)
	}
}

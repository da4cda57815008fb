package emitter

import (
	"testing"
	"time"
)

// taker is a source that takes the same amount of every step's room.
type taker struct {
	entries int
	bytes   int64
}

func (t *taker) Seal(_ string, room *Room) *Share {
	room.Entries -= t.entries
	room.Bytes -= t.bytes
	return &Share{Token: fakeToken{}}
}

func (*taker) Wait() time.Duration { return maxSleep }

// A step asks no further source once a limit is reached, and asks one more just below the limit.
func TestAStepsLimits(t *testing.T) {
	for _, tc := range []struct {
		name    string
		takes   taker
		sources int
		want    int
	}{
		{"MaxStepPartitions", taker{1, 1}, MaxStepPartitions, MaxStepPartitions},
		{"one more", taker{1, 1}, MaxStepPartitions + 1, MaxStepPartitions},
		{"one entry below MaxStepEntries", taker{MaxStepEntries - 1, 1}, 3, 2},
		{"MaxStepEntries", taker{MaxStepEntries, 1}, 3, 1},
		{"one byte below MaxStepBytes", taker{1, MaxStepBytes - 1}, 3, 2},
		{"MaxStepBytes", taker{1, MaxStepBytes}, 3, 1},
	} {
		l := oneLane(Options{})
		for range tc.sources {
			l.roster.Add(&tc.takes)
		}
		<-l.roster.wake // from Add
		if got := len(l.seal("step")); got != tc.want {
			t.Errorf("%s: %d of %d sources in the step, want %d", tc.name, got, tc.sources, tc.want)
		}
		if left := tc.sources - tc.want; left > 0 && len(l.roster.wake) == 0 {
			t.Errorf("%s: nobody wakes the lane for the %d sources that were not asked", tc.name, left)
		}
	}
}

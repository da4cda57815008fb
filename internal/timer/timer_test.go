package timer

import (
	"math"
	"strings"
	"testing"
)

func TestValidTopicName(t *testing.T) {
	tests := map[string]bool{
		"a": true, "a.b-c_D9": true, "...": true, ".a": true, "__consumer_offsets": true,
		strings.Repeat("x", MaxTopicNameBytes):   true,
		strings.Repeat("x", MaxTopicNameBytes+1): false,
		"":                                       false, ".": false, "..": false, "a b": false, "a/b": false,
		"ä": false, "a\x00": false, "a*": false,
	}
	for name, want := range tests {
		if ValidTopicName(name) != want || ValidTopicName([]byte(name)) != want {
			t.Errorf("%q: want %v", name, want)
		}
	}
}

// The generation of a moved timer is never that of a request, nor that of a timer that does not exist, and it survives
// encoding.
func TestMoved(t *testing.T) {
	for _, at := range []int64{0, 1, 1 << 40, math.MaxInt64 - 2} {
		g := MovedBy(at)
		if back, moved := MovedAt(g); !moved || back != at || g >= NoOffset {
			t.Errorf("moved by %d: generation %d, which says %d, %v", at, g, back, moved)
		}
		tm := &Timer{ID: []byte("a"), Offset: g, Occurrence: 1, Target: Target{Topic: "t", Partition: AnyPartition}}
		if got, err := Decode(tm.AppendTo(nil)); err != nil || got.Offset != g || got.Ref().IsAbsent() {
			t.Errorf("decoded %+v, %v", got, err)
		}
	}
	for _, offset := range []int64{NoOffset, 0, 1, math.MaxInt64} {
		if _, moved := MovedAt(offset); moved {
			t.Errorf("%d is said to be moved", offset)
		}
	}
}

func TestCatchUpNames(t *testing.T) {
	for c, want := range map[CatchUp]string{CatchUpLatest: "latest", CatchUpAll: "all", CatchUpNone: "none",
		catchUps: ""} {
		if got := c.String(); got != want {
			t.Errorf("%d is %q, want %q", c, got, want)
		}
	}
}

func TestScheduledAndTooLate(t *testing.T) {
	tm := &Timer{Due: 1000}
	if tm.Scheduled() != 1000 || tm.IsTooLate(math.MaxInt64) {
		t.Errorf("a plain timer is scheduled at %d", tm.Scheduled())
	}
	tm.Recurrence, tm.TooLate = &Recurrence{Every: 5000, Jitter: 500, Delay: 200}, 51
	if tm.Scheduled() != 800 {
		t.Errorf("scheduled at %d, want 800", tm.Scheduled())
	}
	for now, want := range map[int64]bool{0: false, 1050: false, 1051: true, math.MaxInt64: true} {
		if tm.IsTooLate(now) != want {
			t.Errorf("at %d, 50 ms are allowed: too late %v", now, !want)
		}
	}
}

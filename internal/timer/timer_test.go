package timer

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestValidTopicName(t *testing.T) {
	tests := map[string]bool{
		"a": true, "a.b-c_D9": true, "...": true, ".a": true, "__consumer_offsets": true,
		strings.Repeat("x", MaxTopicNameBytes):   true,
		strings.Repeat("x", MaxTopicNameBytes+1): false,
		"":                                       false, ".": false, "..": false, "a b": false, "a/b": false, "ä": false, "a\x00": false, "a*": false,
	}
	for name, want := range tests {
		if ValidTopicName(name) != want || ValidTopicName([]byte(name)) != want {
			t.Errorf("%q: want %v", name, want)
		}
	}
}

func TestRefCompare(t *testing.T) {
	order := []Ref{{Due: -1, Offset: 9}, Absent, {Due: 0, Offset: 0}, {Due: 0, Offset: 1}, {Due: 1, Offset: 0}}
	for i, a := range order {
		for j, b := range order {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := a.Compare(b); got != want {
				t.Errorf("%+v with %+v: got %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestApplyAndFire(t *testing.T) {
	pending := &Timer{ID: []byte("x"), Offset: 3, Due: 7}
	next := &Timer{ID: []byte("x"), Offset: 5, Due: 9}
	tests := []struct {
		name   string
		before Ref
		next   *Timer
		want   Outcome
	}{
		{"new", Absent, next, Scheduled},
		{"again", pending.Ref(), next, Replaced},
		{"cancel", pending.Ref(), nil, Cancelled},
		{"cancel of nothing", Absent, nil, NotFound},
	}
	for _, tt := range tests {
		r := Request{ID: []byte("x"), Offset: 5, Schedule: tt.next}
		want := Entry{ID: r.ID, Before: tt.before, After: tt.next, Outcome: tt.want}
		if got := r.Apply(tt.before); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, want)
		}
	}
	want := Entry{ID: pending.ID, Before: pending.Ref(), Outcome: Fired, Emit: pending}
	if got := pending.Fire(); !reflect.DeepEqual(got, want) {
		t.Errorf("fire: got %+v, want %+v", got, want)
	}
	if !(*Timer)(nil).Ref().IsAbsent() {
		t.Error("no timer has a place among the pending ones")
	}
}

// Generations of timers that were moved are none that a request has, nor that of a
// timer that is not there, and keep their bytes.
func TestMoved(t *testing.T) {
	for _, at := range []int64{0, 1, 1 << 40, math.MaxInt64 - 2} {
		g := Moved(at)
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

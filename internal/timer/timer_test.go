package timer

import (
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

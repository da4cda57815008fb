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

func TestApply(t *testing.T) {
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
		want := Entry{ID: r.ID, Before: tt.before, After: tt.next, Outcome: tt.want, Request: r.Offset}
		if got := r.Apply(tt.before, pending); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, want)
		}
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

func TestCatchUpNames(t *testing.T) {
	for c, want := range map[CatchUp]string{CatchUpLatest: "latest", CatchUpAll: "all", CatchUpNone: "none", catchUps: ""} {
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

// What requests make of each other and of what is pending: steer is a run of them, p for
// a pause, r for a resume, t for a trigger, at the offsets 10, 11 and so on; f is the
// firing of what was triggered.
func TestSteering(t *testing.T) {
	recurs := &Recurrence{Every: 10, Until: NoUntil}
	tests := []struct {
		name       string
		recurrence *Recurrence
		steer      string
		want       *Steering
		outcomes   []Outcome
		gone       bool
	}{
		{"pause", nil, "p", &Steering{Paused: true, By: 10}, []Outcome{Paused}, false},
		{"pause again", nil, "pp", &Steering{Paused: true, By: 10}, []Outcome{Paused, NotFound}, false},
		{"resume", nil, "pr", nil, []Outcome{Paused, Resumed}, false},
		{"resume what is not paused", nil, "r", nil, []Outcome{NotFound}, false},
		{"trigger", nil, "t", &Steering{Triggered: true, By: 10, At: 1010}, []Outcome{Triggered}, false},
		{"trigger again", nil, "tt", &Steering{Triggered: true, By: 10, At: 1010}, []Outcome{Triggered, NotFound}, false},
		{"trigger and fire", nil, "tf", nil, []Outcome{Triggered}, true},
		{"trigger and fire, recurring", recurs, "tf", nil, []Outcome{Triggered}, false},
		{"trigger what is paused", nil, "ptf", nil, []Outcome{Paused, Triggered}, true},
		{"trigger what is paused, recurring", recurs, "ptf", &Steering{Paused: true, By: 11}, []Outcome{Paused, Triggered}, false},
		{"pause what is triggered", recurs, "tp", &Steering{Paused: true, Triggered: true, By: 11, At: 1010}, []Outcome{Triggered, Paused}, false},
		{"and fire", recurs, "tpf", &Steering{Paused: true, By: 11}, []Outcome{Triggered, Paused}, false},
		{"resume what is triggered", recurs, "tpr", &Steering{Triggered: true, By: 12, At: 1010}, []Outcome{Triggered, Paused, Resumed}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			is := &Timer{ID: []byte("x"), Offset: 3, Due: 5000, Occurrence: 4, Recurrence: tt.recurrence}
			versions := map[Ref]string{is.Ref(): string(is.AppendTo(nil))}
			var outcomes []Outcome
			for i, c := range tt.steer {
				r := Request{ID: is.ID, Offset: int64(10 + i), At: int64(1010 + i)}
				switch c {
				case 'p':
					r.Steer = Pause
				case 'r':
					r.Steer = Resume
				case 't':
					r.Steer = Trigger
				case 'f':
					if n := is.FiresAs(); (n == 0) != (tt.recurrence != nil) || is.FiresAt() != is.Steering.At {
						t.Errorf("it fires as %d at %d", n, is.FiresAt())
					}
					is = is.Untriggered()
				}
				if c != 'f' {
					e := r.Apply(is.Ref(), is)
					if is, outcomes = e.After, append(outcomes, e.Outcome); e.Outcome == NotFound && e.After.Ref() != e.Before {
						t.Errorf("%c changes what it leaves as it is", c)
					}
				}
				if is != nil {
					b := string(is.AppendTo(nil))
					if was, seen := versions[is.Ref()]; seen && was != b {
						t.Errorf("behind %c: two versions have the place %v", c, is.Ref())
					}
					versions[is.Ref()] = b
				}
			}
			if !reflect.DeepEqual(outcomes, tt.outcomes) || (is == nil) != tt.gone || is != nil && !reflect.DeepEqual(is.Steering, tt.want) {
				t.Fatalf("got %+v, outcomes %v", is, outcomes)
			}
			if is != nil && (is.Due != 5000 || is.Occurrence != 4) {
				t.Errorf("the schedule is touched: %+v", is)
			}
		})
	}
	for _, s := range []Steer{Trigger, Pause, Resume} {
		if e := (&Request{Steer: s}).Apply(Absent, nil); e.Outcome != NotFound || e.After != nil {
			t.Errorf("%d of nothing: %+v", s, e)
		}
	}
}

// What is paused lies above every instant, what is triggered below.
func TestPlaces(t *testing.T) {
	const year10000 = 253402300800000
	for _, by := range []int64{0, 1 << 50, Moved(0), Moved(1 << 50)} {
		paused, triggered := &Timer{Due: 1, Steering: &Steering{Paused: true, By: by}}, &Timer{Due: 1, Steering: &Steering{Triggered: true, Paused: true, By: by}}
		if paused.Ref().Due < 2*year10000 || triggered.Ref().Due > -2*year10000 {
			t.Errorf("by %d: %v, %v", by, paused.Ref(), triggered.Ref())
		}
	}
}

func TestConditions(t *testing.T) {
	pending := Ref{Due: 5, Offset: 7}
	for _, tt := range []struct {
		c               Condition
		absent, present bool
	}{
		{Condition{}, true, true}, {Condition{Kind: IfAbsent}, true, false}, {Condition{Kind: IfPresent}, false, true},
		{Condition{Kind: IfGeneration, Generation: 7}, false, true}, {Condition{Kind: IfGeneration, Generation: 8}, false, false},
		{Condition{Kind: IfGeneration, Generation: NoOffset}, false, false}, {Condition{Kind: IfElsewhere}, false, false},
	} {
		if tt.c.Holds(Absent) != tt.absent || tt.c.Holds(pending) != tt.present {
			t.Errorf("%+v holds: %v, %v", tt.c, tt.c.Holds(Absent), tt.c.Holds(pending))
		}
	}
	is := &Timer{ID: []byte("x"), Offset: 7, Due: 5}
	for _, r := range []Request{{Schedule: &Timer{Offset: 9}}, {}, {Steer: Trigger}, {Steer: Pause}, {Steer: Resume}} {
		r.If = Condition{Kind: IfAbsent}
		if e := r.Apply(is.Ref(), is); e.Outcome != Unmet || e.After != is {
			t.Errorf("%+v does not count, and leads to %+v", r, e)
		}
	}
}

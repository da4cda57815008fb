package timer

import (
	"reflect"
	"testing"
	"unsafe"
)

// kinds has a timer of each kind, as a request makes it.
func kinds() map[string]func() *Timer {
	make := func(r *Recurrence) func() *Timer {
		return func() *Timer {
			t := &Timer{ID: []byte("id"), Offset: 9, Due: 50_000, Occurrence: 1,
				Target:   Target{Topic: "t", Partition: AnyPartition, Key: []byte("id")},
				Headers:  []Header{{"traceparent", []byte("1")}, {"a", []byte{}}, {"a", nil}},
				Value:    []byte("v"),
				TooLate:  5,
				Remember: &Remember{For: 5, Token: "t"}, Labels: "team=a"}
			if r != nil {
				own := *r
				t.Recurrence = &own
			}
			return t
		}
	}
	start := Start{At: 50_000, Set: true}
	return map[string]func() *Timer{
		"once":             make(nil),
		"once with jitter": make(&Recurrence{Until: NoUntil, Jitter: 10}),
		"every":            make(&Recurrence{Every: 1000, Until: NoUntil}),
		"cron": make(&Recurrence{
			Cron: "@daily", Zone: "Africa/Lagos", Until: 1 << 40, Count: 5, Jitter: 10}),
		"cron with start": make(&Recurrence{Cron: "@daily", Until: NoUntil, Start: start}),
		"every month": make(&Recurrence{Period: Period{Months: 1}, Zone: "Africa/Lagos", Until: NoUntil,
			Start: start}),
	}
}

// later returns a timer some occurrences later, paused.
func later(t *Timer) *Timer {
	t.Steering = &Steering{Paused: true, By: 8}
	t.Offset, t.Headers[0].Value = 7, []byte("2")
	if t.Recurs() {
		t.Occurrence, t.Due = 4, t.Due+3*max(t.Recurrence.Every, 100)
		if t.Recurrence.Cron != "" || t.Recurrence.Zone != "" {
			t.Recurrence.Ahead = 3600
		}
	}
	if t.Recurrence != nil && t.Recurrence.Jitter > 0 {
		t.Recurrence.Delay = 3
		t.Due += 3
	}
	return t
}

// TestDeclaredAgain: a request with IfChanged leaves a schedule alone that is what it asks for, replaces what else is
// different, and otherwise schedules anew. Each field of a timer is changed in turn.
func TestDeclaredAgain(t *testing.T) {
	type change struct {
		name string
		do   func(*Timer) // does nothing to a timer that has no such thing
		want Outcome      // Unchanged; Replaced: contents only; None: another schedule
	}
	recurs := func(do func(*Recurrence)) func(*Timer) {
		return func(t *Timer) {
			if t.Recurrence != nil {
				do(t.Recurrence)
			}
		}
	}
	changes := []change{
		{"nothing", func(*Timer) {}, Unchanged},
		{"trace", func(t *Timer) { t.Headers = t.Headers[1:] }, Unchanged},
		{"default zone", recurs(func(r *Recurrence) {
			if r.Cron != "" && r.Zone == "" {
				r.Zone = "UTC"
			}
		}), Unchanged},
		{"topic", func(t *Timer) { t.Target.Topic = "u" }, Replaced},
		{"partition", func(t *Timer) { t.Target.Partition = 0 }, Replaced},
		{"key", func(t *Timer) { t.Target.Key = []byte("k") }, Replaced},
		{"null key", func(t *Timer) { t.Target.Key = nil }, Replaced},
		{"header's name", func(t *Timer) { t.Headers[2].Key = "b" }, Replaced},
		{"header's value", func(t *Timer) { t.Headers[2].Value = []byte{} }, Replaced},
		{"one header more", func(t *Timer) { t.Headers = append(t.Headers, Header{Key: "b"}) }, Replaced},
		{"one header less", func(t *Timer) { t.Headers = t.Headers[:2] }, Replaced},
		{"value", func(t *Timer) { t.Value = []byte("w") }, Replaced},
		{"null value", func(t *Timer) { t.Value = nil }, Replaced},
		{"too late", func(t *Timer) { t.TooLate = 0 }, Replaced},
		{"remember for", func(t *Timer) { t.Remember = &Remember{For: 6, Token: "t"} }, Replaced},
		{"remember with", func(t *Timer) { t.Remember = &Remember{For: 5} }, Replaced},
		{"not remember", func(t *Timer) { t.Remember = nil }, Replaced},
		{"labels", func(t *Timer) { t.Labels = "team=b" }, Replaced},
		{"no labels", func(t *Timer) { t.Labels = "" }, Replaced},
		{"catch-up", recurs(func(r *Recurrence) { r.CatchUp = CatchUpAll }), Replaced},
		{"jitter", recurs(func(r *Recurrence) { r.Jitter++ }), None},
		{"until", recurs(func(r *Recurrence) { r.Until-- }), None},
		{"count", recurs(func(r *Recurrence) { r.Count++ }), None},
		{"every", recurs(func(r *Recurrence) { r.Every, r.Cron, r.Zone, r.Period = 999, "", "", Period{} }), None},
		{"zone", recurs(func(r *Recurrence) {
			if r.Zone != "" {
				r.Zone = "Asia/Tokyo"
			}
		}), None},
		{"cron", recurs(func(r *Recurrence) { r.Every, r.Cron, r.Period = 0, "@hourly", Period{} }), None},
		{"period", recurs(func(r *Recurrence) { r.Every, r.Cron, r.Period = 0, "", Period{Days: 1} }), None},
		{"at", func(t *Timer) {
			if !t.Recurs() {
				t.Due++
			}
		}, None},
		{"start of cron", recurs(func(r *Recurrence) {
			if r.Cron != "" && r.Start.Set {
				r.Start.At++
			}
		}), None},
		{"no start of cron", recurs(func(r *Recurrence) {
			if r.Cron != "" {
				r.Start = Start{}
			}
		}), None},
		{"null", func(t *Timer) { t.Value = []byte{} }, Replaced},
	}
	for kind, fresh := range kinds() {
		for _, c := range changes {
			asked := fresh()
			if c.do(asked); c.name != "nothing" && c.name != "trace" && reflect.DeepEqual(asked, fresh()) {
				continue // it has no such thing
			}
			pending := later(fresh())
			before := *pending
			e := (&Request{ID: asked.ID, Offset: 9, Schedule: asked, If: Condition{Kind: IfChanged}}).Apply(
				pending.Ref(), pending)
			name := kind + ", " + c.name
			switch c.want {
			case Unchanged:
				if e.Outcome != Unchanged || e.After != pending {
					t.Errorf("%s: outcome %d, %+v is left", name, e.Outcome, e.After)
				}
			case Replaced:
				want := *asked
				want.Due, want.Occurrence, want.Steering = before.Due, before.Occurrence, before.Steering
				if want.Recurrence != nil {
					r := *before.Recurrence
					r.CatchUp, want.Recurrence = asked.Recurrence.CatchUp, &r
				}
				if e.Outcome != Replaced || !reflect.DeepEqual(e.After, &want) || e.After.Ref() == before.Ref() {
					t.Errorf("%s: outcome %d, %+v is left, want %+v", name, e.Outcome, e.After, want)
				}
			default:
				if e.Outcome != Replaced || e.After != asked {
					t.Errorf("%s: outcome %d, %+v is left, want %+v", name, e.Outcome, e.After, asked)
				}
			}
			if !reflect.DeepEqual(*pending, before) {
				t.Errorf("%s: the pending timer has changed", name)
			}
		}
	}
}

// TestDeclaredFromAnInstant: whether a request that names the beginning of its interval asks for what is pending
// depends on that instant, and only then.
func TestDeclaredFromAnInstant(t *testing.T) {
	for _, kind := range []string{"every", "every month"} {
		for _, anchored := range []bool{false, true} {
			for _, by := range []int64{0, 500} {
				asked := kinds()[kind]()
				asked.Due += by
				asked.Recurrence.Start.At += by
				if kind == "every" {
					asked.Recurrence.Start = Start{}
				}
				want := Unchanged
				if anchored && by != 0 {
					want = Replaced
				}
				r := Request{Offset: 9, Schedule: asked, If: Condition{Kind: IfChanged, Anchored: anchored}}
				pending := later(kinds()[kind]())
				if e := r.Apply(pending.Ref(), pending); e.Outcome != want {
					t.Errorf("%s, anchored %v, %d ms later: outcome %d, want %d", kind, anchored, by, e.Outcome, want)
				}
			}
		}
	}
}

// TestDeclaredWithNothingPending: without a pending timer the request schedules, also if one is remembered.
func TestDeclaredWithNothingPending(t *testing.T) {
	asked := kinds()["every"]()
	r := Request{Offset: 9, Schedule: asked, If: Condition{Kind: IfChanged}}
	for _, pending := range []*Timer{nil, kinds()["every"]().Ended(0)} {
		if e := r.Apply(pending.Ref(), pending); e.Outcome != Scheduled || e.After != asked {
			t.Errorf("finds %+v: outcome %d", pending, e.Outcome)
		}
	}
	if !r.Depends() {
		t.Error("needs no look at what is pending")
	}
}

// TestDeclaredOwnsItsMemory: a timer that takes over a schedule does not keep the memory of the timer before it, which
// may have had a large payload.
func TestDeclaredOwnsItsMemory(t *testing.T) {
	decoded := func(value int) *Timer {
		first := kinds()["cron"]()
		first.Value = make([]byte, value)
		got, err := Decode(first.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	pending, asked := decoded(1<<20), decoded(1)
	asked.Offset++
	r := Request{Offset: asked.Offset, Schedule: asked, If: Condition{Kind: IfChanged}}
	got := r.Apply(pending.Ref(), pending).After
	for _, s := range []struct{ got, want string }{
		{got.Recurrence.Cron, asked.Recurrence.Cron}, {got.Recurrence.Zone, asked.Recurrence.Zone},
	} {
		if unsafe.StringData(s.got) != unsafe.StringData(s.want) {
			t.Errorf("%q is in the memory of the timer before", s.got)
		}
	}
}

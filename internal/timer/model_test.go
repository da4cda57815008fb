package timer

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// plain is what a person would write down about one timer. It shares nothing with the product.
type plain struct {
	source  int64 // offset of the request, or of the changelog record that moved it
	moved   bool
	due     int64 // of the next occurrence; for a remembered timer, when it is forgotten
	number  int64
	every   int64 // 0: it does not recur
	late    int64 // by how much requests have moved the next occurrence of one that recurs
	shown   bool  // one has
	left    int64 // occurrences after the next one
	tooLate int64

	paused, triggered bool
	asked             int64 // when the trigger was requested
	trigger           int   // its number

	keep       int64 // for how long it is remembered after it has ended
	remembered bool  // it has ended and is remembered
}

// ending is something that may happen only once.
type ending struct {
	source  int64
	moved   bool
	number  int64
	trigger int // number of a trigger of a recurring timer, which is not an occurrence
}

// world is a partition, modelled as a map.
type world struct {
	t        *rapid.T
	seen     map[string]int
	now      int64
	next     int64 // offset of the next request
	moves    int64 // offset of the next changelog record
	triggers int
	plain    map[string]*plain
	is       map[string]*Timer
	ended    map[ending]Outcome
	// versions says what was pending at each Ref, whatever its ID. No Ref occurs twice, except that an occurrence may
	// lie where one has lain that a request had moved.
	versions map[Ref]string
}

// hostile are extreme instants that a request may name, and instants near them.
var hostile = rapid.OneOf(
	rapid.Int64Range(-3, 3),
	// years 1 and 9999, and far beyond
	rapid.SampledFrom(
		[]int64{-62_135_596_800_000, -1 << 50, 253_402_300_799_999, 1 << 50, math.MinInt64 >> 12, math.MaxInt64 >> 12}),
)

// TestTimersAgainstModel applies requests, firings and moves to a few IDs in any order, and compares what is pending
// with a map. Refs are unique and in the order of firing, and each occurrence ends exactly once.
func TestTimersAgainstModel(t *testing.T) {
	runs.Checks(t, 2000)
	runs.Steps(t, 60)
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			t: t, seen: seen, now: hostile.Draw(t, "now"),
			next:  rapid.SampledFrom([]int64{0, 1, 1 << 40, 1 << 59}).Draw(t, "first offset"),
			moves: rapid.SampledFrom([]int64{0, 1 << 40, 1 << 59}).Draw(t, "first move"),
			plain: map[string]*plain{}, is: map[string]*Timer{}, ended: map[ending]Outcome{},
			versions: map[Ref]string{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"":         func(*rapid.T) { w.check() },
			"schedule": w.schedule, "schedule again": w.schedule,
			"cancel": func(t *rapid.T) { w.request(t, Request{}, nil) },
			"steer":  w.steer, "steer more": w.steer,
			"fire": w.fire, "fire more": w.fire, "move": w.move,
			"pass": func(t *rapid.T) { w.now += rapid.SampledFrom([]int64{-5, 0, 1, 2, 5, 1 << 40}).Draw(t, "ms") },
		})
	})
	for _, what := range []string{"scheduled", "replaced", "cancelled", "not found", "triggered", "paused", "resumed",
		"unmet", "fired", "expired", "recurred", "remembered", "forgotten", "moved", "remembered and moved",
		"fired while paused",
		"moved by a request"} {
		if seen[what] == 0 && !testing.Short() {
			t.Errorf("nothing was %s: %v", what, seen)
		}
	}
}

func (w *world) id(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
}

// request applies a request to one ID. schedule is the timer that it would make pending.
func (w *world) request(t *rapid.T, r Request, schedule *plain) {
	id := w.id(t)
	w.next += rapid.Int64Range(0, 2).Draw(t, "gap")
	r.ID, r.Offset = []byte(id), w.next
	w.next++
	was, p := w.is[id], w.plain[id]
	if schedule != nil {
		schedule.source = r.Offset
		r.Schedule.ID, r.Schedule.Offset, r.Schedule.Occurrence = r.ID, r.Offset, 1
	}
	met := true
	r.If.Kind = rapid.SampledFrom(
		[]ConditionKind{IfAlways, IfAlways, IfAbsent, IfPresent, IfGeneration, IfElsewhere}).Draw(t, "if")
	switch r.If.Kind {
	case IfAbsent:
		met = p == nil
	case IfPresent:
		met = p != nil && !p.remembered
	case IfGeneration:
		r.If.Generation = rapid.SampledFrom([]int64{w.next - 2, NoOffset, 0, math.MinInt64, math.MaxInt64}).Draw(
			t, "generation")
		if p != nil && rapid.Bool().Draw(t, "that") {
			r.If.Generation = p.source
		}
		met = p != nil && !p.remembered && !p.moved && p.source == r.If.Generation
	case IfElsewhere:
		met = false
	}
	want, outcome := p, Unmet
	if met {
		want, outcome = w.effect(&r, p, schedule)
	}
	if outcome == Replaced || outcome == Cancelled || outcome == Moved {
		w.end(p, outcome)
	}
	e := r.Apply(was.Ref(), was)
	if e.Outcome != outcome || e.Before != was.Ref() || string(e.ID) != id || e.Request != r.Offset || e.Emit != nil ||
		e.Late != nil {
		t.Fatalf("%+v of %+v comes to %+v, want outcome %d", r, p, e, outcome)
	}
	if (outcome == Unmet || outcome == NotFound && r.Steer != 0) && e.After != was {
		t.Fatalf("%+v changes nothing, and leaves %+v of %+v", r, e.After, was)
	}
	if !r.Depends() {
		if blind := r.Apply(was.Ref(), nil); blind.Outcome != e.Outcome || blind.After != e.After {
			t.Fatalf("without a look at the timer it comes to %+v, not %+v", blind, e)
		}
	}
	w.seen[map[Outcome]string{
		Scheduled: "scheduled", Replaced: "replaced", Cancelled: "cancelled", NotFound: "not found",
		Triggered: "triggered", Paused: "paused", Resumed: "resumed", Unmet: "unmet", Moved: "moved by a request",
	}[outcome]]++
	if (e.Was != nil) != (outcome == Moved) || outcome == Moved && e.Was != was {
		t.Fatalf("%+v of %+v says that it was %+v", r, was, e.Was)
	}
	w.put(id, e.After, want)
}

// effect returns the effect of a request whose condition holds.
func (w *world) effect(r *Request, p, schedule *plain) (*plain, Outcome) {
	there := p != nil && !p.remembered
	if schedule != nil {
		if there {
			return schedule, Replaced
		}
		return schedule, Scheduled
	}
	if r.Steer == 0 {
		if there {
			return nil, Cancelled
		}
		return nil, NotFound // a remembered timer is forgotten
	}
	if !there {
		return p, NotFound
	}
	other, outcome := *p, NotFound
	switch r.Steer {
	case Trigger:
		if !p.triggered {
			w.triggers++
			other.triggered, other.asked, other.trigger, outcome = true, r.At, w.triggers, Triggered
		}
	case Pause:
		if !p.paused {
			other.paused, outcome = true, Paused
		}
	case Resume:
		if p.paused {
			other.paused, outcome = false, Resumed
		}
	case Move:
		other.source, other.moved, other.due, outcome = r.Offset, false, r.At, Moved
		other.late, other.shown = p.late+r.At-p.due, true
	}
	if outcome == NotFound {
		return p, NotFound
	}
	return &other, outcome
}

func (w *world) schedule(t *rapid.T) {
	due := hostile.Draw(t, "due")
	if rapid.IntRange(0, 3).Draw(t, "soon") > 0 {
		due = w.now + rapid.Int64Range(-5, 5).Draw(t, "in")
	}
	p := &plain{due: due, number: 1, tooLate: rapid.SampledFrom([]int64{0, 0, 1, 5}).Draw(t, "too late")}
	tm := &Timer{Due: p.due, Target: Target{Topic: "t", Partition: AnyPartition}, TooLate: p.tooLate,
		Value: rapid.SampledFrom([][]byte{nil, {}, []byte("v")}).Draw(t, "value")}
	if rapid.Bool().Draw(t, "recurs") {
		p.every, p.left = rapid.Int64Range(1, 3).Draw(t, "every"), rapid.Int64Range(0, 3).Draw(t, "left")
		tm.Recurrence = &Recurrence{Every: p.every, Count: p.left + 1, Until: NoUntil}
	}
	if rapid.Bool().Draw(t, "to be remembered") {
		p.keep = rapid.Int64Range(0, 5).Draw(t, "for")
		tm.Remember = &Remember{For: p.keep, Token: "digest"}
	}
	w.request(t, Request{Schedule: tm}, p)
}

func (w *world) steer(t *rapid.T) {
	r := Request{Steer: rapid.SampledFrom([]Steer{Trigger, Pause, Resume, Move}).Draw(t, "steer"), At: w.now}
	if r.Steer == Move {
		r.At += rapid.Int64Range(-5, 5).Draw(t, "to")
	}
	w.request(t, r, nil)
}

// fire fires an ID if it is due, or ends its memory. It does what package planner does.
func (w *world) fire(t *rapid.T) {
	id := w.id(t)
	p, is := w.plain[id], w.is[id]
	if p == nil {
		return
	}
	if p.remembered {
		if p.due <= w.now {
			w.seen["forgotten"]++
			w.put(id, nil, nil)
		}
		return
	}
	at, number := p.due, p.number
	if p.triggered {
		if at = p.asked; p.every > 0 {
			number = 0
		}
	} else if p.paused {
		return
	}
	if is.FiresAt() != at || is.FiresAs() != number {
		t.Fatalf("%+v fires as %d at %d, want %d, %d", p, is.FiresAs(), is.FiresAt(), number, at)
	}
	if at > w.now {
		return
	}
	late := p.tooLate > 0 && w.now >= at+p.tooLate
	e := Entry{ID: is.ID, Before: is.Ref(), Emit: is, Outcome: Fired}
	if is.IsTooLate(w.now) != late {
		t.Fatalf("%+v is too late at %d: %v", p, w.now, !late)
	}
	how := Fired
	if late {
		how = Expired
		if e.Expire(); e.Outcome != Expired || e.Emit != nil || e.Late != is {
			t.Fatalf("expires as %+v", e)
		}
	}
	w.seen[map[bool]string{false: "fired", true: "expired"}[late]]++
	if p.paused {
		w.seen["fired while paused"]++
	}
	w.end(p, how)
	next := *p
	var after *Timer
	switch {
	case p.triggered && p.every > 0:
		after = is.Untriggered()
		next.triggered = false
	case !p.triggered && p.left > 0:
		w.seen["recurred"]++
		next.number, next.due, next.left = p.number+1, p.due-p.late+p.every, p.left-1
		next.late, next.shown = 0, false
		other, c := *is, *is.Recurrence
		other.Occurrence, other.Due, other.Recurrence = next.number, is.Original()+c.Every, &c
		if c.Original.Set { // later occurrences may lie where this one has lain
			delete(w.versions, Ref{Due: is.Due, Offset: is.Offset})
		}
		c.Original = Instant{}
		after = &other
	case p.triggered && is.Untriggered() != nil:
		t.Fatalf("%+v goes on as %+v", p, is.Untriggered())
	case p.keep > 0:
		w.seen["remembered"]++
		after = is.Ended(w.now)
		next = plain{source: p.source, moved: p.moved, due: w.now + p.keep, number: p.number, keep: p.keep,
			remembered: true}
		w.put(id, after, &next)
		return
	default:
		if over := is.Ended(w.now); over != nil {
			t.Fatalf("%+v is remembered as %+v", p, over)
		}
		w.put(id, nil, nil)
		return
	}
	w.put(id, after, &next)
}

// end records how an occurrence ended. A cancel or a replacement ends all remaining ones.
func (w *world) end(p *plain, how Outcome) {
	at := ending{source: p.source, moved: p.moved, number: p.number}
	if p.triggered && (how == Fired || how == Expired) && p.every > 0 {
		at.number, at.trigger = 0, p.trigger
	}
	if was, ended := w.ended[at]; ended {
		w.t.Fatalf("%+v ends as %d, and was %d", p, how, was)
	}
	w.ended[at] = how
}

// move moves a pending timer to this partition, as if it came from another.
func (w *world) move(t *rapid.T) {
	id := w.id(t)
	p, is := w.plain[id], w.is[id]
	if p == nil {
		return
	}
	at := w.moves
	w.moves += rapid.Int64Range(1, 2).Draw(t, "gap")
	other := *p
	other.source, other.moved = at, true
	w.seen["moved"]++
	if p.remembered {
		w.seen["remembered and moved"]++
	}
	moved := is.MovedTo(at)
	if back, known := MovedAt(moved.Ref().Generation()); !known || back != at {
		t.Fatalf("moved by %d: %d, %v is said", at, back, known)
	}
	w.put(id, moved, &other)
}

// put makes a timer pending, as a store would hold it.
func (w *world) put(id string, is *Timer, p *plain) {
	if (is == nil) != (p == nil) {
		w.t.Fatalf("%q is %+v, want %+v", id, is, p)
	}
	if p == nil {
		delete(w.is, id)
		delete(w.plain, id)
		return
	}
	b := is.AppendTo(nil)
	got, err := Decode(b)
	if err != nil || !bytes.Equal(got.AppendTo(nil), b) || got.Ref() != is.Ref() {
		w.t.Fatalf("%+v is stored as %+v, %v", is, got, err)
	}
	if place, at, err := DecodePlace(b); err != nil || string(place) != id || is.Steering == nil && at != is.Ref() {
		w.t.Fatalf("the place of %q is %v, %v in its bytes, %v in all", place, at, err, is.Ref())
	}
	if was, taken := w.versions[is.Ref()]; taken && was != string(b) {
		w.t.Fatalf("%+v lies where another lay: %x, %x", is, b, was)
	}
	w.versions[is.Ref()] = string(b)
	w.is[id], w.plain[id] = got, p
}

// class orders Refs: triggered timers fire first, paused timers are last.
func (p *plain) class() int {
	switch {
	case p.triggered:
		return -1
	case p.paused:
		return 1
	}
	return 0
}

func (w *world) check() {
	ids := slices.Sorted(maps.Keys(w.is))
	for _, id := range ids {
		is, p := w.is[id], w.plain[id]
		at := is.Ref()
		got := fmt.Sprint(string(is.ID), is.Due, is.Occurrence, is.IsPaused(), is.IsTriggered(), is.IsRemembered(),
			at.IsRemembered(), at.IsPending(), at.IsAbsent())
		if want := fmt.Sprint(id, p.due, p.number, p.paused, p.triggered, p.remembered, p.remembered, !p.remembered,
			false); got != want {
			w.t.Fatalf("%+v is %s, want %s", is, got, want)
		}
		if is.IsMoved() != (p.shown && p.every > 0) || is.Original() != p.due-p.late && is.Recurs() {
			w.t.Fatalf("%+v comes from %d, %v", p, is.Original(), is.IsMoved())
		}
		generation := at.Generation()
		if _, moved := MovedAt(generation); moved != p.moved || !moved && generation != p.source ||
			generation == NoOffset {
			w.t.Fatalf("%+v has generation %d", p, generation)
		}
		if p.class() == 0 && at.Due != p.due || p.class() < 0 != (at.Compare(AboveTriggered) < 0) ||
			p.class() > 0 != (at.Compare(BelowPaused) > 0) {
			w.t.Fatalf("%+v lies at %v", p, at)
		}
		for _, other := range ids {
			q, to := w.plain[other], w.is[other].Ref()
			if c := at.Compare(to); c != -to.Compare(at) || (c == 0) != (id == other) ||
				p.class() < q.class() && c >= 0 || p.class() == 0 && q.class() == 0 && p.due < q.due && c >= 0 {
				w.t.Fatalf("%v with %v: %d", at, to, c)
			}
		}
	}
}

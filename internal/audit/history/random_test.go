package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
)

// draws writes a history that a correct service may have: requests of all kinds for a few IDs, accepted, decided and
// settled at any time, in order, and firings in between.
type draws struct {
	*script
	r        *rand.Rand
	queue    []*Request // not decided
	stored   map[string]bool
	asked    map[Place]*Request
	at       map[string]int64 // when the pending timer was triggered
	by       map[string]int64 // what triggered it
	from     map[Place]Place  // the request that has scheduled the timer of one that moves
	original map[Place]int64  // when the schedule has the pending occurrence, if it was moved
}

func drawn(seed uint64) History {
	d := &draws{script: newScript(), r: rand.New(rand.NewPCG(seed, 1)), stored: map[string]bool{},
		asked: map[Place]*Request{}, at: map[string]int64{}, by: map[string]int64{},
		from: map[Place]Place{}, original: map[Place]int64{}}
	d.h.Scope.Settle = 0
	d.now = due
	d.claim("p")
	for range 20 + d.r.IntN(120) {
		d.now += d.r.Int64N(60)
		switch d.r.IntN(8) {
		case 0, 1, 2:
			d.request()
		case 3, 4:
			d.decide()
		case 5, 6:
			d.fire(string(rune('a' + d.r.IntN(4))))
		case 7:
			d.commit()
		}
	}
	for len(d.queue) > 0 {
		d.decide()
	}
	d.commit()
	d.h.Scope.Ended = time.UnixMilli(d.now)
	return d.h
}

func (d *draws) chance(n int) bool { return d.r.IntN(n) == 0 }

func (d *draws) request() {
	id := string(rune('a' + d.r.IntN(4)))
	actions := []Action{Schedules, Schedules, Schedules, Cancels, Triggers, Pauses, Resumes, Resumes, Moves, Moves,
		Poison}
	r := d.ask(id, actions[d.r.IntN(len(actions))], func(r *Request) {
		if r.Action == Schedules {
			r.Due = d.now + d.r.Int64N(200) - 50
			r.Emits.Value = fmt.Sprint(r.Offset)
			switch d.r.IntN(4) {
			case 0:
				r.Recurs = &Recurrence{Every: 20 + d.r.Int64N(60), CatchUp: waterclock.CatchUpAll, Count: d.r.Int64N(4)}
			case 1:
				r.Remember = 1 + d.r.Int64N(200)
			case 2:
				r.MaxLate = 20 + d.r.Int64N(100)
			}
		}
		if r.Action == Moves {
			r.Due = d.now + d.r.Int64N(100) - 50
		}
		if r.Action != Poison && d.chance(3) {
			r.If = []string{"absent", "present",
				Place{Topic: "timers", Offset: d.r.Int64N(r.Offset + 1)}.String()}[d.r.IntN(3)]
		}
	})
	d.asked[r.Place] = r
	d.queue = append(d.queue, r)
}

// decide decides the next request by the rules of docs/REFERENCE.md.
func (d *draws) decide() {
	if len(d.queue) == 0 {
		return
	}
	r := d.queue[0]
	d.queue = d.queue[1:]
	if r.Action == Poison {
		d.reject(r)
		return
	}
	pending := d.pending[r.ID]
	there := pending != nil && !pending.Remembered
	holds := map[string]bool{"": true, "absent": pending == nil, "present": there}[r.If] || there &&
		r.If == pending.Source.String()
	if !holds {
		e := waterclock.Event{Type: waterclock.EventConditionNotMet, ID: r.ID, Request: r.Place}
		if pending != nil {
			e.Source = pending.Source
		}
		d.event(e)
		return
	}
	switch {
	case r.Action == Schedules:
		if pending != nil && pending.Remembered {
			d.put(r.ID, nil)
		}
		d.schedule(r)
	case !there:
		if r.Action == Cancels && pending != nil {
			d.put(r.ID, nil)
		}
	case r.Action == Cancels:
		d.cancel(r)
	default:
		d.steerIt(r, *pending)
	}
}

func (d *draws) steerIt(r *Request, t Timer) {
	typ := waterclock.EventType("")
	switch {
	case r.Action == Triggers && !t.Triggered:
		t.Triggered, typ = true, waterclock.EventTriggered
		d.at[r.ID], d.by[r.ID] = min(r.Timestamp, d.now), r.Offset
	case r.Action == Pauses && !t.Paused:
		t.Paused, typ = true, waterclock.EventPaused
	case r.Action == Resumes && t.Paused:
		t.Paused, typ = false, waterclock.EventResumed
	case r.Action == Moves:
	default:
		return // nothing to do
	}
	e := waterclock.Event{Type: typ, ID: r.ID, Source: t.Source, Request: r.Place}
	if r.Action == Moves {
		e = waterclock.Event{Type: waterclock.EventMoved, ID: r.ID, Source: r.Place, Previous: t.Source,
			Due: time.UnixMilli(t.Due), Occurrence: t.Occurrence}
		if d.from[r.Place] = d.scheduledBy(t.Source); d.original[t.Source] == 0 {
			d.original[t.Source] = t.Due
		}
		d.original[r.Place] = d.original[t.Source]
		t.Source, t.Due = r.Place, r.Due
	}
	d.put(r.ID, &t)
	d.event(e)
}

// scheduledBy returns the request that has scheduled the timer of a source.
func (d *draws) scheduledBy(source Place) Place {
	if from, moved := d.from[source]; moved {
		return from
	}
	return source
}

// fire fires a due timer of an ID, lets it expire, or forgets it.
func (d *draws) fire(id string) {
	t := d.pending[id]
	if t == nil || t.Paused && !t.Triggered {
		return
	}
	at := t.Due
	if t.Triggered {
		at = d.at[id]
	}
	if at > d.now {
		return
	}
	if t.Remembered {
		d.put(id, nil)
		return
	}
	r := d.asked[d.scheduledBy(t.Source)]
	occurrence, after := t.Occurrence, (*Timer)(nil)
	switch {
	case r.Recurs != nil && t.Triggered:
		on := *t
		on.Triggered, occurrence, after = false, 0, &on
	case r.Recurs != nil && (r.Recurs.Count == 0 || t.Occurrence < r.Recurs.Count):
		on := *t
		on.Occurrence++
		on.Due, after = t.Due+r.Recurs.Every, &on
		if was := d.original[t.Source]; was != 0 { // it goes on from there
			on.Due = was + r.Recurs.Every
			delete(d.original, t.Source)
		}
	}
	if after == nil && r.Remember > 0 {
		after = &Timer{ID: id, Source: t.Source, Due: d.now + r.Remember, Occurrence: t.Occurrence, Remembered: true}
	}
	e := waterclock.Event{Type: waterclock.EventFired, ID: id, Source: t.Source, Due: time.UnixMilli(at),
		Occurrence: occurrence, Target: t.Emits.Topic}
	switch late := r.MaxLate > 0 && d.now-at >= r.MaxLate; {
	case late:
		e.Type = waterclock.EventExpired
	case d.chance(6):
		e.Type, e.Reason = waterclock.EventUndeliverable, waterclock.ReasonTargetRefused
		d.h.Letters = append(d.h.Letters, Letter{Record: d.record("timers.waterclock.dead-letters"), ID: id,
			Source: t.Source, Reason: waterclock.ReasonTargetRefused, Emission: true, Occurrence: occurrence})
	default:
		e.Emission = fmt.Sprintf("x.%d.%d", t.Source.Offset, occurrence)
		if occurrence == 0 {
			e.Emission += fmt.Sprint(".", d.by[id])
		}
		p := t.Emits
		p.Partition = partition
		d.h.Emissions = append(
			d.h.Emissions, Emission{Record: d.record(p.Topic), ID: id, Due: at, Occurrence: occurrence,
				Source: t.Source, Event: e.Emission, Carries: p})
	}
	d.put(id, after)
	d.event(e)
}

// commit settles all decided requests.
func (d *draws) commit() {
	d.dirty = slices.DeleteFunc(d.dirty, func(id string) bool { return d.pending[id] == nil && !d.stored[id] })
	for _, id := range d.dirty {
		d.stored[id] = d.pending[id] != nil
	}
	position := d.next["timers"]
	if len(d.queue) > 0 {
		position = d.queue[0].Offset
	}
	d.step("p", position)
}

// No rule finds anything in a correct history, however much of it was seen.
func TestCorrectHistories(t *testing.T) {
	for seed := range uint64(400) {
		for name, h := range map[string]History{"whole": drawn(seed), "without events": hide(
			drawn(seed), true, false, 0), "without events and changelog": hide(drawn(seed), true, true, 0),
			"of a span":                 hide(drawn(seed), false, false, 10),
			"of a span, without events": hide(drawn(seed), true, false, 10)} {
			found, fates := Judge(h)
			if len(found) > 0 {
				t.Fatalf("seed %d, %s: %q", seed, name, found)
			}
			if i := slices.IndexFunc(
				fates, func(f Fate) bool {
					return f == "" || f == Lost || f == Unknown || f == Unclear &&
						name == "whole"
				}); i >= 0 {
				t.Fatalf("seed %d, %s: %+v is %q", seed, name, h.Requests[i], fates[i])
			}
		}
	}
}

// hide removes records that a reader may not have seen.
func hide(h History, events, changes bool, from int64) History {
	if events {
		h.Events, h.Scope.Events = nil, nil
	}
	if changes {
		h.Changes = nil
	}
	if from > 0 {
		h.Requests = slices.DeleteFunc(h.Requests, func(r Request) bool { return r.Offset < from })
		h.Scope.From = map[Log]int64{{"timers", partition}: from}
	}
	return h
}

// Any fault in one emission or one outcome is found, in any history.
func TestBrokenHistories(t *testing.T) {
	for seed := range uint64(100) {
		if len(drawn(seed).Emissions) == 0 {
			continue
		}
		r := rand.New(rand.NewPCG(seed, 2))
		for name, change := range map[string]func(h *History, i int){
			"lost": func(h *History, i int) { h.Emissions = slices.Delete(h.Emissions, i, i+1) },
			"doubled": func(h *History, i int) {
				h.Emissions = doubled(h.Emissions, i, func(m *Emission) { m.Offset = math.MaxInt32 })
			},
			"early":     func(h *History, i int) { h.Emissions[i].Timestamp = h.Emissions[i].Due - 1 },
			"altered":   func(h *History, i int) { h.Emissions[i].Carries.Value += "!" },
			"another's": func(h *History, i int) { h.Emissions[i].ID += "!" },
		} {
			for _, seen := range []bool{true, false} {
				h := drawn(seed)
				i := r.IntN(len(h.Emissions))
				emission := h.Emissions[i]
				change(&h, i)
				if !seen {
					h = hide(h, true, false, 0)
					at := slices.IndexFunc(h.Requests, func(r Request) bool { return r.Place == emission.Source })
					if q := h.Requests[at]; name == "lost" &&
						(q.If != "" || q.Recurs != nil || q.MaxLate > 0 || taken(&h, at)) {
						continue // it may have expired, not have been made, or have been cancelled: only events tell
					}
				}
				if found := Check(h); len(found) == 0 {
					t.Fatalf("seed %d, events %v: an emission is %s and nothing is found: %+v", seed, seen, name,
						emission)
				}
			}
		}
	}
}

// taken reports whether a later request for its ID may have cancelled or replaced the timer of a request.
func taken(h *History, at int) bool {
	return slices.ContainsFunc(h.Requests[at+1:], func(r Request) bool {
		return r.ID == h.Requests[at].ID && (r.makes() || r.Action == Cancels)
	})
}

package planner

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/timer"
)

// In whatever order planners plan the requests of one log, and however much room steps have: after each step all
// requests below its position are settled and none beyond it is, entries of an ID come in order, each once, a step
// keeps to its room, and firings do not wait for requests of other IDs.
func TestTakeSettlesAPrefixOfTheLog(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "planners")
		var ps []*Planner
		for range n {
			p := New(0, 0, 1<<40)
			p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
			p.Open(0)
			ps = append(ps, p)
		}
		type request struct {
			offset int64
			id     string
		}
		handed := make([][]request, n) // handed out and not planned
		settled, owner := map[int64]bool{}, map[string]int64{}
		var all []int64 // offsets
		now, next, position := int64(0), int64(0), int64(0)
		bound := func() int64 {
			b := next
			for _, h := range handed {
				if len(h) > 0 {
					b = min(b, h[0].offset)
				}
			}
			return b
		}
		var out *Step
		t.Repeat(map[string]func(*rapid.T){
			"request": func(t *rapid.T) {
				for range rapid.IntRange(1, 6).Draw(t, "requests") {
					next += rapid.Int64Range(0, 2).Draw(t, "gap")
					id := rapid.IntRange(0, 9).Draw(t, "id")
					handed[id%n] = append(handed[id%n], request{next, fmt.Sprint(id)})
					all = append(all, next)
					next++
				}
			},
			"plan": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "planner")
				k := rapid.IntRange(0, len(handed[i])).Draw(t, "requests")
				if k == 0 {
					return
				}
				b := NewBatch(k)
				for _, r := range handed[i][:k] {
					tm := &timer.Timer{ID: []byte(r.id), Offset: r.offset, Due: now + 3, Occurrence: 1}
					if r.offset%4 == 0 {
						b.Reject(r.offset, r.offset, &timer.Refusal{Reason: "bad"})
					} else {
						b.Add(nil, timer.Request{ID: tm.ID, Offset: r.offset, Schedule: tm}, tm.AppendTo(nil))
					}
					b.Bytes += 100
				}
				handed[i] = handed[i][k:]
				ps[i].planNew(b)
			},
			"fire": func(t *rapid.T) {
				now += rapid.Int64Range(0, 3).Draw(t, "time")
				ps[rapid.IntRange(0, n-1).Draw(t, "planner")].Fire(
					now, timer.Size{Entries: rapid.IntRange(1, 5).Draw(t, "limit"), Bytes: 1 << 40},
					timer.Unlimited, free)
			},
			"take": func(t *rapid.T) {
				if out != nil {
					return
				}
				room := rapid.IntRange(1, 4).Draw(t, "room")
				b, firings := bound(), 0
				for _, p := range ps {
					k, _ := p.Ready()
					firings += k.Entries
				}
				pass := rapid.Bool().Draw(t, "pass")
				if out = Take(ps, timer.Size{Entries: room, Bytes: 1 << 40}, pass, b); out == nil {
					if first := slices.IndexFunc(all, func(at int64) bool { return !settled[at] }); firings > 0 ||
						first >= 0 && all[first] < b {
						t.Fatalf("nothing is taken of %d firings and of requests below %d", firings, b)
					}
					return
				}
				if out.Len() == 0 && (!pass || out.Position <= position) {
					t.Fatalf("a step of nothing to %d from %d", out.Position, position)
				}
				if out.Position > b {
					t.Fatalf("position %d, planned up to %d", out.Position, b)
				}
				if out.Position < b {
					seen["room ends before the bound"]++
				}
				if len(handed[0]) > 0 && b < next {
					seen["one is behind"]++
				}
				biggest := 0
				for _, s := range out.Segments {
					for _, c := range slices.Concat(s.first, s.rest) {
						biggest = max(biggest, len(c.entries))
					}
				}
				if out.Len() > max(room, biggest) {
					t.Fatalf("%d entries in room for %d", out.Len(), room)
				}
				if k := out.Firings().Entries; firings > 0 && k == 0 {
					t.Fatalf("none of %d firings is taken", firings)
				}
			},
			"abort": func(*rapid.T) {
				if out != nil {
					Return(ps)
					out = nil
				}
			},
			"commit": func(t *rapid.T) {
				if out == nil {
					return
				}
				for e := range out.Entries() {
					switch {
					case e.Firing():
						if e.Emit != nil && owner[string(e.Emit.ID)] != e.Emit.Offset {
							t.Fatalf("%q fires as %d, pending %d", e.Emit.ID, e.Emit.Offset, owner[string(e.Emit.ID)])
						}
					case settled[e.Request] || e.Request < position:
						t.Fatalf("request %d is settled twice", e.Request)
					default:
						settled[e.Request] = true
						if e.Refusal == nil {
							if owner[string(e.ID)] > e.Request {
								t.Fatalf("request %d of %q behind %d", e.Request, e.ID, owner[string(e.ID)])
							}
							owner[string(e.ID)] = e.Request
						}
					}
				}
				position = out.Position
				for _, at := range all {
					if settled[at] != (at < position) {
						t.Fatalf("position %d, request %d is settled: %v", position, at, settled[at])
					}
				}
				for _, p := range ps {
					if p.Commit(); p.Position() != position {
						t.Fatalf("position %d, want %d", p.Position(), position)
					}
				}
				out = nil
			},
		})
	})
	for _, kind := range []string{"room ends before the bound", "one is behind"} {
		if seen[kind] == 0 && !t.Failed() && !testing.Short() { // short runs draw a fifth as many
			t.Errorf("it never happened: %s", kind)
		}
	}
}

// Requests on both sides of a bound are separated. An entry knows that it was cut off.
func TestABatchIsCutAtTheBound(t *testing.T) {
	p := New(0, 0, 1<<40)
	p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
	p.Open(0)
	b := NewBatch(4)
	for at := range int64(4) {
		tm := &timer.Timer{ID: []byte{byte('a' + at)}, Offset: 2 * at, Due: 5, Occurrence: 1}
		b.Add(nil, timer.Request{ID: tm.ID, Offset: tm.Offset, Schedule: tm}, tm.AppendTo(nil))
	}
	b.Position, b.Bytes = 7, 400
	p.planNew(b)
	p.Fire(10, timer.Size{Entries: 100, Bytes: 1 << 40}, timer.Unlimited, free) // all of them behind their requests
	for _, want := range []struct {
		bound             int64
		requests, firings int
		position          int64
	}{{3, 2, 0, 3}, {3, 0, 0, 0}, {4, 0, 0, 0}, {5, 1, 0, 5}, {math.MaxInt64, 1, 4, 7}} {
		s := Take([]*Planner{p}, timer.Size{Entries: 100, Bytes: 1 << 40}, false, want.bound)
		if s == nil {
			if want.requests > 0 {
				t.Fatalf("nothing is taken below %d", want.bound)
			}
			continue
		}
		if n, bytes := s.Requests().Entries, s.Requests().Bytes; n != want.requests || bytes != int64(100*n) ||
			s.Segments[0].Firings.Entries != want.firings || s.Position != want.position {
			t.Errorf("below %d: %d requests of %d bytes, %d firings, position %d; want %+v", want.bound, n, bytes,
				s.Segments[0].Firings.Entries, s.Position, want)
		}
		p.Commit()
	}
}

// A step that does not have room for a batch of each planner is filled nevertheless: overlapping batches are cut at the
// end of the room. If some were left out, the step would end at the beginning of the first of them.
func TestAStepIsFilledHoweverManyPlannersThereAre(t *testing.T) {
	const each = 500
	for _, n := range []int{1, 2, 8} {
		for _, room := range []int{100, 700, 2000, 3900} {
			var ps []*Planner
			for i := range n {
				p := New(0, 0, 1<<40)
				p.Load(Lowest, timer.Ref{Due: 1 << 40}, nil)
				p.Open(0)
				for k := range 2 {
					b := NewBatch(each)
					for j := range each {
						at := int64((k*each+j)*n + i)
						tm := &timer.Timer{ID: fmt.Append(nil, at), Offset: at, Due: 1 << 30, Occurrence: 1}
						b.Add(nil, timer.Request{ID: tm.ID, Offset: at, Schedule: tm}, tm.AppendTo(nil))
						b.Bytes += 100
					}
					p.planNew(b)
				}
				ps = append(ps, p)
			}
			steps := 0
			for ; ; steps++ {
				s := Take(ps, timer.Size{Entries: room, Bytes: 1 << 40}, false, int64(2*n*each))
				if s == nil {
					break
				}
				if most := map[bool]int{true: max(room, each), false: room}[n == 1]; s.Len() > most {
					t.Errorf("%d planners: %d entries in room for %d", n, s.Len(), room)
				}
				for _, p := range ps {
					p.Commit()
				}
			}
			if most := 2*2*n*each/room + 2; steps > most {
				t.Errorf("%d planners, room for %d: %d requests take %d steps, want %d at most", n, room, 2*n*each,
					steps, most)
			}
		}
	}
}

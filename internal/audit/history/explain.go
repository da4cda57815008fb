package history

import (
	"cmp"
	"slices"

	"github.com/waterclock/waterclock"
)

// Pseudo-requests for what was pending before the first request of a history.
const (
	none    = -1
	earlier = -2
)

// maxStates bounds the possible states of an ID. Only an ID with many requests can have more, if dead letters cannot be
// read, so that none of the requests is known to have been accepted.
const maxStates = 64

// state is a possible state of an ID.
type state struct {
	timer             int // index of the request that scheduled it, or one of the above
	move              int // 1 + index of the last request that has moved it; 0: none
	remembered        int // index of the request whose timer has fired, or none
	paused, triggered bool
}

// source returns the index of the request that the timer comes from, or what timer has.
func (s state) source() int {
	if s.move > 0 {
		return s.move - 1
	}
	return s.timer
}

// edge leads from one state to another. It gives the fate of a timer, and of the request that caused it.
type edge struct {
	from, to state
	timer    requestFate
	request  requestFate
}

// requestFate gives the request at an index a fate; "" for none.
type requestFate struct {
	at   int
	fate Fate
}

// explainer looks for ways in which the facts about one timer ID can have come about.
//
// Requests are decided in the order of their log. An emission proves that a timer fired, but not when that was decided,
// because it does not tell which requests were planned before it. So the explainer keeps all the states that the ID can
// be in after each request. If none is left, the facts contradict each other. With events, one is left.
type explainer struct {
	x     *index
	f     *facts
	known []evidence // by request
	// since is how the pending timer ended after it was seen pending: see Scope.Moving.
	since requestFate
}

// explain returns the fate of each request of a life.
func explain(x *index, f *facts) (got fates) {
	got.byRequest = make([]Fate, len(f.requests))
	if len(f.requests) == 0 {
		return got
	}
	if x.moved[topicID{f.Topic, f.id}] {
		return fates{byRequest: unknown(len(f.requests))}
	}
	e := explainer{x: x, f: f}
	e.collect()
	now := []state{{timer: none, remembered: none}}
	if x.Scope.From[f.Log] > 0 {
		for _, paused := range []bool{false, true} {
			for _, triggered := range []bool{false, true} {
				now = append(now, state{timer: earlier, remembered: none, paused: paused, triggered: triggered})
			}
		}
		now = append(now, state{timer: none, remembered: earlier})
	}
	var paths [][]edge
	decided := len(f.requests)
	for i, r := range f.requests {
		if settled, known := x.settled(f.Log, r.Offset); known && !settled {
			decided = i
			break
		}
		paths, now = e.free(paths, now)
		edges := e.decide(now, i)
		if len(edges) == 0 {
			got.wrong = append(got.wrong, e.impossible(i))
			for _, s := range now { // go on with all states that the request may have left
				edges = append(edges, edge{from: s, to: s}, edge{from: s, to: state{timer: none, remembered: none}})
				if r.Action == Schedules {
					edges = append(edges, edge{from: s, to: state{timer: i, remembered: none}})
				}
			}
		}
		if paths, now = append(paths, edges), ends(edges); len(now) > maxStates {
			return fates{byRequest: unknown(len(f.requests))}
		}
	}
	paths, now = e.free(paths, now)
	fits := slices.DeleteFunc(slices.Clone(now), func(s state) bool { return !e.fits(s) })
	away := none // a request whose timer may have been moved to another partition
	if len(fits) == 0 {
		if w := e.unfit(now, decided); w.lost && x.Scope.Strays[f.Topic][f.id] {
			away = w.at
		} else {
			got.wrong = append(got.wrong, w)
		}
		fits = now
	}
	e.settle(&got, paths, fits, decided)
	if away != none {
		got.byRequest[away] = Unknown
	}
	return got
}

func unknown(requests int) []Fate { return slices.Repeat([]Fate{Unknown}, requests) }

// free adds the changes that need no request: a timer fires or ends in another way, or an ID is no longer remembered. A
// triggered timer that recurs may fire and then end. No change is possible too.
func (e *explainer) free(paths [][]edge, now []state) ([][]edge, []state) {
	for range 2 {
		var edges []edge
		for _, s := range now {
			edges = append(edges, edge{from: s, to: s})
			edges = append(edges, e.alone(s)...)
		}
		if len(edges) == len(now) {
			break
		}
		paths, now = append(paths, edges), ends(edges)
	}
	return paths, now
}

// alone returns the edges that leave a state without a request.
func (e *explainer) alone(s state) (edges []edge) {
	gone := state{timer: none, remembered: none}
	switch {
	case s.timer == earlier && s.move > 0: // nothing else is known of it
		i := s.source()
		fate := cmp.Or(e.known[i].timer, e.known[i].end, Unclear)
		edges = []edge{{from: s, to: gone, timer: requestFate{i, fate}},
			{from: s, to: state{timer: none, remembered: i}, timer: requestFate{i, fate}},
			{from: s, to: state{timer: earlier, move: s.move, remembered: none, paused: s.paused}}}
		return slices.DeleteFunc(edges, func(g edge) bool { return !e.agrees(g) })
	case s.timer == earlier:
		return []edge{{from: s, to: gone}, {from: s, to: state{timer: none, remembered: earlier}},
			{from: s, to: state{timer: earlier, remembered: none, paused: s.paused}}}
	case s.timer == none && s.remembered != none:
		return []edge{{from: s, to: gone}}
	case s.timer < 0 || s.paused && !s.triggered:
		return nil // paused, it neither fires nor expires
	}
	r, from := e.f.requests[s.timer], e.firesFrom(s)
	if r.Recurs != nil && s.triggered && (e.known[s.source()].bare || r.MaxLate > 0 || mayLack(e.x, r, from)) {
		on := s
		on.triggered = false
		edges = append(edges, edge{from: s, to: on})
	}
	fate := e.ending(s.source(), r, from)
	if fate == "" {
		return edges
	}
	end := edge{from: s, to: gone, timer: requestFate{s.source(), fate}}
	edges = append(edges, end)
	if r.Remember > 0 {
		end.to.remembered = s.source()
		edges = append(edges, end)
	}
	return slices.DeleteFunc(edges, func(g edge) bool { return !e.agrees(g) })
}

// firesFrom is the earliest time at which the timer of a state may have fired, in Unix ms.
func (e *explainer) firesFrom(s state) int64 {
	due := e.f.requests[s.source()].Due
	if s.triggered {
		return min(due, e.known[s.timer].triggered)
	}
	return due
}

// ending returns how the timer of request i, which r has scheduled and which fires from a time on, may have ended
// without another request; "" if it cannot have.
func (e *explainer) ending(i int, r *Request, from int64) Fate {
	switch fate, over := e.known[i].end, e.known[i].timer; {
	case over == Expired, over == Completed:
		return over
	case r.Recurs != nil && !e.finished(e.f.requests[i], r, from):
		return ""
	case fate != "" && (over == Fired || over == Undeliverable):
		return over // of the last occurrence
	case fate != "":
		return fate
	case mayLack(e.x, r, from):
		return Unknown
	case r.MaxLate > 0 || r.Recurs != nil:
		return Unclear // it may have expired, or its last occurrences were skipped
	}
	return ""
}

// mayLack reports whether emissions of a request's timer, from a time on, may be missing in the history.
func mayLack(x *index, r *Request, from int64) bool {
	return !x.seen(r.Emits.Topic, from) || !x.seen(r.Topic+lettersSuffix, from)
}

// finished reports whether a recurring timer, which r has scheduled and which comes from a request, may have ended: its
// last occurrence was seen, or need not have been.
func (e *explainer) finished(source, r *Request, from int64) bool {
	last := r.last()
	switch {
	case r.Recurs.Count == 0 && r.Recurs.Until == 0:
		return false
	case last == 0, r.MaxLate > 0, r.Recurs.CatchUp == waterclock.CatchUpNone, mayLack(e.x, r, from):
		return true
	}
	refused := e.f.refused.ofRequest(source.Place)
	return e.emitted(source, last) || len(refused) > 0 && refused[0].Occurrence < 0
}

// emitted reports whether an occurrence was emitted, or is a dead letter.
func (e *explainer) emitted(r *Request, n int64) bool {
	return e.f.fired.contains(r.Place, n) || e.f.refused.contains(r.Place, n)
}

// last is the number of the last occurrence; 0 if there is none, or it is not known.
func (r *Request) last() (n int64) {
	c := r.Recurs
	if c.Until > 0 && (c.Every == 0 || r.continues()) {
		return 0
	}
	n = c.Count
	if c.Until > 0 {
		if by := (c.Until-r.Due)/c.Every + 1; n == 0 || by < n {
			n = by
		}
	}
	return n
}

// decide returns the edges of a request from each of the given states.
func (e *explainer) decide(states []state, i int) (edges []edge) {
	r := e.f.requests[i]
	for _, s := range states {
		if e.rejected(i) {
			edges = append(edges, edge{from: s, to: s, request: requestFate{i, Rejected}})
			continue
		}
		if !e.known[i].made && !e.x.seen(e.f.Topic+lettersSuffix, r.Timestamp) {
			edges = append(edges, edge{from: s, to: s, request: requestFate{i, Unknown}})
		}
		for _, holds := range e.holds(r, s) {
			switch {
			case !holds && e.known[i].made:
			case !holds:
				edges = append(edges, edge{from: s, to: s, request: requestFate{i, Unmet}})
			case e.gone(s) && (r.makes() || r.Action == Cancels):
				// It has fired, so this request did not find it.
			case r.Action == Moves && s.timer == none && e.known[i].made:
			default:
				g := e.apply(s, i)
				edges = append(edges, g)
				if r.mayTakeOver() && s.timer != none && (s.paused || s.triggered) {
					g.to.paused, g.to.triggered = s.paused, s.triggered
					edges = append(edges, g)
				}
			}
		}
		if r.mayTakeOver() && r.Action == Schedules && s.timer != none && !e.known[i].made {
			edges = append(edges, edge{from: s, to: s, request: requestFate{i, NothingToDo}}) // it found itself pending
		}
	}
	return slices.DeleteFunc(edges, func(g edge) bool { return !e.agrees(g) })
}

// apply returns the edge of a request whose condition holds. If it makes a timer, its fate is that of the timer.
func (e *explainer) apply(s state, i int) edge {
	g := edge{from: s, to: s, request: requestFate{i, Done}}
	if s.timer == none {
		g.request.fate = NothingToDo
	}
	taken := func(by Fate) {
		if s.source() >= 0 {
			g.timer = requestFate{s.source(), by}
		}
	}
	switch e.f.requests[i].Action {
	case Schedules:
		g.to, g.request.fate = state{timer: i, remembered: none}, Done
		taken(Replaced)
	case Cancels:
		g.to = state{timer: none, remembered: none}
		taken(Cancelled)
	case Moves:
		if s.timer != none {
			g.to.move = i + 1
			taken(Moved)
		}
	case Triggers:
		if s.triggered {
			g.request.fate = NothingToDo
		}
		g.to.triggered = s.timer != none
	case Pauses:
		if s.paused {
			g.request.fate = NothingToDo
		}
		g.to.paused = s.timer != none
	case Resumes:
		if !s.paused {
			g.request.fate = NothingToDo
		}
		g.to.paused = false
	case Poison:
	}
	return g
}

// rejected reports whether a request became a dead letter, or should have.
func (e *explainer) rejected(i int) bool {
	return e.known[i].dead || e.f.requests[i].Action == Poison
}

// holds returns whether the condition of a request holds, or both answers if that is not known.
func (e *explainer) holds(r *Request, s state) []bool {
	switch r.If {
	case "", waterclock.IfChanged:
		return []bool{true}
	case waterclock.IfAbsent:
		return []bool{s.timer == none && s.remembered == none}
	case waterclock.IfPresent:
		return []bool{s.timer != none}
	}
	switch s.source() {
	case earlier:
		return []bool{true, false}
	case none:
		return []bool{false}
	}
	return []bool{e.f.requests[s.source()].Place.String() == r.If}
}

// fits reports whether a state agrees with the timer that is pending at the end.
func (e *explainer) fits(s state) bool {
	t := e.f.pending
	switch {
	case e.gone(s):
		return false // it must have fired
	case !e.x.endKnown(e.f.Log):
		return true
	case t == nil:
		return s.timer == none
	case t.Remembered:
		return s.timer == none && (s.remembered == earlier && !e.x.requested(t.Source) || s.remembered >= 0 &&
			e.f.requests[s.remembered].Place == t.Source)
	case s.source() == earlier:
		return !e.x.requested(t.Source)
	case s.timer == none:
		return false
	}
	return e.f.requests[s.source()].Place == t.Source && s.paused == t.Paused && s.triggered == t.Triggered
}

// ends returns the states that edges lead to, each once.
func ends(edges []edge) (states []state) {
	for _, g := range edges {
		if !slices.Contains(states, g.to) {
			states = append(states, g.to)
		}
	}
	return states
}

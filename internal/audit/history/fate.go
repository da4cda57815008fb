package history

import (
	"cmp"
	"slices"
)

// Fate is the outcome of a request.
type Fate string

// The fates. A request that schedules, or moves a timer, has one of the first ten, unless it is not known.
const (
	Fired         Fate = "fired"
	Cancelled     Fate = "cancelled"
	Replaced      Fate = "replaced"
	Moved         Fate = "moved" // a later request moved the timer: it has the fate of that
	Expired       Fate = "expired"
	Undeliverable Fate = "undeliverable"
	Completed     Fate = "completed" // a recurrence ended
	StillPending  Fate = "pending"
	Unmet         Fate = "condition-not-met"
	Rejected      Fate = "rejected"
	Done          Fate = "done"          // it cancelled or steered a timer
	NothingToDo   Fate = "nothing-to-do" // it found none
	Undecided     Fate = "undecided"     // the position has not passed it
	// Unclear: several fates agree with the facts, and all of them keep the promises.
	Unclear Fate = "unclear"
	// Unknown: the records that would show the fate were not seen.
	Unknown Fate = "unknown"
	// Lost: no fate agrees with the facts.
	Lost Fate = "lost"
)

// fates has the fate of each request of a life, by index, and the contradictions.
type fates struct {
	byRequest []Fate
	wrong     []wrong
}

// wrong is a point at which no explanation is left: after a request, or at the end.
type wrong struct {
	at    int
	lost  bool // the request has no outcome
	where []Place
	text  string
}

// impossible describes a request after which no state is left.
func (e *explainer) impossible(i int) wrong {
	r := e.f.requests[i]
	return wrong{at: i, where: []Place{r.Place}, text: "the records before and after " + r.Place.String() + " (" +
		string(r.Action) + ") contradict each other"}
}

// unfit describes an end that no state fits.
func (e *explainer) unfit(states []state, decided int) wrong {
	w := wrong{at: decided}
	for _, s := range states {
		if s.source() < 0 {
			continue
		}
		r := e.f.requests[s.source()]
		w.where = append(w.where, r.Place)
		switch t := e.f.pending; {
		case t == nil:
			w.at, w.lost, w.text = s.source(), true, "scheduled by "+r.Place.String()+
				": it has not fired, is not pending, and no request cancelled or replaced it"
		case t.Source == r.Place && e.known[s.source()].end != "":
			w.text = "scheduled by " + r.Place.String() + ": it is " + string(e.known[s.source()].end) +
				" and still pending"
		case t.Source == r.Place:
			w.text = "scheduled by " + r.Place.String() +
				": it is pending, but not paused or triggered as its requests say"
		default:
			w.text = "by its requests, the pending timer comes from " + r.Place.String() + ", and not from " +
				t.Source.String()
		}
		return w
	}
	if e.f.pending != nil {
		w.where = append(w.where, e.f.pending.Source)
		w.text = "a timer of " + e.f.pending.Source.String() + "is pending, but by the requests none should be"
	}
	return w
}

// settle sets the fates that all paths from the beginning to one of the last states agree on.
func (e *explainer) settle(got *fates, paths [][]edge, last []state, decided int) {
	seen := make([]pathFates, len(got.byRequest))
	see := func(s requestFate) {
		if s.fate == "" || s.fate == Done && e.f.requests[s.at].makes() {
			return
		}
		seen[s.at].add(s.fate)
	}
	alive := make(map[state]bool)
	for _, s := range last {
		alive[s] = true
		if s.source() >= 0 {
			see(requestFate{s.source(), StillPending})
		}
	}
	for _, edges := range slices.Backward(paths) {
		before := make(map[state]bool)
		for _, g := range edges {
			if alive[g.to] {
				before[g.from] = true
				see(g.timer)
				see(g.request)
			}
		}
		alive = before
	}
	for i := range got.byRequest {
		switch {
		case i >= decided:
			got.byRequest[i] = Undecided
		default:
			got.byRequest[i] = seen[i].fate()
		}
	}
	if i := e.since.at; e.since.fate != "" && e.f.requests[i].Recurs == nil && got.byRequest[i] == StillPending {
		got.byRequest[i] = e.since.fate
	}
	for _, w := range got.wrong {
		if w.lost && w.at < len(got.byRequest) {
			got.byRequest[w.at] = Lost
		}
	}
}

// pathFates are the fates that the paths give a request.
type pathFates struct {
	one              Fate // the first
	several, unknown bool
}

func (p *pathFates) add(f Fate) {
	p.several = p.several || p.one != "" && p.one != f
	p.unknown = p.unknown || f == Unknown
	p.one = cmp.Or(p.one, f)
}

// fate returns the fate that the paths agree on.
func (p *pathFates) fate() Fate {
	switch {
	case p.unknown:
		return Unknown
	case p.several:
		return Unclear
	}
	return cmp.Or(p.one, Unclear)
}

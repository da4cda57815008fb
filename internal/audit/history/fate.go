package history

import (
	"cmp"
	"slices"
)

// Fate is what became of a request.
type Fate string

// The fates. A request that schedules has one of the first nine, unless it is not known.
const (
	Fired         Fate = "fired"
	Cancelled     Fate = "cancelled"
	Replaced      Fate = "replaced"
	Expired       Fate = "expired"
	Undeliverable Fate = "undeliverable"
	Completed     Fate = "completed" // a recurrence ended
	StillPending  Fate = "pending"
	Unmet         Fate = "condition-not-met"
	Rejected      Fate = "rejected"
	Done          Fate = "done"          // it cancelled or steered a timer
	NothingToDo   Fate = "nothing-to-do" // it found none
	Undecided     Fate = "undecided"     // the position has not passed it
	// Unclear: several fates agree with what was seen, and all of them keep the promises.
	Unclear Fate = "unclear"
	// Unknown: what would show its fate was not seen.
	Unknown Fate = "unknown"
	// Lost: nothing that was seen could have become of it.
	Lost Fate = "lost"
)

// fates has the fate of each request of a life, by index, and what does not fit.
type fates struct {
	of    []Fate
	wrong []wrong
}

// wrong is a place at which no explanation is left: after a request, or at the end.
type wrong struct {
	at    int
	lost  bool // nothing became of the request
	where []Place
	text  string
}

// impossible describes a request after which no state is left.
func (e *explainer) impossible(i int) wrong {
	r := e.f.requests[i]
	return wrong{at: i, where: []Place{r.Place}, text: "what was seen before and after " + r.Place.String() + " (" +
		string(r.Action) + ") cannot both have happened"}
}

// unfit describes an end that no state fits.
func (e *explainer) unfit(states []state, decided int) wrong {
	w := wrong{at: decided}
	for _, s := range states {
		if s.timer < 0 {
			continue
		}
		r := e.f.requests[s.timer]
		w.where = append(w.where, r.Place)
		switch t := e.f.pending; {
		case t == nil:
			w.at, w.lost, w.text = s.timer, true, "scheduled by "+r.Place.String()+
				": it has neither fired nor is it pending, and no request took it away"
		case t.Source == r.Place && e.known[s.timer].end != "":
			w.text = "scheduled by " + r.Place.String() + ": it is " + string(e.known[s.timer].end) +
				" and still pending"
		case t.Source == r.Place:
			w.text = "scheduled by " + r.Place.String() +
				": it is pending, but paused or triggered otherwise than requests have left it"
		default:
			w.text = "by its requests, what is pending comes from " + r.Place.String() + ", and not from " +
				t.Source.String()
		}
		return w
	}
	if e.f.pending != nil {
		w.where = append(w.where, e.f.pending.Source)
		w.text = "a timer of " + e.f.pending.Source.String() + " is pending, and by the requests none is"
	}
	return w
}

// tell sets the fates that all paths from the beginning to one of the last states agree on.
func (e *explainer) tell(got *fates, paths [][]edge, last []state, decided int) {
	heard := make([]hearsay, len(got.of))
	hear := func(s said) {
		if s.fate == "" || s.fate == Done && e.f.requests[s.at].Action == Schedules {
			return
		}
		heard[s.at].hear(s.fate)
	}
	alive := make(map[state]bool)
	for _, s := range last {
		alive[s] = true
		if s.timer >= 0 {
			hear(said{s.timer, StillPending})
		}
	}
	for _, edges := range slices.Backward(paths) {
		before := make(map[state]bool)
		for _, g := range edges {
			if alive[g.to] {
				before[g.from] = true
				hear(g.timer)
				hear(g.request)
			}
		}
		alive = before
	}
	for i := range got.of {
		switch {
		case i >= decided:
			got.of[i] = Undecided
		default:
			got.of[i] = heard[i].fate()
		}
	}
	if i := e.since.at; e.since.fate != "" && e.f.requests[i].Recurs == nil && got.of[i] == StillPending {
		got.of[i] = e.since.fate
	}
	for _, w := range got.wrong {
		if w.lost && w.at < len(got.of) {
			got.of[w.at] = Lost
		}
	}
}

// hearsay has the fates that the paths give a request.
type hearsay struct {
	one              Fate // the first
	several, unknown bool
}

func (h *hearsay) hear(f Fate) {
	h.several = h.several || h.one != "" && h.one != f
	h.unknown = h.unknown || f == Unknown
	h.one = cmp.Or(h.one, f)
}

// fate returns the fate that they agree on.
func (h *hearsay) fate() Fate {
	switch {
	case h.unknown:
		return Unknown
	case h.several:
		return Unclear
	}
	return cmp.Or(h.one, Unclear)
}

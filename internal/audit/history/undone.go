package history

import "slices"

// undone: if a changelog has lost steps, its owner reads their requests again. So the last request of an ID, if it
// schedules unconditionally, has made a timer: it has fired, is a dead letter, or is pending.
func undone(x *index, f *facts) {
	if x.Scope.Cut[f.Topic][f.id] || len(f.requests) == 0 {
		return
	}
	r := f.requests[len(f.requests)-1]
	settled, known := x.settled(f.Log, r.Offset)
	if !settled || !known || r.Action != Schedules || r.If != "" || r.Recurs != nil || r.MaxLate > 0 ||
		mayLack(x, r, r.Due) ||
		slices.ContainsFunc(f.emissions, func(m *Emission) bool { return m.Source == r.Place }) ||
		slices.ContainsFunc(f.letters, func(l *Letter) bool { return l.Source == r.Place }) {
		return
	}
	if n := len(f.changes); n == 0 || f.changes[n-1].Timer == nil || f.changes[n-1].Timer.Source != r.Place {
		x.broken("loss", r.ID, []Place{r.Place},
			"scheduled by %s: the changelog lost a step of it, and it was not decided again", r.Place)
	}
}

package history

import (
	"time"

	"github.com/waterclock/waterclock"
)

// early: an emission is written at or after its due time, by the owner's clock, which its timestamp shows. A
// timestamp is true if some instance's clock had reached it when the emission was seen. Nor is it late: an occurrence
// that is later than timer-max-late is not emitted.
func early(x *index, f *facts) {
	for _, m := range f.emissions {
		switch {
		case m.Timestamp < m.Due && !m.Stamped:
			x.broken("early", f.id, []Place{m.Place}, "%s was due at %d and written at %d, %d ms early", m.Source,
				m.Due, m.Timestamp, m.Due-m.Timestamp)
		case !m.Seen.IsZero() && furthest(x, m.Seen) < m.Due:
			x.broken("early", f.id, []Place{m.Place},
				"%s was due at %d and seen when no clock had come further than %d", m.Source, m.Due,
				furthest(x, m.Seen))
		}
		if r := x.sent[m.Source]; r != nil && r.MaxLate > 0 && m.Timestamp-m.Due >= r.MaxLate && !m.Stamped {
			x.broken("late", f.id, []Place{r.Place, m.Place},
				"%s was due at %d and written at %d, and must have expired", m.Source, m.Due, m.Timestamp)
		}
	}
	for _, e := range f.events {
		if e.Type == waterclock.EventFired && e.At.Before(e.Due) {
			x.broken("early", f.id, []Place{e.Place}, "%s was due at %s and has fired at %s", e.Source, e.Due, e.At)
		}
	}
}

// furthest is what the most advanced clock of all instances can have shown at a moment, in Unix ms. It follows from the
// readings before and after that moment.
func furthest(x *index, at time.Time) int64 {
	if len(x.Readings) == 0 {
		return at.UnixMilli()
	}
	most := int64(0)
	before, after := map[string]*Reading{}, map[string]*Reading{}
	for i := range x.Readings {
		r := &x.Readings[i]
		if r.At.After(at) {
			if n := after[r.Of]; n == nil || r.At.Before(n.At) {
				after[r.Of] = r
			}
			continue
		}
		most = max(most, r.Shows) // a clock that was ahead and was set back may have decided before that
		if n := before[r.Of]; n == nil || !r.At.Before(n.At) {
			before[r.Of] = r
		}
	}
	for _, r := range before {
		most = max(most, r.Shows+at.Sub(r.At).Milliseconds())
	}
	for _, r := range after {
		most = max(most, r.Shows)
	}
	return most
}

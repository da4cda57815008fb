package history

import (
	"time"

	"github.com/waterclock/waterclock"
)

// early: an emission is written at or after its due time, by the owner's clock, which its timestamp shows. A timestamp
// is true if some instance's clock had reached it when the emission was seen. Nor is an emission later than
// timer-max-late.
func early(x *index, f *facts) {
	for _, m := range f.emissions {
		switch {
		case m.Timestamp < m.Due && !m.Stamped:
			x.broken("early", f.id, []Place{m.Place}, "%s was due at %d and written at %d, %d ms early", m.Source,
				m.Due, m.Timestamp, m.Due-m.Timestamp)
		case !m.Seen.IsZero() && furthest(x, m.Seen) < m.Due:
			x.broken("early", f.id, []Place{m.Place},
				"%s was due at %d and seen when every clock was at most at %d", m.Source, m.Due,
				furthest(x, m.Seen))
		}
		r := x.sent[f.origin(x, m.Source)]
		if r != nil && r.MaxLate > 0 && m.Timestamp-m.Due >= r.MaxLate && !m.Stamped {
			x.broken("late", f.id, []Place{r.Place, m.Place},
				"%s was due at %d and written at %d: it should have expired", m.Source, m.Due, m.Timestamp)
		}
	}
	for _, e := range f.events {
		if e.Type == waterclock.EventFired && e.At.Before(e.Due) {
			x.broken("early", f.id, []Place{e.Place}, "%s was due at %s and fired at %s", e.Source, e.Due, e.At)
		}
	}
}

// furthest returns the latest time that any instance's clock can have shown at a moment, in Unix ms. It follows from
// the readings before and after that moment.
func furthest(x *index, at time.Time) int64 {
	if len(x.Readings) == 0 {
		return at.UnixMilli()
	}
	most := int64(0)
	before, after := map[string]*Reading{}, map[string]*Reading{}
	for i := range x.Readings {
		r := &x.Readings[i]
		if r.At.After(at) {
			if n := after[r.Instance]; n == nil || r.At.Before(n.At) {
				after[r.Instance] = r
			}
			continue
		}
		most = max(most, r.Shows) // a clock that was ahead and was set back may have decided before that
		if n := before[r.Instance]; n == nil || !r.At.Before(n.At) {
			before[r.Instance] = r
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

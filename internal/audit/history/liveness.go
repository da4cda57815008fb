package history

import "time"

// liveness: while there is no fault, each request is settled and each due timer fires within Settle. So every state
// ends.
func liveness(x *index, f *facts) {
	settle := x.Scope.Settle
	if settle == 0 {
		return
	}
	deadline := x.ended.Add(-settle)
	for i, r := range f.requests {
		if f.fates.byRequest[i] == Undecided && !r.Acked.IsZero() && r.Acked.Before(deadline) &&
			x.quiet(deadline, x.ended) {
			x.broken("liveness", f.id, []Place{r.Place}, "%s was in the log at %s and is not settled at %s", r.Place,
				r.Acked, x.ended)
		}
	}
	if t := f.pending.pending(); t != nil && !t.Paused && t.Due < slowest(x, deadline) && x.quiet(deadline, x.ended) {
		x.broken("liveness", f.id, []Place{t.Source}, "%s was due at %d and is still pending at %s", t.Source,
			t.Due, x.ended)
	}
	if len(x.Readings) > 0 {
		return // the due time is by its owner's clock
	}
	for _, m := range f.emissions {
		r := x.sent[m.Source]
		if r == nil || r.Acked.IsZero() || m.Seen.IsZero() || steered(f, r) || x.pacing(m.Topic) {
			continue
		}
		from := time.UnixMilli(m.Due)
		if r.Acked.After(from) {
			from = r.Acked
		}
		if m.Seen.Sub(from) > settle && x.quiet(from, m.Seen) {
			x.broken("liveness", f.id, []Place{m.Place}, "%s came %s late without a fault", m.Source,
				m.Seen.Sub(from))
		}
	}
}

// slowest returns the time that every clock has reached at a moment, in Unix ms, by its last reading before that.
func slowest(x *index, at time.Time) int64 {
	last := make(map[string]*Reading)
	for i := range x.Readings {
		if r := &x.Readings[i]; !r.At.After(at) && (last[r.Instance] == nil || !r.At.Before(last[r.Instance].At)) {
			last[r.Instance] = r
		}
	}
	least := at.UnixMilli()
	for _, r := range last {
		least = min(least, r.Shows+at.Sub(r.At).Milliseconds())
	}
	return least
}

// steered reports whether a timer was paused: then it may be late.
func steered(f *facts, r *Request) bool {
	for _, p := range f.requests {
		if p.Action == Pauses && p.Offset > r.Offset {
			return true
		}
	}
	return false
}

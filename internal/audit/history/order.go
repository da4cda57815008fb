package history

import (
	"slices"
	"time"
)

// order: a cancel or a replacement wins or loses, never both, in the order of the log. It wins if it was in the log
// when the partition was acquired, or long before the timer was due. A paused timer does not fire.
func order(x *index, f *facts) {
	for _, w := range f.fates.wrong {
		if !w.lost {
			x.broken("order", f.id, w.where, "%s", w.text)
		}
	}
	if !slices.ContainsFunc(f.requests, func(r *Request) bool { return !r.Acked.IsZero() }) {
		return // it is not known when they were written
	}
	fired := make(map[Place]*Emission, len(f.emissions))
	for _, m := range slices.Backward(f.emissions) {
		fired[m.Source] = m
	}
	for i, r := range f.requests {
		if !r.makes() || slices.ContainsFunc(f.originsOf(r).of, func(o *Request) bool { return o.Recurs != nil }) {
			continue
		}
		if m := fired[r.Place]; m != nil {
			tooLateFor(x, f, f.requests[i+1:], r, m)
		}
	}
}

// tooLateFor finds requests that should have kept the timer of r from firing.
func tooLateFor(x *index, f *facts, later []*Request, r *Request, m *Emission) {
	for _, c := range later {
		stops := c.Action == Cancels || c.makes() ||
			c.Action == Pauses && !slices.ContainsFunc(later,
				func(r *Request) bool { return r.Action == Triggers || r.Action == Resumes })
		if !stops || c.If != "" || c.Acked.IsZero() ||
			slices.ContainsFunc(f.letters, func(l *Letter) bool { return l.Source == c.Place && !l.Emission }) {
			continue
		}
		switch {
		case longBefore(x, c.Acked, r, m):
			x.broken("order", f.id, []Place{c.Place, m.Place},
				"%s (%s) was in the log long before the timer of %s was due, which still fired", c.Place,
				c.Action, r.Place)
		case acquiredBetween(x, f, c.Acked, r):
			x.broken("order", f.id, []Place{c.Place, m.Place}, "%s (%s) was in the log when the partition was "+
				"acquired, but the timer of %s still fired after that", c.Place, c.Action, r.Place)
		}
	}
}

// longBefore reports whether a request that was in the log at a moment must have been read before the
// timer of r was due, or triggered.
func longBefore(x *index, acked time.Time, r *Request, m *Emission) bool {
	due := time.UnixMilli(m.Due)
	return x.Scope.Settle > 0 && len(x.Readings) == 0 && m.Due == r.Due && acked.Add(x.Scope.Settle).Before(due) &&
		x.Quiet(acked, due)
}

// acquiredBetween reports whether, by the changelog, the partition was acquired between a moment and the
// firing of the timer of r.
func acquiredBetween(x *index, f *facts, acked time.Time, r *Request) bool {
	if x.Scope.BrokersOff || x.Scope.Compacted {
		return false
	}
	end := int64(-1) // of the changes: where the timer was gone
	was := false
	for _, c := range f.changes {
		pending := c.Timer != nil && c.Timer.Source == r.Place && !c.Timer.Remembered
		if was && !pending {
			end = c.Offset
			break
		}
		was = pending
	}
	for _, c := range x.log(f.Log) {
		// A claim is written after the acquisition began, and requests up to the log's end after
		// it come first.
		if c.Kind == Claim && c.Step != "" && c.Offset < end && time.UnixMilli(c.Timestamp).After(acked) {
			return true
		}
	}
	return false
}

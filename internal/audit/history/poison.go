package history

import "github.com/waterclock/waterclock"

// poison: a request that must be rejected becomes one dead letter, and no other request does. A rejected request makes
// no timer.
func poison(x *index, f *facts) {
	rejected, occurred := make(map[Place]Place), f.occurred()
	for _, l := range f.letters {
		if l.Emission {
			continue
		}
		if first, again := rejected[l.Source]; again {
			x.broken("poison", f.id, []Place{first, l.Place}, "%s was rejected twice", l.Source)
		}
		rejected[l.Source] = l.Place
		r := x.sent[l.Source]
		switch {
		case r == nil && x.requested(l.Source) && !ofBatch(l.Reason):
			x.broken("poison", f.id, []Place{l.Place}, "there is no request at %s", l.Source)
		case r != nil && r.Action != Poison && !r.MayBeRejected:
			x.broken("poison", f.id, []Place{r.Place, l.Place}, "%s was rejected as %s, but is valid",
				l.Source, l.Reason)
		}
		if at, ok := occurred[l.Source]; ok {
			x.broken("poison", f.id, []Place{l.Place, at}, "%s was rejected as %s, but its timer has fired",
				l.Source, l.Reason)
		}
	}
	for i, r := range f.requests {
		if _, ok := rejected[r.Place]; ok || r.Action != Poison || f.fates.byRequest[i] == Undecided ||
			!x.seen(f.Topic+lettersSuffix, r.Timestamp) {
			continue
		}
		// A request that was wrongly accepted has an emission.
		if _, ok := occurred[r.Place]; ok {
			continue // the rule altered reports it
		}
		x.broken("poison", f.id, []Place{r.Place}, "%s must be rejected, but is not a dead letter", r.Place)
	}
}

// ofBatch reports whether a dead letter stands for a batch of requests, none of which was read.
func ofBatch(r waterclock.Reason) bool {
	return r == waterclock.ReasonBatchTooLarge || r == waterclock.ReasonBatchUnreadable
}

// occurred returns an emission, or the dead letter of one, of each request that has any.
func (f *facts) occurred() map[Place]Place {
	at := make(map[Place]Place, len(f.emissions))
	for _, l := range f.letters {
		if l.Emission {
			at[l.Source] = l.Place
		}
	}
	for _, m := range f.emissions {
		at[m.Source] = m.Place
	}
	return at
}

package history

import "github.com/waterclock/waterclock"

// altered: an emission is byte for byte as requested, and there is such a request.
func altered(x *index, f *facts) {
	for _, m := range f.emissions {
		if !x.requested(m.Source) {
			continue
		}
		r := x.sent[m.Source]
		if r == nil || !r.makes() || r.ID != m.ID {
			x.broken("altered", f.id, []Place{m.Place}, "no request at %s schedules this timer", m.Source)
			continue
		}
		from := f.originsOf(r)
		what := "origin"
		for _, o := range from.of {
			if what = m.differs(o, r, f); what == "" {
				break
			}
		}
		if what != "" && from.known && (what != dueTime || !goesOn(x, f, m.Source)) {
			x.broken("altered", f.id, []Place{r.Place, m.Place}, "the emission of %s has another %s", m.Source, what)
		}
	}
}

const dueTime = "due time" // a triggered timer has another one too

// differs returns the part of an emission that is not as requested, "" if there is none. r has scheduled the timer, and
// source is the request that the timer comes from.
func (e *Emission) differs(r, source *Request, f *facts) string {
	got, want := e.Carries, r.Emits
	if want.Partition < 0 {
		got.Partition = want.Partition
	}
	switch {
	case got.Topic != want.Topic:
		return "topic"
	case got.Partition != want.Partition:
		return "partition"
	case got.Key != want.Key, got.NullKey != want.NullKey:
		return "key"
	case got.Value != want.Value, got.NullValue != want.NullValue:
		return "value"
	case got.Headers != want.Headers:
		return "header"
	case !e.mayBeDue(r, source, f):
		return dueTime
	case r.Recurs == nil && e.Occurrence != 1, r.Recurs != nil && r.Recurs.Count > 0 && e.Occurrence > r.Recurs.Count:
		return "occurrence"
	}
	return ""
}

// mayTakeOver reports whether the timer of r may have taken over the schedule of the one before it, and its pause and
// trigger with that.
func (r *Request) mayTakeOver() bool { return r.If == waterclock.IfChanged }

// continues reports whether the timer of r may have taken over the pending occurrence of the one before it, so that its
// number and due time do not say anything about r.
func (r *Request) continues() bool { return r.mayTakeOver() && r.Recurs != nil }

// delays reports whether a timer that does not recur may be due at an instant, by its due time and jitter.
func (r *Request) delays(due int64) bool { return due >= r.Due && due <= r.Due+max(0, r.Jitter-1) }

// mayBeDue reports whether the occurrence is due when the emission says: see differs.
func (e *Emission) mayBeDue(r, source *Request, f *facts) bool {
	moved := source.Action == Moves
	if r.continues() || r.NotOn || moved && e.Due == source.Due {
		return true
	}
	if r.Recurs == nil || e.Occurrence == 0 {
		if r.Recurs == nil && !moved && r.delays(e.Due) {
			return true
		}
		n, latest := f.triggersOf(source) // when the trigger was asked for, or read
		return n > 0 && e.Due <= latest
	}
	at := r.Due
	if r.Recurs.Every == 0 { // the first may have any number, if others were due before the request
		return e.Due >= at && (e.Occurrence > 1 || e.Due <= at+r.Recurs.Jitter)
	}
	at += (e.Occurrence - 1) * r.Recurs.Every
	if r.Recurs.Until > 0 && at > r.Recurs.Until {
		return false
	}
	return e.Due == at || e.Due > at && e.Due < at+r.Recurs.Jitter
}

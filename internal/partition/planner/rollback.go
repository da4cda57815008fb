package planner

import "github.com/waterclock/waterclock/internal/timer"

// A planned firing may have to be undone, because its target was found unhealthy, or because the clock was set back. No
// step was committed with it, so it can be as if it had never been: its entry becomes one that changes nothing, and the
// entries that were planned on it are planned again on the timer that is pending instead.
//
// Later firings among these entries belong to timers that are not pending now, so they are rolled back too. A request
// that depends on the pending timer is decided again, because later entries may build on its result. Planning again
// stops at the first request whose result is unchanged; an unconditional request always stops it. So a cancel that had
// lost to the firing now wins.
//
// A timer that is pending again gets bytes of its own. Otherwise it alone would keep its chunk in memory, up to 16 KiB
// that no limit counts, until it is parked or a cancel of it is committed.
//
// Nothing that is planned again has been committed: it stands behind the firing in the sequence, and a step takes a
// prefix. Nor does a request emit: a timer that it triggers becomes due, and has an entry of its own. So planning again
// never produces an emission.

// RollBack rolls back firings of the segment in flight, or of one that was just returned. Their timers wait until the
// entries are committed.
func (p *Planner) RollBack(entries ...*Entry) {
	for _, e := range entries {
		if e.Emit != nil {
			p.rollBack(e)
		}
	}
	p.known.evict() // timers that are pending again may take much memory
}

func (p *Planner) rollBack(e *Entry) {
	it, before, found, value, missed := e.item, e.Before, e.found, e.Emit.AppendTo(nil), e.missed
	t := p.known.owned(it, e.Emit, value) // occurrences that were skipped before it stay skipped
	pending := t
	more := int64(0)
	for ; e != nil; e = e.next {
		was := e.After
		more -= e.adds() + p.tally.stays(e)
		e.found = found
		switch {
		case e.firing:
			e.ID, e.Emit, e.Late, e.Before, e.After, e.Value = t.ID, nil, nil, before, pending, value
			e.Outcome, e.Tag, e.Refusal = timer.None, nil, nil
		case e.request != nil:
			p.recurrences.decide(e, e.request, before, pending)
			switch {
			case e.Outcome == timer.Resumed:
				missed = e.request.At
			case e.After == e.request.Schedule, e.Outcome == timer.Moved: // another time, so nothing was missed
				missed = 0
			}
		default:
			e.Before = before
			e.Outcome, e.Labels = overtakes(before, pending, e.After)
		}
		more += e.adds()
		if !e.firing && e.After == was {
			break
		}
		if before, found, pending, value = e.After.Ref(), 0, e.After, e.Value; pending != nil {
			found = pending.Occurrence
		}
	}
	p.tally.count.n.Add(more)
	if e != nil {
		return
	}
	if pending == t {
		p.known.become(it, t)
		it.waiting = true
	} else {
		p.known.set(it, pending)
	}
	if pending != nil { // become, or set, has already cleared that the item was missed
		p.known.miss(it, missed)
	}
}

// overtakes returns the outcome of an unconditional request after the firing before it was rolled back: a cancel that
// had found nothing now cancels.
func overtakes(before timer.Ref, pending, after *timer.Timer) (timer.Outcome, timer.Labels) {
	r := timer.Request{Schedule: after}
	e := r.Apply(before, pending)
	return e.Outcome, e.Labels
}

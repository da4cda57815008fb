package planner

import "github.com/waterclock/waterclock/internal/timer"

// A firing that is planned may turn out not to be one: its target was found
// unhealthy, or the clock was set back. No step was committed with it, so it can be
// as if it had never been: the entry becomes one that changes nothing, and what was
// planned on it is planned again on what is pending instead.
//
// Later firings among these entries were of timers that are not pending now, so they
// are rolled back too. A request that depends on what it finds is decided again,
// because later entries may build on what it left. Planning again stops at the first
// request whose result is unchanged; an unconditional request always stops it. So a
// cancel that had lost to the firing now wins.
//
// Nothing that is planned again has been committed: it stands behind the firing in the
// sequence, and a step takes a prefix. Nor does a request emit: what one triggers is
// due, and has an entry of its own. So planning again never produces an emission.

// RollBack rolls back firings of the segment that is out, or of one that was just
// returned. Their timers wait until the entries are applied.
func (p *Planner) RollBack(entries ...*Entry) {
	for _, e := range entries {
		if e.Emit != nil {
			p.rollBack(e)
		}
	}
	p.known.evict() // what is pending after all may be much
}

func (p *Planner) rollBack(e *Entry) {
	t := e.Emit // occurrences that were skipped before it stay skipped
	it, before, is, value, missed := e.item, e.Before, t, t.AppendTo(nil), e.missed
	more := int64(0)
	for ; e != nil; e = e.next {
		was := e.After
		more -= e.adds() + p.tally.stays(e)
		switch {
		case e.firing:
			e.Emit, e.Late, e.Before, e.After, e.Value = nil, nil, before, is, value
			e.Outcome, e.Tag, e.Refusal = timer.None, nil, nil
		case e.request != nil:
			if p.decideOn(e, e.request, before, is); e.Outcome == timer.Resumed {
				missed = e.request.At
			}
		default:
			e.Before, e.Outcome = before, overtakes(before, e.After)
		}
		more += e.adds()
		if !e.firing && e.After == was {
			break
		}
		before, is, value = e.After.Ref(), e.After, e.Value
	}
	p.tally.count.n.Add(more)
	if e != nil {
		return
	}
	if is == t {
		p.known.become(it, t)
		it.waiting = true
	} else {
		p.known.set(it, is)
	}
	if is != nil && is.Offset == t.Offset { // what was let go on it is forgotten, and had ended that
		p.known.miss(it, missed)
	}
}

// overtakes is what an unconditional request comes to once the firing before it is rolled back: a cancel that had
// found nothing now cancels.
func overtakes(before timer.Ref, after *timer.Timer) timer.Outcome {
	r := timer.Request{Schedule: after}
	return r.Apply(before, nil).Outcome
}

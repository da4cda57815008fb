package planner

import "github.com/waterclock/waterclock/internal/timer"

// A firing that is planned may turn out not to be one: its target was found
// unhealthy, or the clock was set back. No step was committed with it, so it can be
// as if it had never been: the entry becomes one that changes nothing, and what was
// planned on it is planned again on what is pending instead.
//
// Firings among that are of a timer that is not pending now, so they are rolled back
// too. A request that depends on what it finds is decided again, as what it left may
// have been planned on. The first request that leaves the same as before ends it; one
// that depends on nothing always does.
//
// Nothing of what is planned again is committed: it stands behind the firing in the
// sequence, and a step takes a prefix. Nor does a request emit: what one triggers is
// due, and has an entry of its own. So no emission comes of it.

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
	t := e.Emit // occurrences before it that were let go stay so
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

// overtakes is the outcome of a request that depends on nothing.
func overtakes(before timer.Ref, after *timer.Timer) timer.Outcome {
	r := timer.Request{Schedule: after}
	return r.Apply(before, nil).Outcome
}

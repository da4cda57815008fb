package timer

// Steering is the effect of pause and trigger requests on a pending timer. It is immutable. A timer that is neither
// paused nor triggered has none.
type Steering struct {
	// Paused: the timer does not fire by its schedule. Triggered: it fires immediately, and afterwards continues
	// according to its schedule and Paused. A trigger overrides a pause, whichever came first.
	Paused, Triggered bool
	// By is the offset of the last request that steered the timer, or an offset made by MovedBy. It makes the Ref of
	// each version of a timer unique, as a Ref must be: a timer that is paused, resumed, fired and paused again in one
	// step has a new Ref.
	By int64
	// At is when the trigger was requested, in Unix milliseconds; 0 unless Triggered.
	At int64
}

// Due times in the Refs of steered timers, in milliseconds. Triggered timers sort before every instant. Paused timers
// sort after every instant, in the order of By.
const (
	triggeredFrom = -1 << 62
	pausedFrom    = 1 << 62
)

// Scheduled timers sort between these two Refs: Refs of triggered timers are below the first, and Refs of paused
// timers are above the second.
var (
	AboveTriggered = Ref{Due: triggeredFrom / 2}
	BelowPaused    = Ref{Due: pausedFrom / 2}
)

// refDue returns the due time in the Ref of a steered timer.
func (s *Steering) refDue() int64 {
	if s.Triggered {
		return triggeredFrom + s.By
	}
	return pausedFrom + s.By
}

// IsPaused reports whether t is paused, so that it does not fire by its schedule.
func (t *Timer) IsPaused() bool { return t.Steering != nil && t.Steering.Paused }

// IsTriggered reports whether t is to fire immediately, whatever its schedule.
func (t *Timer) IsTriggered() bool { return t.Steering != nil && t.Steering.Triggered }

// FiresAt returns when the next firing is due, in Unix milliseconds. For a triggered timer it is when the trigger was
// requested. Otherwise it is when the occurrence is due, even if the timer is paused.
func (t *Timer) FiresAt() int64 {
	if t.IsTriggered() {
		return t.Steering.At
	}
	return t.Due
}

// FiresAs returns the number of the next firing. That is the number of its occurrence, or 0 for a recurring timer that
// was triggered, because that firing is not part of its schedule.
func (t *Timer) FiresAs() int64 {
	if t.Recurs() && t.IsTriggered() {
		return 0
	}
	return t.Occurrence
}

// Untriggered returns the timer that is pending after a triggered one has fired. A recurring timer continues by its
// schedule, and stays paused if it was. For a timer that does not recur it returns nil.
func (t *Timer) Untriggered() *Timer {
	if !t.Recurs() {
		return nil
	}
	s := *t.Steering
	s.Triggered, s.At = false, 0
	return t.steered(s)
}

// MovedTo returns t as it is pending in the partition that it was moved to by the changelog record at the given offset.
func (t *Timer) MovedTo(at int64) *Timer {
	s := t.steering()
	s.By = MovedBy(at)
	moved := t.steered(s)
	if moved.Offset = MovedBy(at); t.IsRemembered() {
		moved.Offset = rememberedAs(moved.Offset)
	}
	return moved
}

func (t *Timer) steering() Steering {
	if t.Steering == nil {
		return Steering{}
	}
	return *t.Steering
}

func (t *Timer) steered(s Steering) *Timer {
	other := *t
	if other.Steering = nil; s.Paused || s.Triggered {
		other.Steering = &s
	}
	return &other
}

// isOver reports whether the recurrence of t was over before its request was written: it ends without a firing.
func (t *Timer) isOver() bool {
	return t.Recurs() && t.Recurrence.Count > 0 && t.Occurrence > t.Recurrence.Count
}

// at returns t as it is pending after the request at an offset has moved its next occurrence to an instant, in Unix
// milliseconds. It is due exactly then: jitter and calendars no longer count, so a timer that fires once needs no
// Recurrence. A pause stays, and so does a trigger, which fires first.
func (t *Timer) at(due, by int64) *Timer {
	moved := *t
	moved.Offset, moved.Due, moved.Recurrence = by, due, nil
	if t.Recurs() {
		c := *t.Recurrence
		c.Original, c.Delay = Instant{At: t.Original(), Set: true}, 0
		moved.Recurrence = &c
	}
	return &moved
}

// steer returns the timer that is pending after r has steered t. It returns t itself if r changes nothing.
func (r *Request) steer(t *Timer) (*Timer, Outcome) {
	if t == nil || t.IsRemembered() {
		return t, NotFound
	}
	var outcome Outcome
	s := t.steering()
	switch {
	case r.Steer == Trigger && !s.Triggered:
		s.Triggered, s.At, outcome = true, r.At, Triggered
	case r.Steer == Pause && !s.Paused:
		s.Paused, outcome = true, Paused
	case r.Steer == Resume && s.Paused:
		s.Paused, outcome = false, Resumed
	case r.Steer == Move && !t.isOver():
		return t.at(r.At, r.Offset), Moved
	default:
		return t, NotFound
	}
	s.By = r.Offset
	return t.steered(s), outcome
}

package timer

// Steering is what requests that steer have made of a pending timer. It is immutable.
// A timer that is neither paused nor triggered has none.
type Steering struct {
	// Paused: it does not fire by its schedule. Triggered: it fires at once, and goes on
	// as its schedule and Paused have it; a trigger overrules a pause, whichever came
	// first.
	Paused, Triggered bool
	// By is the offset of the last request that steered it, or one of Moved. It makes the
	// Ref of each version of a timer another one, as a Ref must be: one that is paused,
	// resumed, fires and is paused again in one step has changed.
	By int64
	// At is when the trigger asked for it, in Unix milliseconds; 0 unless Triggered.
	At int64
}

// Where steered timers lie in the order of firing, in milliseconds: what is triggered
// lies below every instant, what is paused above, in the order of By.
const (
	triggeredFrom = -1 << 62
	pausedFrom    = 1 << 62
)

// What is scheduled lies between these: Refs of triggered timers are below the one, of
// paused timers above the other.
var (
	AboveTriggered = Ref{Due: triggeredFrom / 2}
	BelowPaused    = Ref{Due: pausedFrom / 2}
)

// refDue is the due time in the Ref of a steered timer.
func (s *Steering) refDue() int64 {
	if s.Triggered {
		return triggeredFrom + s.By
	}
	return pausedFrom + s.By
}

// IsPaused reports whether t does not fire by its schedule.
func (t *Timer) IsPaused() bool { return t.Steering != nil && t.Steering.Paused }

// IsTriggered reports whether t is to fire at once, whatever its schedule says.
func (t *Timer) IsTriggered() bool { return t.Steering != nil && t.Steering.Triggered }

// FiresAt is when the firing that comes next is due, in Unix milliseconds: of a timer
// that is triggered, when that was asked for; else when its occurrence is due, should
// it be paused too.
func (t *Timer) FiresAt() int64 {
	if t.IsTriggered() {
		return t.Steering.At
	}
	return t.Due
}

// FiresAs is the number of the firing that comes next: of its occurrence or, of a
// recurring timer that is triggered, 0, for that is none of its schedule's.
func (t *Timer) FiresAs() int64 {
	if t.Recurrence != nil && t.IsTriggered() {
		return 0
	}
	return t.Occurrence
}

// Untriggered is what is pending once what was triggered has fired: a recurring timer
// as its schedule has it, paused if it was; nil for one that does not recur.
func (t *Timer) Untriggered() *Timer {
	if t.Recurrence == nil {
		return nil
	}
	s := *t.Steering
	s.Triggered, s.At = false, 0
	return t.steered(s)
}

// MovedTo is t as it is pending in the partition that it was moved to, by the changelog
// record at an offset.
func (t *Timer) MovedTo(at int64) *Timer {
	s := t.steering()
	s.By = Moved(at)
	moved := t.steered(s)
	if moved.Offset = Moved(at); t.IsRemembered() {
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

// steer is what is pending once r has steered what is; that itself if r changes nothing.
func (r *Request) steer(is *Timer) (*Timer, Outcome) {
	if is == nil || is.IsRemembered() {
		return is, NotFound
	}
	var outcome Outcome
	s := is.steering()
	switch {
	case r.Steer == Trigger && !s.Triggered:
		s.Triggered, s.At, outcome = true, r.At, Triggered
	case r.Steer == Pause && !s.Paused:
		s.Paused, outcome = true, Paused
	case r.Steer == Resume && s.Paused:
		s.Paused, outcome = false, Resumed
	default:
		return is, NotFound
	}
	s.By = r.Offset
	return is.steered(s), outcome
}

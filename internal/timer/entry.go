package timer

// Request is one validated record of a request topic.
type Request struct {
	ID     []byte
	Offset int64
	// Schedule is the new timer; nil if the request cancels or steers.
	Schedule *Timer
	// Bytes are those of Schedule, once Own was called.
	Bytes []byte
	// Steer is the action on the pending timer; 0 if the request schedules or cancels.
	Steer Steer
	// At is when a trigger was requested. For a resume, and for a timer that is skipped, it is the present time; for a
	// move the new due time. Unix milliseconds.
	At int64
	// If is the condition under which the request takes effect.
	If Condition
	// Found are the labels of the pending timer, if only its place was looked up for a cancel.
	Found Labels
}

// Steer is the action of a request that neither schedules nor cancels.
type Steer uint8

// The ways to steer.
const (
	Trigger Steer = iota + 1 // fires the pending timer now
	Pause                    // keeps it pending but stops it from firing
	Resume                   // lets it fire again
	Move                     // makes its next occurrence due at another time
)

// Condition is what must be pending, at the request's position in the log, for the request to take effect. The zero
// value always holds.
type Condition struct {
	Kind ConditionKind
	// Generation is the generation that must be pending, for IfGeneration.
	Generation int64
	// Anchored says, for IfChanged, that the request names the instant at which its interval begins.
	Anchored bool
	// Count is, for IfChanged, the number of occurrences that the request names; 0: none.
	Count int64
	// Cron is, for IfChanged, the expression of the request; nil if it has none.
	Cron Expression
	// Stamp names, for IfChanged, a header whose value is another one in each request; "": there is none.
	Stamp string
	// Past says, for IfChanged, that the request comes so long after its due time that a new timer expires immediately.
	// In OnTime is what TooLate would be if it had come earlier.
	Past   bool
	OnTime int64
}

// Expression is a cron expression that was read.
type Expression interface {
	// Means reports whether another expression, which is valid, comes at the same instants in every time zone.
	Means(text string) bool
}

// ConditionKind is the kind of a Condition.
type ConditionKind uint8

// The kinds of conditions.
const (
	IfAlways ConditionKind = iota
	IfAbsent               // nothing is pending or remembered
	IfPresent
	IfGeneration
	// IfChanged is for requests that schedule: they say how things are to be, and may be sent again. See Apply.
	IfChanged
	// IfElsewhere names a timer whose source is another partition, so it never holds.
	IfElsewhere
)

// Holds reports whether the condition holds if before is pending.
func (c Condition) Holds(before Ref) bool {
	switch c.Kind {
	case IfAlways, IfChanged:
		return true
	case IfAbsent:
		return before.IsAbsent()
	case IfPresent:
		return before.IsPending()
	case IfGeneration:
		return !before.IsAbsent() && before.Offset == c.Generation
	case IfElsewhere:
	}
	return false
}

// Own moves the timer that r schedules into Bytes, memory of its own. A timer that waits must not keep a whole fetched
// batch alive, and the changelog and the store need the bytes anyway.
func (r *Request) Own() (err error) {
	r.Bytes, err = r.Schedule.Own()
	r.ID = r.Schedule.ID
	return err
}

// Depends reports whether the effect of r depends on the pending timer.
func (r *Request) Depends() bool { return r.Steer != 0 || r.If.Kind != IfAlways }

// Outcome is the result for a generation, or for a request that made none.
type Outcome uint8

// The outcomes. Each (generation, occurrence) ends in exactly one of Fired, Cancelled, Replaced, Moved, Expired,
// Undeliverable and Completed.
const (
	None          Outcome = iota
	Scheduled             // a request was stored as pending, and nothing was pending before
	Replaced              // a request replaced a pending generation
	Cancelled             // a cancel removed a pending generation
	NotFound              // a request to cancel or steer found nothing to do
	Fired                 // an emission
	Expired               // later than timer-max-late, or at a time that is excluded: reported, not emitted
	Refused               // the request was rejected and became a dead letter
	Undeliverable         // the emission became a dead letter
	Completed             // a recurrence ended with missed occurrences that were skipped
	Triggered             // a request makes the pending timer fire now
	Paused                // a request paused it
	Resumed               // a request resumed it
	Moved                 // a request gave its next occurrence another due time, and is its generation from now on
	Unmet                 // the condition of a request did not hold: it changes nothing
	Unchanged             // a request with IfChanged found that what it asks for is pending already
	Outcomes              // the number of outcomes
)

// Entry is the smallest unit of planning: one decision about one timer ID. Entries of one ID
// enter steps in the order in which they were planned.
type Entry struct {
	ID     []byte
	Before Ref    // pending when this was planned; Absent for nothing
	After  *Timer // pending from now on; nil for nothing
	// Outcome names the decision, for counters and events.
	Outcome Outcome
	// Emit is the timer whose occurrence this entry fires, nil otherwise.
	Emit *Timer
	// Late is the timer whose occurrence this entry expires, nil otherwise. NotOn names the calendar that excludes its
	// time; "": it was too late.
	Late  *Timer
	NotOn string
	// Labels are those of a timer that ended without an emission: it was cancelled, or its recurrence is completed.
	Labels Labels
	// Was is the timer as it was before the request moved it, nil if it did not.
	Was *Timer
	// Request is the offset of the request that made this decision, if one did.
	Request int64
}

// Expire changes e from firing an occurrence to expiring it, because it is too late.
func (e *Entry) Expire() { e.Emit, e.Late, e.Outcome = nil, e.Emit, Expired }

// Complete makes e the end of t, whose recurrence leaves no further occurrence, at now (Unix ms).
func (e *Entry) Complete(t *Timer, now int64) {
	e.Emit, e.After, e.Outcome, e.Labels = nil, t.Ended(now), Completed, t.Labels.own()
}

// Change is a change of one timer ID. The timer that is now pending is given decoded or as
// its bytes, or both.
type Change struct {
	ID            []byte
	Before, After Ref    // pending before and now; Absent for nothing
	Timer         *Timer // the pending timer
	Bytes         []byte // of the pending timer
}

// ChangeOf returns the change from before to t; t is nil for nothing.
func ChangeOf(id []byte, before Ref, t *Timer) Change {
	return Change{ID: id, Before: before, After: t.Ref(), Timer: t}
}

// Apply plans request r. before is the Ref of the pending timer, and pending is the timer itself, which may be nil if
// the request does not depend on it. If the request does not change the timer, Apply returns the same pointer.
//
// A request with IfChanged does not restart a schedule that is already as requested. The pending timer then keeps its
// next occurrence, and gets the other parts of the request if they are different.
func (r *Request) Apply(before Ref, pending *Timer) Entry {
	e := Entry{ID: r.ID, Before: before, After: r.Schedule, Request: r.Offset}
	switch {
	case !r.If.Holds(before):
		e.After, e.Outcome = pending, Unmet
	case r.Steer != 0:
		if e.After, e.Outcome = r.steer(pending); e.Outcome == Moved {
			e.Was = pending
		}
	case r.Schedule != nil && !before.IsPending():
		e.Outcome = Scheduled
	case r.Schedule != nil && r.If.Kind == IfChanged && r.asks(pending):
		e.After, e.Outcome = r.declared(pending)
	case r.Schedule != nil:
		e.Outcome = Replaced
	case !before.IsPending(): // a remembered timer is forgotten
		e.Outcome = NotFound
	default:
		e.Outcome, e.Labels = Cancelled, r.Found
		if pending != nil {
			e.Labels = pending.Labels.own()
		}
	}
	return e
}

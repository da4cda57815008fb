package timer

// Request is one record of a request topic that was validated.
type Request struct {
	ID     []byte
	Offset int64
	// Schedule is the new timer; nil if the request cancels or steers.
	Schedule *Timer
	// Steer is what it does with what is pending; 0: it schedules or cancels.
	Steer Steer
	// At is when a trigger was asked for; for a resume, the present. Unix milliseconds.
	At int64
	// If is the condition under which the request takes effect.
	If Condition
}

// Steer is what a request does that neither schedules nor cancels.
type Steer uint8

// The ways to steer.
const (
	Trigger Steer = iota + 1 // fires what is pending now
	Pause                    // keeps it pending and has it not fire
	Resume                   // has it fire again
)

// Condition is what must be pending where a request stands in the log for it to count.
// The zero value always holds.
type Condition struct {
	Kind ConditionKind
	// Generation is the pending one, of IfGeneration.
	Generation int64
}

// ConditionKind is what a Condition asks for.
type ConditionKind uint8

// The kinds of conditions.
const (
	IfAlways ConditionKind = iota
	IfAbsent               // nor remembered
	IfPresent
	IfGeneration
	// IfElsewhere asks for a timer whose source is another partition, so it never holds.
	IfElsewhere
)

// Holds reports whether the condition holds where before is pending.
func (c Condition) Holds(before Ref) bool {
	switch c.Kind {
	case IfAlways:
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

// Depends reports whether what r leaves pending depends on what it finds.
func (r *Request) Depends() bool { return r.Steer != 0 || r.If.Kind != IfAlways }

// Outcome is what became of a generation, or of a request that made none.
type Outcome uint8

// The outcomes. Each (generation, occurrence) ends in exactly one of Fired,
// Cancelled, Replaced, Expired, Undeliverable and Completed.
const (
	None          Outcome = iota
	Scheduled             // a request was stored as pending, nothing was there before
	Replaced              // a request took the place of a pending generation
	Cancelled             // a cancel removed a pending generation
	NotFound              // a request that cancels or steers found nothing to do
	Fired                 // an emission
	Expired               // later than timer-max-late: reported, not emitted
	Refused               // the request became a dead letter
	Undeliverable         // the emission did
	Completed             // a recurrence ended with occurrences that were missed, and let go
	Triggered             // what is pending fires now, by request
	Paused                // it does not fire any more
	Resumed               // it does again
	Unmet                 // what a request counts under did not hold: it changes nothing
	Outcomes              // how many outcomes there are
)

// Entry is the smallest unit of planning: one decision about one timer ID.
// Entries of one ID enter steps in the order they were planned.
type Entry struct {
	ID     []byte
	Before Ref    // what was pending when this was planned, Absent for nothing
	After  *Timer // what is pending from now on, nil for nothing
	// Outcome names the decision, for counters and events.
	Outcome Outcome
	// Emit is the timer whose occurrence this entry fires, nil otherwise.
	Emit *Timer
	// Late is the timer whose occurrence this entry lets expire, nil otherwise.
	Late *Timer
	// Request is the offset of the request that decided this, if one did.
	Request int64
}

// Expire has the occurrence that e fires not be emitted: it is too late.
func (e *Entry) Expire() { e.Emit, e.Late, e.Outcome = nil, e.Emit, Expired }

// Change is what became of one timer ID. What is pending now is there as a timer, or as
// its bytes.
type Change struct {
	ID            []byte
	Before, After Ref    // what was pending, and is now, Absent for nothing
	Timer         *Timer // of After
	Bytes         []byte // of Timer, which is nil then
}

// ChangeOf is the change from before to t, nil for nothing.
func ChangeOf(id []byte, before Ref, t *Timer) Change {
	return Change{ID: id, Before: before, After: t.Ref(), Timer: t}
}

// AppendTo appends the bytes of what is pending now, if anything is.
func (c *Change) AppendTo(dst []byte) []byte {
	if c.Timer != nil {
		return c.Timer.AppendTo(dst)
	}
	return append(dst, c.Bytes...)
}

// Apply plans request r on top of what is pending: before is its Ref, and is the timer,
// which may be nil for a request that does not depend on it. A timer that a request does not
// change is returned as the same pointer.
func (r *Request) Apply(before Ref, is *Timer) Entry {
	e := Entry{ID: r.ID, Before: before, After: r.Schedule, Request: r.Offset}
	switch {
	case !r.If.Holds(before):
		e.After, e.Outcome = is, Unmet
	case r.Steer != 0:
		e.After, e.Outcome = r.steer(is)
	case r.Schedule != nil && !before.IsPending():
		e.Outcome = Scheduled
	case r.Schedule != nil:
		e.Outcome = Replaced
	case !before.IsPending(): // what is remembered is forgotten
		e.Outcome = NotFound
	default:
		e.Outcome = Cancelled
	}
	return e
}

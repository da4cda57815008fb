package timer

// Request is one judged record of a request topic.
type Request struct {
	ID     []byte
	Offset int64
	// Schedule is the new timer, nil for a cancel.
	Schedule *Timer
}

// Outcome is what became of a generation, or of a request that made none.
type Outcome uint8

// The outcomes. Each (generation, occurrence) ends in exactly one of Fired,
// Cancelled, Replaced, Expired and DeadLettered.
const (
	None      Outcome = iota
	Scheduled         // a request was stored as pending, nothing was there before
	Replaced          // a request took the place of a pending generation
	Cancelled         // a cancel removed a pending generation
	NotFound          // a cancel found nothing
	Fired             // an emission
	Expired           // later than timer-max-late: reported, not emitted
	Refused           // the request, or the emission, became a dead letter
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
}

// Apply plans request r on top of before.
func (r *Request) Apply(before Ref) Entry {
	e := Entry{ID: r.ID, Before: before, After: r.Schedule}
	switch {
	case r.Schedule != nil && before.IsAbsent():
		e.Outcome = Scheduled
	case r.Schedule != nil:
		e.Outcome = Replaced
	case before.IsAbsent():
		e.Outcome = NotFound
	default:
		e.Outcome = Cancelled
	}
	return e
}

// Fire plans the firing of t, which must be pending.
func (t *Timer) Fire() Entry {
	return Entry{ID: t.ID, Before: t.Ref(), Outcome: Fired, Emit: t}
}

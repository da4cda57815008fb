package timer

import "bytes"

// asks reports whether r, which schedules, asks for the schedule that the pending timer has. If r does not say when an
// interval begins, it makes no difference when that of the pending timer began.
func (r *Request) asks(pending *Timer) bool {
	t := r.Schedule
	if t.Recurs() != pending.Recurs() {
		return false
	}
	a, b := t.plan(), pending.plan()
	if t.Recurs() && a.Cron == "" && !r.If.Anchored {
		a.Start, b.Start = Start{}, Start{}
	}
	if a.Count > 0 && t.Occurrence > a.Count { // all were due before the request: this count is only that of t
		a.Count = r.If.Count
	}
	if a.Cron != b.Cron && b.Cron != "" && r.If.Cron != nil && r.If.Cron.Means(b.Cron) {
		b.Cron = a.Cron
	}
	return a == b
}

// plan returns the parts of a recurrence that are the same for all occurrences and say when they are scheduled. Its
// Start is the first occurrence, except for Cron.
func (t *Timer) plan() Recurrence {
	r := Recurrence{Until: NoUntil}
	if t.Recurrence != nil {
		r = *t.Recurrence
	}
	if r.Cron == "" && r.Period == (Period{}) && r.NotOn == "" {
		number := t.Occurrence
		if r.Count > 0 {
			number = min(number, r.Count) // one past the last occurrence has the time of that
		}
		r.Start = Start{At: t.Original() - (number-1)*r.Every}
	}
	if r.Zone == "UTC" {
		r.Zone = "" // that is the default
	}
	r.Delay, r.Ahead, r.CatchUp, r.Start.Ahead, r.Since, r.Moved, r.Original = 0, 0, 0, 0, 0, 0, Instant{}
	return r
}

// declared returns the timer that is pending after r has found the schedule that it asks for: the pending timer itself,
// or that of r in its place if they differ in anything else.
func (r *Request) declared(pending *Timer) (*Timer, Outcome) {
	tooLate := r.Schedule.TooLate
	if r.If.Past && pending.TooLate != tooLate {
		tooLate = r.If.OnTime // the limit is for new timers
	}
	if tooLate == pending.TooLate && r.Schedule.hasContents(pending, r.If.Stamp) {
		return pending, Unchanged
	}
	t := *r.Schedule
	t.TooLate = tooLate
	t.Due, t.Occurrence, t.Steering = pending.Due, pending.Occurrence, pending.Steering
	if t.Recurrence != nil {
		x := *pending.Recurrence
		x.CatchUp = t.Recurrence.CatchUp
		// They mean the same, and do not keep the memory of the pending timer.
		x.Cron, x.Zone, x.NotOn = t.Recurrence.Cron, t.Recurrence.Zone, t.Recurrence.NotOn
		t.Recurrence = &x
	}
	return &t, Replaced
}

// hasContents reports whether t and o are the same apart from their schedules, TooLate and where they come from. Trace
// contexts and the value of the header stamp do not count: each request has others.
func (t *Timer) hasContents(o *Timer, stamp string) bool {
	return t.catchUp() == o.catchUp() && t.remember() == o.remember() && t.Target.equal(&o.Target) &&
		sameBytes(t.Value, o.Value) && t.Labels == o.Labels && sameHeaders(t.Headers, o.Headers, stamp)
}

// remember returns how t is remembered. For no time is the same as not at all.
func (t *Timer) remember() Remember {
	if t.Remember == nil {
		return Remember{}
	}
	return *t.Remember
}

func (t *Timer) catchUp() CatchUp {
	if t.Recurrence == nil {
		return 0
	}
	return t.Recurrence.CatchUp
}

func (t *Target) equal(o *Target) bool {
	return t.Topic == o.Topic && t.Partition == o.Partition && sameBytes(t.Key, o.Key)
}

// sameBytes is bytes.Equal, except that null and no bytes differ.
func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// sameHeaders compares headers in their order, without the trace context. The value of stamp does not count.
func sameHeaders(a, b []Header, stamp string) bool {
	for {
		for len(a) > 0 && IsTraceContext(a[0].Key) {
			a = a[1:]
		}
		for len(b) > 0 && IsTraceContext(b[0].Key) {
			b = b[1:]
		}
		if len(a) == 0 || len(b) == 0 {
			return len(a) == len(b)
		}
		if a[0].Key != b[0].Key || a[0].Key != stamp && !sameBytes(a[0].Value, b[0].Value) {
			return false
		}
		a, b = a[1:], b[1:]
	}
}

// IsTraceContext reports whether a header with that name is part of W3C's trace context.
func IsTraceContext(name string) bool { return name == "traceparent" || name == "tracestate" }

package timer

import (
	"encoding/binary"
	"fmt"
	"math"
)

// CatchUp is the policy for missed occurrences. They are counted in any case.
type CatchUp uint8

// The policies.
const (
	CatchUpLatest CatchUp = iota // only the last of them fires
	CatchUpAll                   // all of them fire
	CatchUpNone                  // none of them fires

	catchUps
)

// String is the policy's name, as in a request.
func (c CatchUp) String() string {
	if c >= catchUps {
		return ""
	}
	return [catchUps]string{CatchUpLatest: "latest", CatchUpAll: "all", CatchUpNone: "none"}[c]
}

// Shift says what happens to an occurrence at a time that a calendar excludes.
type Shift uint8

// The shifts.
const (
	ShiftSkip     Shift = iota // it is no occurrence
	ShiftNext                  // it comes on the next day that is not excluded, or when excluded hours end
	ShiftPrevious              // it comes on the last day before, or just before excluded hours begin

	shifts
)

// String is the shift's name, as in a request.
func (s Shift) String() string {
	if s >= shifts {
		return ""
	}
	return [shifts]string{ShiftSkip: "skip", ShiftNext: "next", ShiftPrevious: "previous"}[s]
}

// ParseShift returns the shift with a name; false if there is none.
func ParseShift[B []byte | string](name B) (Shift, bool) {
	for s := range shifts {
		if string(name) == s.String() {
			return s, true
		}
	}
	return 0, false
}

// NoUntil, as Recurrence.Until, means that the recurrence has no last instant.
const NoUntil = math.MaxInt64

// Recurrence describes how a timer recurs, in the words of its request, and how its pending occurrence was scheduled.
// Exactly one of Every, Cron and Period is set. If none is, the timer fires once, and only its jitter and its calendars
// count: see [Timer.Recurs]. Package calendar interprets a Recurrence. It is immutable, and the occurrences of a timer
// may share one.
type Recurrence struct {
	Every  int64  // the interval in milliseconds
	Cron   string // the expression
	Period Period // the interval by the calendar of Zone
	// Zone is the IANA name of the time zone of Cron or Period; empty is UTC.
	Zone string
	// Start is the timer-at of a timer with Cron, and with Period the anchor, which is its first occurrence. With NotOn
	// it is also the anchor of an interval, and the timer-at of a timer that fires once. Unix milliseconds.
	Start   Start
	Until   int64 // Unix milliseconds: nothing is scheduled after it; NoUntil: no such end
	Count   int64 // the number of occurrences; 0: no such end
	Jitter  int64 // milliseconds; each occurrence is delayed by less than this; 0: no delay
	CatchUp CatchUp

	// NotOn are the names of the calendars whose times are excluded, in order, with commas between them; "": none.
	// Shift says what happens to excluded occurrences.
	NotOn string
	Shift Shift

	// Delay is the jitter of the pending occurrence, in milliseconds: its scheduled time is the timer's Due − Delay.
	// Invariant: Delay is less than Jitter, and 0 if Jitter is 0.
	Delay int64
	// Ahead is how far the zone's clock is ahead of UTC at the pending occurrence, in seconds. From it package calendar
	// learns whether the rules of the zone have changed. With NotOn it is that of Since. Invariant: 0 without a zone.
	Ahead int64
	// Since, with NotOn, is the instant up to which all occurrences are decided, in Unix milliseconds: the pending one
	// is the first after it. So it can be computed again when a calendar has changed, and none comes twice.
	Since int64
	// Moved, with NotOn, is by how much calendars have moved the pending occurrence, in milliseconds.
	Moved int64

	// Original is when the schedule has the pending occurrence, if a request has moved it; see [Timer.Original]. The
	// schedule goes on from there, so Ahead, Since and Moved are those of that time. Invariant: not set if the timer
	// fires once; Delay is 0 if it is set.
	Original Instant
}

// Instant is a time that may be missing. The zero value is none.
type Instant struct {
	At  int64 // Unix milliseconds
	Set bool
}

// Start is an instant before which nothing is scheduled. The zero value is none.
type Start struct {
	At  int64 // Unix milliseconds
	Set bool
	// Ahead is how far the zone's clock was ahead of UTC at that instant, in seconds, by the rules when the request was
	// read. The occurrences of a Period are counted from the reading of that clock, even if the rules change.
	// Invariant: 0 without a Period.
	Ahead int64
}

// Recurs reports whether t may have more than one occurrence.
func (t *Timer) Recurs() bool {
	r := t.Recurrence
	return r != nil && (r.Every > 0 || r.Cron != "" || r.Period != Period{})
}

// IsSkipped reports whether t fires once, at a time that its calendars excluded when its request was read. It is due at
// once, and expires then.
func (t *Timer) IsSkipped() bool {
	r := t.Recurrence
	return r != nil && r.NotOn != "" && !t.Recurs() && r.Start.At+r.Moved != t.Scheduled()
}

// Scheduled returns when the pending occurrence is scheduled, in Unix milliseconds: its due time without jitter.
func (t *Timer) Scheduled() int64 {
	if t.Recurrence == nil {
		return t.Due
	}
	return t.Due - t.Recurrence.Delay
}

// Original returns when the schedule has the pending occurrence, in Unix milliseconds: when it is scheduled, or would
// be if no request had moved it.
func (t *Timer) Original() int64 {
	if t.IsMoved() {
		return t.Recurrence.Original.At
	}
	return t.Scheduled()
}

// IsMoved reports whether a request has moved the pending occurrence of t, which recurs, away from its schedule.
func (t *Timer) IsMoved() bool { return t.Recurrence != nil && t.Recurrence.Original.Set }

// SkipsMissed reports whether catch-up skips the pending occurrence of t, which is due, if all that was due by an
// instant (Unix ms) was missed. A firing that was triggered, and an occurrence that was moved, are never skipped.
func (t *Timer) SkipsMissed(by int64) bool {
	return t.Recurs() && t.Recurrence.CatchUp == CatchUpNone && t.Due <= by && !t.IsTriggered() && !t.IsMoved()
}

// IsTooLate reports whether the next firing is too late to be emitted at now, in Unix milliseconds.
func (t *Timer) IsTooLate(now int64) bool {
	return t.TooLate > 0 && now-t.FiresAt() >= t.TooLate
}

// The content of extension tagRecurrence, and of tagSchedule if one of the flags does not fit a byte:
//
//	byte     flags, below; in tagSchedule uvarint
//	uvarint  interval in milliseconds          unless one of the next three
//	bytes    expression                        if recursByCron
//	uvarint  months, then uvarint days         if recursByPeriod
//	-                                          if recursOnce
//	bytes    zone                              if recursInZone, else UTC
//	varint   how far ahead, seconds            if recursAhead, else 0
//	varint   until                             if recursUntil
//	uvarint  count                             if recursCount
//	uvarint  jitter, then uvarint delay        if recursJitter
//	varint   start                             if recursStart
//	varint   how far ahead at the start        if recursByPeriod
//	bytes    calendars, then varint since,
//	         then varint moved                 if recursNotOn
//	varint   original                          if recursOriginal
const (
	recursByCron   = 1 << 0
	recursInZone   = 1 << 1
	recursAhead    = 1 << 2
	recursUntil    = 1 << 3
	recursCount    = 1 << 4
	recursJitter   = 1 << 5
	recursCatchUp  = 6 // two bits from here: the CatchUp
	recursByPeriod = 1 << 8
	recursOnce     = 1 << 9
	recursStart    = 1 << 10
	recursNotOn    = 1 << 11
	recursShift    = 12 // two bits from here: the Shift
	recursOriginal = 1 << 14
	recursKnown    = 1<<15 - 1

	recursBy     = recursByCron | recursByPeriod | recursOnce
	recursByByte = 1<<8 - 1 // flags that fit tagRecurrence
)

func (r *Recurrence) flags() (f uint64) {
	f = uint64(r.CatchUp) << recursCatchUp
	switch {
	case r.Cron != "":
		f |= recursByCron
	case r.Period != Period{}:
		f |= recursByPeriod
	case r.Every == 0:
		f |= recursOnce
	}
	if r.Zone != "" {
		f |= recursInZone
	}
	if r.Ahead != 0 {
		f |= recursAhead
	}
	if r.Until != NoUntil {
		f |= recursUntil
	}
	if r.Count != 0 {
		f |= recursCount
	}
	if r.Jitter != 0 {
		f |= recursJitter
	}
	if r.Start.Set {
		f |= recursStart
	}
	if r.NotOn != "" {
		f |= recursNotOn | uint64(r.Shift)<<recursShift
	}
	if r.Original.Set {
		f |= recursOriginal
	}
	return f
}

// tag returns the extension that has room for the flags of r.
func (r *Recurrence) tag() uint64 {
	if r.flags() > recursByByte {
		return tagSchedule
	}
	return tagRecurrence
}

func (r *Recurrence) appendTo(dst []byte) []byte {
	f := r.flags()
	if f > recursByByte {
		dst = binary.AppendUvarint(dst, f)
	} else {
		dst = append(dst, byte(f))
	}
	switch f & recursBy {
	case recursByCron:
		dst = appendBytes(dst, r.Cron)
	case recursByPeriod:
		dst = binary.AppendUvarint(dst, uint64(r.Period.Months))
		dst = binary.AppendUvarint(dst, uint64(r.Period.Days))
	case 0:
		dst = binary.AppendUvarint(dst, uint64(r.Every))
	}
	if f&recursInZone != 0 {
		dst = appendBytes(dst, r.Zone)
	}
	if f&recursAhead != 0 {
		dst = binary.AppendVarint(dst, r.Ahead)
	}
	if f&recursUntil != 0 {
		dst = binary.AppendVarint(dst, r.Until)
	}
	if f&recursCount != 0 {
		dst = binary.AppendUvarint(dst, uint64(r.Count))
	}
	if f&recursJitter != 0 {
		dst = binary.AppendUvarint(dst, uint64(r.Jitter))
		dst = binary.AppendUvarint(dst, uint64(r.Delay))
	}
	if f&recursStart != 0 {
		dst = binary.AppendVarint(dst, r.Start.At)
	}
	if f&recursByPeriod != 0 {
		dst = binary.AppendVarint(dst, r.Start.Ahead)
	}
	if f&recursNotOn != 0 {
		dst = appendBytes(dst, r.NotOn)
		dst = binary.AppendVarint(dst, r.Since)
		dst = binary.AppendVarint(dst, r.Moved)
	}
	if f&recursOriginal != 0 {
		dst = binary.AppendVarint(dst, r.Original.At)
	}
	return dst
}

// recurrence reads the content of extension tagRecurrence or tagSchedule, which is all of rest.
func (r *reader) recurrence(tag uint64) *Recurrence {
	f := uint64(0)
	switch {
	case tag == tagSchedule:
		if f = r.uvarint(); f > recursKnown {
			r.newer(fmt.Sprintf("flags %#x of a schedule", f))
		} else if f <= recursByByte {
			r.corrupt("a recurrence in the form of a schedule")
		}
	case len(r.rest) == 0:
		r.corrupt("a recurrence without bytes")
	default:
		f, r.rest = uint64(r.rest[0]), r.rest[1:]
	}
	if r.err != nil {
		return nil
	}
	c := &Recurrence{Until: NoUntil, CatchUp: CatchUp(f >> recursCatchUp & 3)}
	if c.CatchUp >= catchUps {
		r.newer("catch-up policy 3")
	}
	switch f & recursBy {
	case recursByCron:
		if c.Cron = r.text(); c.Cron == "" {
			r.corrupt("an empty expression")
		}
	case recursByPeriod:
		c.Period = Period{Months: r.small(), Days: r.small()}
		if c.Period == (Period{}) || f&recursStart == 0 {
			r.corrupt("a period of nothing, or without a start")
		}
	case recursOnce, 0:
		if f&(recursInZone|recursAhead) != 0 {
			r.corrupt("an interval with a zone")
		}
		if f&recursOnce == 0 {
			c.Every = r.positive()
		}
	default:
		r.corrupt("a recurrence by two rules")
	}
	if f&recursInZone != 0 {
		if c.Zone = r.text(); c.Zone == "" {
			r.corrupt("an empty zone written out")
		}
	}
	if f&recursAhead != 0 {
		if c.Ahead = r.varint(); c.Ahead == 0 {
			r.corrupt("UTC written out")
		}
	}
	if f&recursUntil != 0 {
		if c.Until = r.varint(); c.Until == NoUntil {
			r.corrupt("no end written out")
		}
	}
	if f&recursCount != 0 {
		c.Count = r.positive()
	}
	if f&recursJitter != 0 {
		c.Jitter = r.positive()
		if c.Delay = int64(r.uvarint()); c.Delay < 0 || c.Delay >= c.Jitter {
			r.corrupt("a delay that exceeds the jitter")
		}
	}
	if f&recursStart != 0 {
		c.Start = Start{At: r.varint(), Set: true}
	}
	if f&recursByPeriod != 0 {
		c.Start.Ahead = r.varint()
	}
	if c.Shift = Shift(f >> recursShift & 3); c.Shift >= shifts {
		r.newer("shift 3")
	}
	if f&recursNotOn != 0 {
		c.NotOn, c.Since, c.Moved = r.text(), r.varint(), r.varint()
		if c.NotOn == "" || c.Shift == ShiftSkip && c.Moved != 0 {
			r.corrupt("no calendars written out, or a move by none")
		}
	} else if c.Shift != ShiftSkip {
		r.corrupt("a shift without calendars")
	}
	if f&recursOriginal != 0 {
		if c.Original = (Instant{At: r.varint(), Set: true}); f&recursOnce != 0 || c.Delay != 0 {
			r.corrupt("a moved occurrence of a timer that fires once, or with a delay")
		}
	}
	if len(r.rest) != 0 {
		r.corrupt("bytes behind the recurrence")
	}
	return c
}

// small reads a number up to MaxPeriod.
func (r *reader) small() int64 {
	n := r.uvarint()
	if n > MaxPeriod {
		r.corrupt("a period that is too long")
	}
	return int64(n)
}

// positive reads a number of 1 to math.MaxInt64.
func (r *reader) positive() int64 {
	n := r.uvarint()
	if n == 0 || n > math.MaxInt64 {
		r.corrupt("a number that is not positive")
	}
	return int64(n)
}
